"""The exact distribution of the order parameters at any finite width, in Bartlett coordinates.

    U_a           ~ Wishart_O(N_a, σ_a² 1/N_a)
    U_l | U_{l+1} ~ Wishart_{p_l}(N_l, σ_l² (1_{H_l} ⊗ U_{l+1})/N_l),   l = L … 1

Each weight array that is integrated out adds one link; every step is Gaussian, nothing is
approximated. In Bartlett form, with r_l = min(N_l, H_l r_{l+1}) and U_l = F_l F_lᵀ,

    F_{L+1} = σ_a B_{L+1}/√N_a,    F_l = σ_l (1_{H_l} ⊗ F_{l+1}) B_l/√N_l,

B_l lower trapezoidal [H_l r_{l+1}, r_l]: diagonal χ_i ~ χ_{N_l − i}, entries below it 𝒩(0, 1). A
layer narrower than its order parameter (singular Wishart) needs no other formula. The coordinates
of B_l are its standardised diagonal τ, ln χ_i = ½ ln ν + τ_i/√(2ν), ν = N_l − i, and the entries
below it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.special import gammaln
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Int, PRNGKeyArray

from theory.architecture import Architecture, BartlettShape
from theory.overlaps import ChainCoordinates, ChainLink, places, split_heads


def degrees_of_freedom(architecture: Architecture) -> tuple[Int[np.ndarray, " _rank"], ...]:
    """Degrees of freedom N_l − i of the χ variables on the diagonals of B_1 … B_{L+1}."""
    links = zip(architecture.widths, architecture.bartlett_shapes, strict=True)
    return tuple(width - np.arange(shape.rank) for width, shape in links)


def log_chi_density(
    standardised: Float[Array | np.ndarray, "..."],
    degrees: Float[Array | np.ndarray, "..."],
) -> Float[Array | np.ndarray, "..."]:
    """Log density ln p(τ) of ln χ = ½ ln ν + τ/√(2ν), χ ~ χ_ν, JAX or NumPy.

    ν ln χ − χ²/2 + const = −(ν/2)(e^u − 1 − u) + const, u = τ √(2/ν); the second form does not
    cancel at large ν.
    """
    numbers, half = degrees.__array_namespace__(), degrees / 2.0
    log_gamma = gammaln if numbers is jnp else scipy.special.gammaln
    u = standardised / numbers.sqrt(half)
    constant = half * numbers.log(half) - half - log_gamma(half) - 0.5 * numbers.log(half)
    return constant - half * (numbers.expm1(u) - u)


def draw_log_chi(
    degrees: Float[Array | np.ndarray, "..."],
    shape: tuple[int, ...],
    random: PRNGKeyArray | np.random.Generator,
) -> Float[Array | np.ndarray, "..."]:
    """Draws τ = √(ν/2) ln(χ²/ν) of that distribution: of JAX by a key, of NumPy by a generator.

    The generator of JAX takes seconds to be compiled.
    """
    numbers = degrees.__array_namespace__()
    if not isinstance(random, np.random.Generator):
        squares = 2.0 * jax.random.gamma(random, degrees / 2.0, shape, degrees.dtype)
    else:
        squares = random.chisquare(degrees, shape).astype(degrees.dtype)
    return numbers.sqrt(degrees / 2.0) * numbers.log(squares / degrees)


def link_scales(architecture: Architecture) -> tuple[float, ...]:
    """Scales σ_l/√N_l of every link, l = 1 … L + 1."""
    links = zip(architecture.order_parameter_variances, architecture.widths, strict=True)
    return tuple(variance**0.5 / width**0.5 for variance, width in links)


@register_dataclass
@dataclass(frozen=True)
class WishartChain:
    """The numbers in the distribution of U_1 … U_a, as arguments of compiled functions.

    Networks that differ in widths and variances, but not in the shapes of B_1 … B_{L+1}, share all
    compiled functions.

    degrees    N_l − i on the diagonal of B_1 … B_{L+1}
    scales     σ_l/√N_l of every link
    variances  σ_0², σ_1² … σ_L², σ_a²
    heads      H_1 … H_L
    shapes     of B_1 … B_{L+1}
    """

    degrees: tuple[Float[Array | np.ndarray, " _rank"], ...]
    scales: tuple[Float[Array | np.ndarray, ""], ...]
    variances: Float[Array | np.ndarray, " layer"]
    heads: tuple[int, ...] = field(metadata={"static": True})
    shapes: tuple[BartlettShape, ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, architecture: Architecture, dtype=float) -> "WishartChain":
        """Return the distribution of a network, in a floating-point precision."""

        def convert(numbers) -> Array:
            """By NumPy, which compiles nothing."""
            return jnp.asarray(np.asarray(numbers, dtype))

        return cls(
            tuple(convert(degrees) for degrees in degrees_of_freedom(architecture)),
            tuple(convert(scale) for scale in link_scales(architecture)),
            convert(architecture.variances),
            architecture.heads,
            architecture.bartlett_shapes,
        )


def bartlett_matrix(
    standardised: Float[Array | np.ndarray, "*draw rank"],
    lower: Float[Array | np.ndarray, "*draw entry"],
    rows: int,
    degrees: Float[Array | np.ndarray, " rank"],
) -> Float[Array | np.ndarray, "*draw row rank"]:
    """The lower trapezoidal B_l from its standardised diagonal τ and its entries below.

    JAX or NumPy; χ_i = √ν exp(τ_i/√(2ν)), ν = N_l − i (`degrees`)
    """
    *draws, rank = standardised.shape
    numbers, where = standardised.__array_namespace__(), (..., *places(rows, rank))
    chi = numbers.sqrt(degrees) * numbers.exp(standardised / numbers.sqrt(2.0 * degrees))
    values = numbers.concatenate([chi, lower], axis=-1)
    matrix = numbers.zeros((*draws, rows, rank), values.dtype)
    if numbers is jnp:
        return matrix.at[where].set(values, unique_indices=True)
    matrix[where] = values
    return matrix


def chain_factors(
    matrices: Sequence[Float[Array | np.ndarray, "*draw _rows _rank"]],
    heads: Sequence[int],
    scales: Sequence[float | Float[Array | np.ndarray, ""]],
) -> tuple[Float[Array | np.ndarray, "*draw _size _rank"], ...]:
    """Factors F_1 … F_{L+1} [p_l, r_l] from the Bartlett matrices B_1 … B_{L+1}, JAX or NumPy.

    heads H_1 … H_L, scales σ_l/√N_l of every link.
    """
    *layers, readout = matrices
    numbers, factors = readout.__array_namespace__(), [readout * scales[-1]]
    for bartlett, count, scale in zip(layers[::-1], heads[::-1], scales[-2::-1], strict=True):
        by_head = split_heads(bartlett, count)
        factor = scale * numbers.einsum("...pr,...hrk->...hpk", factors[0], by_head)
        factors.insert(0, factor.reshape(*factor.shape[:-3], -1, factor.shape[-1]))
    return tuple(factors)


@dataclass(frozen=True)
class BartlettCoordinates(ChainCoordinates):
    """Flat coordinates θ of all B_l, layer by layer: standardised diagonal, then entries below.

    Everything about θ that does not depend on data.
    """

    @cached_property
    def links(self) -> tuple[ChainLink, ...]:
        """Links σ_l B_l/√N_l, whose diagonal entries are those of χ at τ."""
        parts = zip(
            self.architecture.bartlett_shapes,
            degrees_of_freedom(self.architecture),
            link_scales(self.architecture),
            strict=True,
        )
        return tuple(
            ChainLink(shape, scale * np.sqrt(degrees), 1.0 / np.sqrt(2.0 * degrees), scale)
            for shape, degrees, scale in parts
        )

    @cached_property
    def degrees(self) -> Float[np.ndarray, " coordinate"]:
        """Degrees of freedom N_l − i of each standardised χ, 0 for each normal entry."""
        links = zip(degrees_of_freedom(self.architecture), self.links, strict=True)
        parts = [part for nu, link in links for part in (nu, np.zeros(link.shape.below_diagonal))]
        return np.concatenate(parts).astype(float)

    def prior_derivatives(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> Float[np.ndarray, "order coordinate"]:
        """The prior −ln p(θ) of each coordinate, and its first four derivatives.

        χ: (ν/2)(e^u − 1 − u) + const, u = τ √(2/ν);  entries below: θ²/2 + const.
        """
        x, chi = np.asarray(point, float), self.degrees > 0
        derivatives = np.stack([0.5 * x**2, x, np.ones_like(x), 0.0 * x, 0.0 * x])
        derivatives[0] += 0.5 * math.log(2.0 * math.pi)
        nu = self.degrees[chi]
        root = np.sqrt(nu / 2.0)
        u = x[chi] / root
        with np.errstate(over="ignore"):
            value, power = -log_chi_density(x[chi], nu), np.exp(u)
            derivatives[:, chi] = np.stack(
                [value, root * np.expm1(u), power, power / root, 2.0 * power / nu]
            )
        return derivatives
