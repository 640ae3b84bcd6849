"""The exact law of the order parameters at any finite width, in Bartlett coordinates.

    U_a           ~ Wishart_O(N_a, σ_a² 1/N_a)
    U_l | U_{l+1} ~ Wishart_{p_l}(N_l, σ_l² (1_{H_l} ⊗ U_{l+1})/N_l),   l = L … 1

Each weight array that is integrated out adds one link; every step is Gaussian, nothing is
approximated. In Bartlett form, with r_l = min(N_l, H_l r_{l+1}) and U_l = F_l F_lᵀ,

    F_{L+1} = σ_a B_{L+1}/√N_a,    F_l = σ_l (1_{H_l} ⊗ F_{l+1}) B_l/√N_l,

B_l lower trapezoidal [H_l r_{l+1}, r_l]: diagonal c_i ~ χ_{N_l − i}, entries below it N(0, 1). A
layer narrower than its order parameter (singular Wishart) needs no other formula. The coordinates
of B_l are its standardised diagonal t, ln c_i = ½ ln ν + t_i/√(2ν), ν = N_l − i, and the entries
below it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.special import gammaln
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Int, Num

from theory.architecture import Architecture, BartlettShape
from theory.order_parameters import places


def degrees_of_freedom(architecture: Architecture) -> tuple[Int[np.ndarray, " _rank"], ...]:
    """Degrees of freedom N_l − i of the χ variables on the diagonals of B_1 … B_{L+1}."""
    links = zip(architecture.widths, architecture.bartlett_shapes, strict=True)
    return tuple(width - np.arange(shape.rank) for width, shape in links)


def log_chi_density(
    standardised: Float[Array | np.ndarray, "..."],
    degrees: Float[Array | np.ndarray, "..."],
) -> Float[Array | np.ndarray, "..."]:
    """Log density ln p(t) of ln c = ½ ln ν + t/√(2ν), c ~ χ_ν, JAX or NumPy.

    ν ln c − c²/2 + const = −(ν/2)(e^u − 1 − u) + const, u = t √(2/ν); the second form does not
    cancel at large ν.
    """
    numbers, half = degrees.__array_namespace__(), degrees / 2.0
    log_gamma = gammaln if numbers is jnp else scipy.special.gammaln
    u = standardised / numbers.sqrt(half)
    constant = half * numbers.log(half) - half - log_gamma(half) - 0.5 * numbers.log(half)
    return constant - half * (numbers.expm1(u) - u)


def standardised_log(
    squares: Float[Array | np.ndarray, "..."],
    degrees: Num[Array | np.ndarray, "..."],
) -> Float[Array | np.ndarray, "..."]:
    """Coordinate t = √(ν/2) ln(c²/ν) of c² ~ χ²_ν, JAX or NumPy."""
    numbers = squares.__array_namespace__()
    return numbers.sqrt(degrees / 2.0) * numbers.log(squares / degrees)


def link_scales(architecture: Architecture) -> tuple[float, ...]:
    """Scales σ_l/√N_l of every link, l = 1 … L + 1."""
    links = zip(architecture.order_parameter_variances, architecture.widths, strict=True)
    return tuple(variance**0.5 / width**0.5 for variance, width in links)


@register_dataclass
@dataclass(frozen=True)
class WishartChain:
    """The numbers in the law of U_1 … U_a, as arguments of compiled functions.

    Networks that differ in widths and variances, but not in the shapes of B_1 … B_{L+1}, share all
    compiled functions.

    degrees    N_l − i on the diagonal of B_1 … B_{L+1}
    scales     σ_l/√N_l of every link
    variances  σ_0², σ_1² … σ_L², σ_a²
    heads      H_1 … H_L
    shapes     of B_1 … B_{L+1}
    """

    degrees: tuple[Float[Array, " _rank"], ...]
    scales: tuple[Float[Array, ""], ...]
    variances: Float[Array, " layer"]
    heads: tuple[int, ...] = field(metadata={"static": True})
    shapes: tuple[BartlettShape, ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, architecture: Architecture, dtype=float) -> "WishartChain":
        """Return the law of a network, in a floating-point precision."""

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
    standardised: Float[Array, " rank"],
    lower: Float[Array, " entry"],
    rows: int,
    degrees: Float[Array, " rank"],
) -> Float[Array, "row rank"]:
    """The lower trapezoidal B_l from its standardised diagonal t and its entries below.

    c_i = √ν exp(t_i/√(2ν)), ν = N_l − i (`degrees`)
    """
    rank = len(standardised)
    chi = jnp.sqrt(degrees) * jnp.exp(standardised / jnp.sqrt(2.0 * degrees))
    values = jnp.concatenate([chi, lower])
    empty = jnp.zeros((rows, rank), values.dtype)
    return empty.at[places(rows, rank)].set(values, unique_indices=True)


def chain_factors(
    matrices: Sequence[Float[Array | np.ndarray, "*draw _rows _rank"]],
    heads: Sequence[int],
    scales: Sequence[float | Float[Array, ""]],
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


def split_heads(
    matrices: Float[Array | np.ndarray, "*draw _rows _rank"], heads: int
) -> Float[Array | np.ndarray, "*draw head _row _rank"]:
    """Rows of Bartlett matrices, or of factors, by head."""
    *draws, rows, rank = matrices.shape
    return matrices.reshape(*draws, heads, rows // heads, rank)


@dataclass(frozen=True)
class BartlettCoordinates:
    """Flat coordinates x of all B_l, layer by layer: standardised diagonal, then entries below.

    Everything about x that does not depend on data.
    """

    architecture: Architecture

    @cached_property
    def shapes(self) -> tuple[BartlettShape, ...]:
        """Shapes of B_1 … B_{L+1}."""
        return self.architecture.bartlett_shapes

    @cached_property
    def degrees_by_link(self) -> tuple[Int[np.ndarray, " _rank"], ...]:
        """Degrees of freedom on the diagonals of B_1 … B_{L+1}."""
        return degrees_of_freedom(self.architecture)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.architecture.bartlett_coordinate_count

    @cached_property
    def degrees(self) -> Float[np.ndarray, " coordinate"]:
        """Degrees of freedom N_l − i of each standardised χ, 0 for each normal entry."""
        links = zip(self.degrees_by_link, self.shapes, strict=True)
        parts = [part for nu, shape in links for part in (nu, np.zeros(shape.below_diagonal))]
        return np.concatenate(parts).astype(float)

    @cached_property
    def layers(self) -> tuple[slice, ...]:
        """Which coordinates belong to B_1 … B_{L+1}."""
        ends = np.cumsum([shape.size for shape in self.shapes]).tolist()
        return tuple(slice(*pair) for pair in itertools.pairwise([0, *ends]))

    def factors(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> tuple[Float[np.ndarray, "_rows _rank"], ...]:
        """Factors F_1 … F_{L+1} at x."""
        return tuple(factor[0] for (factor,) in self.series(point, point[None], 0).factors)

    def point_of(
        self, factors: Sequence[Float[Array | np.ndarray, "_ _"]]
    ) -> Float[np.ndarray, " coordinate"]:
        """Coordinates of given Cholesky factors F_1 … F_{L+1}, where no layer is narrow.

        Raises ValueError where a layer is narrower than its order parameter.
        """
        if not self.architecture.is_regular:
            raise ValueError("factors of a narrow layer have no Bartlett coordinates")
        scales, pieces = link_scales(self.architecture), []
        for link, (factor, nu) in enumerate(zip(factors, self.degrees_by_link, strict=True)):
            matrix = np.asarray(factor, float) / scales[link]
            if link < self.architecture.layers:
                above = np.asarray(factors[link + 1], float)
                by_head = split_heads(matrix, self.architecture.heads[link])
                matrix = np.linalg.solve(above, by_head).reshape(matrix.shape)
            # Of c itself: its square would overflow.
            logs = np.log(np.diagonal(matrix)) - 0.5 * np.log(nu)
            pieces.append(np.sqrt(2.0 * nu) * logs)
            pieces.append(matrix[np.tril_indices(len(matrix), -1)])
        return np.concatenate(pieces)

    def prior_derivatives(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> Float[np.ndarray, "order coordinate"]:
        """The prior π(x) = −ln p(x) of each coordinate, and its first four derivatives.

        χ: π = (ν/2)(e^u − 1 − u) + const, u = t √(2/ν);  entries below: π = x²/2 + const.
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

    def series(
        self,
        point: Float[np.ndarray, " coordinate"],
        directions: Float[np.ndarray, "direction coordinate"],
        order: int,
    ) -> "FactorSeries":
        """Expand F_1 … F_{L+1} along the lines x + ε v, v a row of `directions`, up to ε^order."""
        scales, heads = link_scales(self.architecture), self.architecture.heads
        parts = zip(self.shapes, self.degrees_by_link, scales, self.layers, strict=True)
        links = [
            _bartlett_series(shape, degrees, scale, point[layer], directions[:, layer], order)
            for shape, degrees, scale, layer in parts
        ]
        factors = [links[-1]]
        for link, count in zip(links[-2::-1], heads[::-1], strict=True):
            above = [factor[:, None] for factor in factors[0]]
            products = multiply_series(above, [split_heads(matrix, count) for matrix in link])
            rows, rank = count * above[0].shape[2], link[0].shape[2]
            factors.insert(0, [product.reshape(-1, rows, rank) for product in products])
        return FactorSeries(self, links, factors)


def _bartlett_series(
    shape: BartlettShape,
    degrees: np.ndarray,
    scale: float,
    point: np.ndarray,
    directions: np.ndarray,
    order: int,
) -> list[Float[np.ndarray, "_line _row _rank"]]:
    """Coefficients of ε^k of one scaled B_l: c_i (v_i/√(2ν))^k/k!, and a line for other entries."""
    rank, rates = shape.rank, 1.0 / np.sqrt(2.0 * degrees)
    chi = scale * np.sqrt(degrees) * np.exp(rates * point[:rank])
    diagonal, below = chi[None], scale * point[None, rank:]
    coefficients = []
    for power in range(order + 1):
        matrix = np.zeros((len(diagonal), shape.rows, rank))
        matrix[:, *places(shape.rows, rank)] = np.concatenate([diagonal, below], axis=1)
        coefficients.append(matrix)
        diagonal = diagonal * rates * directions[:, :rank] / (power + 1)
        below = (scale if power == 0 else 0.0) * directions[:, rank:]
    return coefficients


def multiply_series(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Coefficients of the matrix product of two power series, as many as both have."""
    count = min(len(left), len(right))
    return [sum(left[i] @ right[power - i] for i in range(power + 1)) for power in range(count)]


@dataclass(frozen=True)
class FactorSeries:
    """Coefficients of ε^k, k = 0 …, of F_l along several lines; k = 0 has one line only.

    links    of σ_l B_l/√N_l, l = 1 … L + 1: [link][k] → [line, row, rank]
    factors  of F_1 … F_{L+1}
    """

    coordinates: BartlettCoordinates
    links: list[list[Float[np.ndarray, "_line _row _rank"]]]
    factors: list[list[Float[np.ndarray, "_line _row _rank"]]]

    def overlap(self, link: int, power: int) -> Float[np.ndarray, "_line _row _row"]:
        """Derivative ∂^k U_l/∂ε^k of one link, counted from 0, along every line."""
        factor = self.factors[link][: power + 1]
        terms = (
            left @ right.swapaxes(1, 2) for left, right in zip(factor, factor[::-1], strict=True)
        )
        return math.factorial(power) * sum(terms)

    def pull_back(
        self, weights: list[Float[np.ndarray, "_line _row _rank"]]
    ) -> Float[np.ndarray, "line coordinate"]:
        """Gradient at x of Σ_k ⟨weights_k, coefficient k of F_1⟩, for every line by itself.

        Coefficients from the last to the first make each step back a product of series as well.
        """
        coordinates, pieces = self.coordinates, []
        scales, heads = link_scales(coordinates.architecture), coordinates.architecture.heads
        weights, degrees = weights[::-1], coordinates.degrees_by_link
        for layer, (shape, link) in enumerate(zip(coordinates.shapes, self.links, strict=True)):
            on_link = weights
            if layer < len(heads):
                by_head = [split_heads(weight, heads[layer]) for weight in weights]
                above = [factor.swapaxes(1, 2)[:, None] for factor in self.factors[layer + 1]]
                on_link = multiply_series(above, by_head)
                on_link = [each.reshape(len(each), shape.rows, shape.rank) for each in on_link]
                matrices = [split_heads(matrix, heads[layer]).swapaxes(2, 3) for matrix in link]
                weights = [each.sum(axis=1) for each in multiply_series(by_head, matrices)]
            # Coefficients of a χ grow as exp(x/√(2ν)); of other entries only the first moves.
            diagonal = np.arange(shape.rank)
            chi = sum(
                weight[:, diagonal, diagonal] * matrix[:, diagonal, diagonal]
                for weight, matrix in zip(on_link[::-1], link, strict=False)
            )
            below = on_link[-1][:, *places(shape.rows, shape.rank)][:, shape.rank :]
            pieces += [chi / np.sqrt(2.0 * degrees[layer]), scales[layer] * below]
        lines = max(map(len, pieces))
        spread = [np.broadcast_to(piece, (lines, piece.shape[1])) for piece in pieces]
        return np.concatenate(spread, axis=1)
