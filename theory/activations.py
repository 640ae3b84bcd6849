"""Functions of values φ, scaled so that E φ(u)² = 1 for u ~ N(0, 1)."""

import math

import jax
from jaxtyping import Array, Float

from theory.architecture import Values

# c of φ(u) = c · erf(u) and φ(u) = c · u Φ(u), Φ the normal distribution function:
# E erf(u)² = (2/π) arcsin(2/3), E u² Φ(u)² = 1/3 + 1/(2π√3).
ERF = (2.0 / math.pi * math.asin(2.0 / 3.0)) ** -0.5
GELU = (1.0 / 3.0 + 1.0 / (2.0 * math.pi * 3.0**0.5)) ** -0.5


def activation(inputs: Float[Array, "..."], values: Values) -> Float[Array, "..."]:
    """Apply φ(u) = u, √2 max(u, 0), c erf(u) or c u Φ(u) to every entry.

    c makes E φ(u)² = 1 for u ~ N(0, 1); Φ is the normal distribution function.
    """
    if values == "linear":
        return inputs
    if values == "relu":
        return 2**0.5 * jax.nn.relu(inputs)
    if values == "erf":
        return ERF * jax.scipy.special.erf(inputs)
    return GELU * jax.nn.gelu(inputs, approximate=False)
