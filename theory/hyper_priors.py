"""What is not known beforehand of the temperature and of the prior variances."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class HyperPriors:
    """Log-normal priors about the values that a learning problem gives; a spread of 0 fixes them.

        ln 𝒯 ~ N(ln 𝒯_0, s_𝒯²),    ln σ_l² ~ N(ln σ_{l,0}², s_σ²) for every layer by itself

    temperature_spread  s_𝒯
    variance_spread     s_σ

    Samplers draw what has a spread together with the rest; the theory is solved at the centre.
    Raises ValueError for a spread that is negative or not finite.
    """

    temperature_spread: float = 0.0
    variance_spread: float = 0.0

    def __post_init__(self) -> None:
        for name in ("temperature_spread", "variance_spread"):
            spread = getattr(self, name)
            if not (math.isfinite(spread) and spread >= 0):
                raise ValueError(f"{name} = {spread!r}: must be finite, and 0 or more")


KNOWN = HyperPriors()
