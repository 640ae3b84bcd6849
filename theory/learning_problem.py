"""What is to be learnt: attended training inputs, labels and temperature for one architecture."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import Architecture
from theory.attended_inputs import path_features
from theory.energy import LabelEnergy
from theory.hyper_priors import KNOWN, HyperPriors
from theory.path_kernels import path_kernels


@dataclass(frozen=True)
class LearningProblem:
    """One architecture with its training data, the common ground of theory and samplers.

    attended      ξ^π(x_μ) [example, path, channel]
    labels        y [example, output]
    temperature   𝒯, the variance of the likelihood
    hyper_priors  how far temperature and prior variances are known

    Raises ValueError when shapes disagree with the architecture, a number is not finite, or the
    temperature is not positive.
    """

    architecture: Architecture
    attended: Float[Array, "example path channel"]
    labels: Float[Array, "example output"]
    temperature: float
    hyper_priors: HyperPriors = KNOWN

    def __post_init__(self) -> None:
        arch = self.architecture
        if self.labels.ndim != 2 or self.labels.shape[0] == 0:
            raise ValueError(
                f"labels have shape {self.labels.shape}: need [example, output] with at least one "
                "example (labels[:, None] for one output)"
            )
        examples = self.labels.shape[0]
        expected = (examples, arch.path_count, arch.channels)
        if self.attended.shape != expected:
            raise ValueError(
                f"attended inputs have shape {self.attended.shape}: the architecture and labels "
                f"need [example, path, channel] = {expected}"
            )
        if self.labels.shape[1] != arch.outputs:
            raise ValueError(
                f"labels have shape {self.labels.shape}: need {arch.outputs} outputs per example"
            )
        for name, values in (("attended inputs", self.attended), ("labels", self.labels)):
            if not np.all(np.isfinite(values)):
                raise ValueError(f"{name} contain values that are not finite; remove them")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature = {self.temperature!r}: must be positive and finite")
        # Derivatives in it are taken: a whole number has none.
        object.__setattr__(self, "temperature", float(self.temperature))

    @property
    def features(self) -> Float[Array, "example path channel"]:
        """Features φ^π(x_μ) = σ_0 ξ^π(x_μ)/√(D Π)."""
        return path_features(self.attended, self.architecture.variances[0])

    @cached_property
    def energy(self) -> LabelEnergy:
        """E(U_1) of these labels at this temperature; its path kernels are computed once."""
        # Outside of any trace: what is kept must not belong to a function that is being compiled.
        with jax.ensure_compile_time_eval():
            kernels = path_kernels(self.attended, None, self.architecture)
        return LabelEnergy(kernels, self.labels, self.temperature)

    def astype(self, dtype: str | type | np.dtype) -> "LearningProblem":
        """The same problem in another floating-point precision."""
        return replace(
            self,
            attended=jnp.asarray(self.attended, dtype),
            labels=jnp.asarray(self.labels, dtype),
        )
