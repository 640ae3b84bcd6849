"""Functions of values φ, scaled so that E φ(u)² = 1 for u ~ N(0, 1), and their Gaussian means.

The means are all that the theories of networks with such values need of φ. Here u and v are
centred Gaussian numbers with E u² = q₁₁, E uv = q₁₂, E v² = q₂₂.
"""

import math

import jax
import jax.numpy as jnp
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


def pair_moment(
    left: Float[Array, "*#shape"],
    both: Float[Array, "*#shape"],
    right: Float[Array, "*#shape"],
    values: Values,
) -> Float[Array, "*#shape"]:
    """Second moment k_φ = E φ(u)φ(v), from q₁₁, q₁₂ and q₂₂.

        ReLU   (s + q₁₂ (π − θ))/π,  s² = q₁₁q₂₂ − q₁₂²,  tan θ = s/q₁₂
        erf    c² (2/π) arcsin(2q₁₂/√((1 + 2q₁₁)(1 + 2q₂₂)))
        GELU   c² ( q₁₂ E ΦΦ + [q₁₁q₂₂ + q₁₂² (1/a + 1/b − 1)]/(2π√(ab − q₁₂²)) )

    a = 1 + q₁₁, b = 1 + q₂₂, E Φ(u)Φ(v) = ¼ + arcsin(q₁₂/√(ab))/(2π). The last line follows from
    Stein's lemma in u and in v. Derivatives are finite at full correlation.
    """
    if values == "linear":
        return both + 0.0 * (left + right)
    if values == "relu":
        return _pair_moment_of_relu(left, both, right)
    if values == "erf":
        correlation = 2.0 * both / jnp.sqrt((1.0 + 2.0 * left) * (1.0 + 2.0 * right))
        return ERF**2 * (2.0 / jnp.pi) * jnp.arcsin(correlation)
    a, b = 1.0 + left, 1.0 + right
    of_steps = 0.25 + jnp.arcsin(both / jnp.sqrt(a * b)) / (2.0 * jnp.pi)
    slopes = left * right + both**2 * (1.0 / a + 1.0 / b - 1.0)
    slopes = slopes / (2.0 * jnp.pi * jnp.sqrt(a * b - both**2))
    return GELU**2 * (both * of_steps + slopes)


def first_moment(variance: Float[Array, "..."], values: Values) -> Float[Array, "..."]:
    """Mean m_φ = E φ(u): zero for odd φ, √(q/π) for the ReLU, c q/√(2π(1 + q)) for GELU."""
    if values == "relu":
        return _root(variance) / jnp.pi**0.5
    if values == "gelu":
        return GELU * variance / jnp.sqrt(2.0 * jnp.pi * (1.0 + variance))
    return jnp.zeros_like(variance)


def mean_slope(variance: Float[Array, "..."], values: Values) -> Float[Array, "..."]:
    """Mean slope μ_φ = E φ'(u), which makes μ u the linear part of φ(u).

    2^{-½} for the ReLU and c/2 for GELU, at any variance; 2c/√(π(1 + 2q)) for erf.
    """
    if values == "erf":
        return 2.0 * ERF / jnp.sqrt(jnp.pi * (1.0 + 2.0 * variance))
    constant = {"linear": 1.0, "relu": 0.5**0.5, "gelu": 0.5 * GELU}[values]
    return jnp.full_like(variance, constant)


@jax.custom_jvp
def _pair_moment_of_relu(left, both, right):
    sine, angle = _sine_and_angle(left, both, right)
    return (sine + both * (jnp.pi - angle)) / jnp.pi


@_pair_moment_of_relu.defjvp
def _pair_moment_of_relu_jvp(primals, tangents):
    # s and θ have infinite slopes at full correlation, which cancel: these are the sums.
    left, both, right = primals
    sine, angle = _sine_and_angle(left, both, right)
    by_left, by_right = (0.5 * sine / jnp.where(q > 0.0, q, 1.0) for q in (left, right))
    slopes = by_left, jnp.pi - angle, by_right
    along = sum(slope * tangent for slope, tangent in zip(slopes, tangents, strict=True))
    return _pair_moment_of_relu(*primals), along / jnp.pi


def _sine_and_angle(left, both, right):
    """√(q₁₁q₂₂) sin θ and θ, the angle between u and v; one from the other, to the same error."""
    sine = _root(left * right - both**2)
    nothing = (sine == 0.0) & (both == 0.0)
    return sine, jnp.arctan2(sine, jnp.where(nothing, 1.0, both))


def _root(square):
    """√x with a slope of 0 where x is not positive."""
    return jnp.where(square > 0.0, jnp.sqrt(jnp.where(square > 0.0, square, 1.0)), 0.0)
