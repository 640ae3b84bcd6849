"""Kernels of networks with nonlinear values at infinite width, and regression with a kernel.

The network is z^{l+1}_t = Σ_h Σ_s ψ(V_l^h z^l_s/√N_l) Ω^{l,h}_st/√H_l, f = a z^{L+1} t*/√N_a. At
infinite width the units of one head before ψ are Gaussian, with covariance σ_l² Γ^l over examples
and tokens,

    Γ^1_tt'(x, x')     = σ_0² x_t·x'_t'/D
    Γ^{l+1}_tt'(x, x') = (1/H_l) Σ_hh' Σ_ss' Ω^{l,h}_st Ω^{l,h'}_s't' ⟨ψ_s ψ_s'⟩_hh'
    ⟨ψ_s ψ_s'⟩_hh'     = k_ψ(σ_l² Γ^l)_ss' for h = h'
                       = m_ψ(σ_l² Γ^l_ss) m_ψ(σ_l² Γ^l_s's') for h ≠ h'
    K(x, x')           = σ_a² Γ^{L+1} at t*

Different heads have independent units, so only their means meet: they are zero for
odd ψ, and large for others.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from theory.architecture import Architecture, Values
from theory.attended import Readout, token_readout
from theory.energy import (
    NoisyKernel,
    TemperatureTooSmall,
    energy_of_kernel,
    lowest_temperature,
    regress,
)

# c of ψ(u) = c · erf(u) and ψ(u) = c · u P(v < u), v standard normal:
# ⟨erf(u)²⟩ = (2/π) arcsin(2/3), ⟨u² P(v < u)²⟩ = 1/3 + 1/(2π√3).
ERF = (2.0 / math.pi * math.asin(2.0 / 3.0)) ** -0.5
GELU = (1.0 / 3.0 + 1.0 / (2.0 * math.pi * 3.0**0.5)) ** -0.5


def activation(inputs: Float[Array, "..."], values: Values) -> Float[Array, "..."]:
    """Apply ψ(u) = u, √2 max(u, 0), c erf(u) or c u P(v < u) to every entry.

    c makes ⟨ψ(u)²⟩ = 1 for standard normal u; v is standard normal.
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
    """Second moment k_ψ = ⟨ψ(u)ψ(v)⟩, from q₁₁, q₁₂ and q₂₂.

        ReLU   (s + q₁₂ (π − θ))/π,  s² = q₁₁q₂₂ − q₁₂²,  tan θ = s/q₁₂
        erf    c² (2/π) arcsin(2q₁₂/√((1 + 2q₁₁)(1 + 2q₂₂)))
        GELU   c² ( q₁₂ p + [q₁₁q₂₂ + q₁₂² (1/a + 1/b − 1)]/(2π√(ab − q₁₂²)) )

    a = 1 + q₁₁, b = 1 + q₂₂, p = ¼ + arcsin(q₁₂/√(ab))/(2π). The last line follows from
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
    both_positive = 0.25 + jnp.arcsin(both / jnp.sqrt(a * b)) / (2.0 * jnp.pi)
    slopes = left * right + both**2 * (1.0 / a + 1.0 / b - 1.0)
    slopes = slopes / (2.0 * jnp.pi * jnp.sqrt(a * b - both**2))
    return GELU**2 * (both * both_positive + slopes)


def first_moment(variance: Float[Array, "..."], values: Values) -> Float[Array, "..."]:
    """Mean m_ψ = ⟨ψ(u)⟩: zero for odd ψ, √(q/π) for the ReLU, c q/√(2π(1 + q)) for GELU."""
    if values == "relu":
        return _root(variance) / jnp.pi**0.5
    if values == "gelu":
        return GELU * variance / jnp.sqrt(2.0 * jnp.pi * (1.0 + variance))
    return jnp.zeros_like(variance)


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
    undefined = (sine == 0.0) & (both == 0.0)
    return sine, jnp.arctan2(sine, jnp.where(undefined, 1.0, both))


def _root(square):
    """√x with a slope of 0 where x is not positive."""
    return jnp.where(square > 0.0, jnp.sqrt(jnp.where(square > 0.0, square, 1.0)), 0.0)


@register_dataclass
@dataclass(frozen=True)
class TokenExamples:
    """Examples of a network that is followed token by token, or one of them without its axis.

    inputs     x_0 [example, token, channel]
    attention  Ω^l [example, head, key, query] for each layer; the last one is Ω^L t*, with one
               query, so that z^{L+1} has one token
    """

    inputs: Float[Array, "*example token channel"]
    attention: tuple[Float[Array, "*example _head token _query"], ...]

    @classmethod
    def read(
        cls,
        inputs: Float[Array, "example token channel"],
        attention: tuple[Float[Array, "example _head token token"], ...],
        readout: Readout,
    ) -> "TokenExamples":
        """Tokens, attention, and the token that is read: "last", "first", or the "mean" of all."""
        *lower, last = attention
        read = jnp.einsum("xhkq,q->xhk", last, token_readout(inputs.shape[1], readout))
        return cls(inputs, (*lower, read[..., None]))

    def __len__(self) -> int:
        return self.inputs.shape[0]


@dataclass(frozen=True)
class NonlinearProblem:
    """A network with nonlinear values and its training data.

    train        inputs and attention of the training examples
    labels       y [example, output]
    temperature  𝒯
    """

    architecture: Architecture
    values: Values
    train: TokenExamples
    labels: Float[Array, "example output"]
    temperature: float

    def __post_init__(self) -> None:
        if self.train.inputs.dtype != jnp.float64:
            raise ValueError(f"the theory needs float64, got {self.train.inputs.dtype}")

    @property
    def network(self) -> dict[str, Architecture | Values]:
        """Architecture and values as compiled functions take them, one compilation for all widths.

        None of their results depends on a width: it is 1 everywhere.
        """
        widths = (1,) * len(self.architecture.widths)
        return {"architecture": replace(self.architecture, widths=widths), "values": self.values}


# --- covariances of a pair of examples


def input_covariance(
    left: TokenExamples, right: TokenExamples, architecture: Architecture
) -> Float[Array, "token other"]:
    """Γ^1 of a pair of examples."""
    return architecture.variances[0] / architecture.channels * left.inputs @ right.inputs.T


def next_covariance(
    units: Float[Array, "token other"],
    left_variance: Float[Array, " token"],
    right_variance: Float[Array, " other"],
    left: Float[Array, "head token query"],
    right: Float[Array, "head other other_query"],
    values: Values,
) -> Float[Array, "query other_query"]:
    """Γ^{l+1} of a pair of examples from the covariance σ_l² Γ^l of units and from Ω of both.

    Σ_h Ω^{l,h}ᵀ (k − m mᵀ) Ω'^{l,h} + (Σ_h Ω^{l,h}ᵀ m)(Σ_h Ω'^{l,h}ᵀ m')ᵀ, over H_l:
    the same sum, without the pairs of heads.
    """
    moment = pair_moment(left_variance[:, None], units, right_variance[None, :], values)
    left_mean, right_mean = (first_moment(q, values) for q in (left_variance, right_variance))
    centred = moment - left_mean[:, None] * right_mean[None, :]
    within = jnp.einsum("hst,su,huv->tv", left, centred, right)
    left_sum, right_sum = left.sum(0).T @ left_mean, right.sum(0).T @ right_mean
    return (within + left_sum[:, None] * right_sum[None, :]) / len(left)


def covariances(
    left: TokenExamples,
    right: TokenExamples,
    variances: tuple[tuple[Array, ...], tuple[Array, ...]] | None,
    architecture: Architecture,
    values: Values,
) -> list[Float[Array, "_query _other_query"]]:
    """σ_1² Γ^1 … σ_a² Γ^{L+1} of a pair of examples.

    variances  diagonals of σ_l² Γ^l of both; None for an example with itself
    """
    first, *scales = architecture.order_parameter_variances
    units = [first * input_covariance(left, right, architecture)]
    layers = zip(scales, left.attention, right.attention, strict=True)
    for layer, (scale, omega, other_omega) in enumerate(layers):
        diagonals = (jnp.diagonal(units[-1]),) * 2
        if variances is not None:
            diagonals = tuple(of_layers[layer] for of_layers in variances)
        above = next_covariance(units[-1], *diagonals, omega, other_omega, values)
        units.append(scale * above)
    return units


# --- of all examples and pairs of them

# Numbers of one array that are computed at a time for pairs of examples: they fit the caches. With
# more of them, up to what memory holds, all kernels take up to twice as long.
BATCH_NUMBERS = 2**16


def unit_variances(
    examples: TokenExamples, architecture: Architecture, values: Values
) -> tuple[Float[Array, "example _token"], ...]:
    """Diagonals of σ_l² Γ^l(x, x), l = 1 … L, and K(x, x) [example, 1] as the last."""

    def of_example(example):
        units = covariances(example, example, None, architecture, values)
        return tuple(map(jnp.diagonal, units))

    batch = max(1, BATCH_NUMBERS // examples.inputs.shape[1] ** 2)
    return jax.lax.map(of_example, examples, batch_size=batch)


def of_pairs(function: Callable, left: Any, right: Any, numbers: int) -> Any:
    """Arrays [left, right, …] of function(x, x') of every pair of two sets of examples.

    left, right  arrays with an axis of examples in front; right = None stands for the left set
                 itself, where half of the pairs are enough: function(x', x) is the transpose in the
                 last two axes, if there are any
    numbers      those that one pair needs
    """
    others = left if right is None else right
    size, other_size = (len(jax.tree.leaves(side)[0]) for side in (left, others))
    places = np.triu_indices(size) if right is None else np.indices((size, other_size))
    rows, columns = (place.reshape(-1) for place in places)

    def of_pair(pair):
        row, column = pair
        x = jax.tree.map(lambda values: values[row], left)
        return function(x, jax.tree.map(lambda values: values[column], others))

    pairs, batch = (jnp.asarray(rows), jnp.asarray(columns)), max(1, BATCH_NUMBERS // numbers)
    results = jax.lax.map(of_pair, pairs, batch_size=batch)

    def arrange(values):
        if right is not None:
            return values.reshape(size, other_size, *values.shape[1:])
        whole = jnp.zeros((size, size, *values.shape[1:]), values.dtype)
        turned = jnp.swapaxes(values, -1, -2) if values.ndim > 1 else values
        return whole.at[columns, rows].set(turned).at[rows, columns].set(values)

    return jax.tree.map(arrange, results)


@partial(jax.jit, static_argnames=("architecture", "values"))
def kernel_of_pairs(
    left: TokenExamples,
    right: TokenExamples | None,
    *,
    architecture: Architecture,
    values: Values,
) -> tuple[Float[Array, "left right"], Float[Array, " left"]]:
    """K between two sets of examples (right = None: of one with itself), and K(x, x) of the left.

    architecture  of which widths do not matter
    """
    *of_left, prior = unit_variances(left, architecture, values)
    others = None
    if right is not None:
        others = right, unit_variances(right, architecture, values)[:-1]

    def of_pair(first, second):
        (x, variances), (other, other_variances) = first, second
        both = variances, other_variances
        return covariances(x, other, both, architecture, values)[-1][0, 0]

    kernel = of_pairs(of_pair, (left, tuple(of_left)), others, left.inputs.shape[1] ** 2)
    return kernel, prior[:, 0]


@register_dataclass
@dataclass(frozen=True)
class Kernels:
    """K of one theory: of the training examples, from test examples to these, and K(x, x).

    Rows may be examples, or (example, output) with the output fastest.
    """

    train: Float[Array, "row row"]
    cross: Float[Array, "test row"]
    prior: Float[Array, " test"]

    @jax.jit
    def regression(
        self, labels: Float[Array, "row set"], temperature: float | Float[Array, ""]
    ) -> tuple[Float[Array, "test set"], Float[Array, "test set"], Float[Array, ""]]:
        """Mean and variance of f, and ln p(y), for sets of labels that are independent.

        m = k (K + 𝒯)⁻¹ y,  v = K(x, x) − k (K + 𝒯)⁻¹ kᵀ,  ln p(y) = −½ Σ (E + n ln 2π)
        """
        whitening = NoisyKernel.factorise(self.train, temperature).whitening
        mean, variance = regress(whitening, self.cross, self.prior, labels)
        energy = energy_of_kernel(self.train, labels, temperature)
        evidence = -0.5 * (energy + labels.size * jnp.log(2.0 * jnp.pi))
        return mean, jnp.repeat(variance[:, None], labels.shape[1], axis=1), evidence


def kernels_at(problem: NonlinearProblem, test: TokenExamples) -> Kernels:
    """K of training and test examples at infinite width.

    Raises TemperatureTooSmall where rounding of K decides whether K + 𝒯 1 has a factor.
    """
    train, _ = kernel_of_pairs(problem.train, None, **problem.network)
    lowest = lowest_temperature(float(jnp.trace(train)))
    if not problem.temperature >= lowest:
        raise TemperatureTooSmall(problem.temperature, lowest)
    cross, prior = kernel_of_pairs(test, problem.train, **problem.network)
    return Kernels(train, cross, prior)
