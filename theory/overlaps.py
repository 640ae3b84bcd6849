"""Order parameters U_1 … U_L, U_a, and coordinates in which any point is a set of them.

Each U_l = F_l F_lᵀ is written relative to the one above it,

    F_{L+1} = B̂_{L+1},    F_l = (1_{H_l} ⊗ F_{l+1}) B̂_l,

B̂_l lower triangular, or trapezoidal where U_l is singular. Coordinates θ of B̂_l are its diagonal,
through (B̂_l)_ii = amplitude · e^{rate θ_i}, then the entries below it, (B̂_l)_ij = scale · θ_ij.
In them the prior of the exact posterior (`theory.wishart_chain`) and the entropy of the action
(`theory.action_functional`) are sums over coordinates.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from theory.architecture import Architecture, BartlettShape


@register_dataclass
@dataclass(frozen=True)
class OrderParameters:
    """The overlaps of all layers, as factors: U_l = F_l F_lᵀ for l = 1 … L+1, U_{L+1} = U_a.

    `factors[l - 1]` is [p_l, r_l]; the Cholesky factor of U_l wherever U_l is regular. Indices of
    U_l are (h_l … h_L, output), h_l slowest, output fastest.
    """

    factors: tuple[Float[Array | np.ndarray, "_rows _rank"], ...]

    @property
    def matrices(self) -> tuple[Float[np.ndarray, "_rows _rows"], ...]:
        """U_1 … U_L, U_a, as NumPy's."""
        return tuple(factor @ factor.T for factor in map(np.asarray, self.factors))

    @classmethod
    def gp_limit(cls, architecture: Architecture) -> "OrderParameters":
        """Order parameters at infinite width, U_l = σ_a² σ_L² ··· σ_l² · 1 (arXiv 2405.15926)."""
        deviations = np.sqrt(np.cumprod(architecture.order_parameter_variances[::-1])[::-1])
        pairs = zip(deviations, architecture.order_parameter_sizes, strict=True)
        return cls(tuple(jnp.asarray(deviation * np.eye(size)) for deviation, size in pairs))


def log_determinant(factor: Float[Array | np.ndarray, "n n"]):
    """Logarithm of the determinant, ln det(F Fᵀ), of a Cholesky factor in JAX or NumPy."""
    numbers = factor.__array_namespace__()
    return 2.0 * numbers.sum(numbers.log(numbers.diagonal(factor)))


@lru_cache(32)
def places(rows: int, rank: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of a lower triangular (or trapezoidal) factor that each coordinate moves.

    The diagonal comes first, then the entries below it.
    """
    rank = rows if rank is None else rank
    below = np.tril_indices(rows, -1, rank)
    return tuple(np.concatenate([np.arange(rank), index]) for index in below)


def split_heads(
    matrices: Float[Array | np.ndarray, "*draw _rows _rank"], heads: int
) -> Float[Array | np.ndarray, "*draw head _row _rank"]:
    """Rows of matrices B̂_l, or of factors, by head."""
    *draws, rows, rank = matrices.shape
    return matrices.reshape(*draws, heads, rows // heads, rank)


@dataclass(frozen=True)
class ChainLink:
    """How coordinates make one B̂_l: amplitude · e^{rate θ} on its diagonal, scale · θ below it.

    amplitude, rate  of every entry of the diagonal
    scale            of every entry below it
    """

    shape: BartlettShape
    amplitude: Float[np.ndarray, " rank"]
    rate: Float[np.ndarray, " rank"]
    scale: float

    def series(
        self,
        point: Float[np.ndarray, " coordinate"],
        directions: Float[np.ndarray, "direction coordinate"],
        order: int,
    ) -> list[Float[np.ndarray, "_line _row _rank"]]:
        """Coefficients of ε^k along θ + ε v: B̂_ii (rate v_i)^k/k!, one line for other entries."""
        rows, rank = self.shape.rows, self.shape.rank
        diagonal = (self.amplitude * np.exp(self.rate * point[:rank]))[None]
        below, coefficients = self.scale * point[None, rank:], []
        for power in range(order + 1):
            matrix = np.zeros((len(diagonal), rows, rank))
            matrix[:, *places(rows, rank)] = np.concatenate([diagonal, below], axis=1)
            coefficients.append(matrix)
            diagonal = diagonal * self.rate * directions[:, :rank] / (power + 1)
            below = (self.scale if power == 0 else 0.0) * directions[:, rank:]
        return coefficients


@dataclass(frozen=True)
class ChainCoordinates(ABC):
    """Flat coordinates θ of all B̂_l, layer by layer, and a function of each of them by itself."""

    architecture: Architecture

    @property
    @abstractmethod
    def links(self) -> tuple[ChainLink, ...]:
        """Links 1 … L + 1."""

    @abstractmethod
    def prior_derivatives(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> Float[np.ndarray, "order coordinate"]:
        """The contribution of each coordinate without data, and its derivatives."""

    @cached_property
    def layers(self) -> tuple[slice, ...]:
        """Which coordinates belong to B̂_1 … B̂_{L+1}."""
        ends = np.cumsum([link.shape.size for link in self.links]).tolist()
        return tuple(slice(*pair) for pair in itertools.pairwise([0, *ends]))

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.layers[-1].stop

    def factors(
        self, point: Float[np.ndarray, " coordinate"]
    ) -> tuple[Float[np.ndarray, "_rows _rank"], ...]:
        """Factors F_1 … F_{L+1} at θ."""
        return tuple(factor[0] for (factor,) in self.series(point, point[None], 0).factors)

    def point_of(
        self, factors: Sequence[Float[Array | np.ndarray, "_ _"]]
    ) -> Float[np.ndarray, " coordinate"]:
        """Coordinates of given Cholesky factors F_1 … F_{L+1}.

        Raises ValueError for factors of other shapes, and where a layer is narrower than its order
        parameter.
        """
        sizes = self.architecture.order_parameter_sizes
        if any(link.shape.rank < size for link, size in zip(self.links, sizes, strict=True)):
            raise ValueError("factors of a narrow layer have no Bartlett coordinates")
        shapes, needed = (
            tuple(factor.shape for factor in factors),
            tuple((size, size) for size in sizes),
        )
        if shapes != needed:
            raise ValueError(f"factors have shapes {shapes}: this architecture needs {needed}")
        pieces, heads = [], self.architecture.heads
        for layer, (factor, link) in enumerate(zip(factors, self.links, strict=True)):
            matrix = np.asarray(factor, float)
            if layer < len(heads):
                above = np.asarray(factors[layer + 1], float)
                by_head = split_heads(matrix, heads[layer])
                matrix = np.linalg.solve(above, by_head).reshape(matrix.shape)
            pieces.append(np.log(np.diagonal(matrix) / link.amplitude) / link.rate)
            pieces.append(matrix[np.tril_indices(len(matrix), -1)] / link.scale)
        return np.concatenate(pieces)

    def series(
        self,
        point: Float[np.ndarray, " coordinate"],
        directions: Float[np.ndarray, "direction coordinate"],
        order: int,
    ) -> "FactorSeries":
        """Expand F_1 … F_{L+1} along the lines θ + ε v, v a row of `directions`, up to ε^order."""
        parts = zip(self.links, self.layers, strict=True)
        links = [link.series(point[part], directions[:, part], order) for link, part in parts]
        factors = [links[-1]]
        for link, count in zip(links[-2::-1], self.architecture.heads[::-1], strict=True):
            above = [factor[:, None] for factor in factors[0]]
            products = multiply_series(above, [split_heads(matrix, count) for matrix in link])
            rows, rank = count * above[0].shape[2], link[0].shape[2]
            factors.insert(0, [product.reshape(-1, rows, rank) for product in products])
        return FactorSeries(self, links, factors)


def multiply_series(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Coefficients of the matrix product of two power series, as many as both have."""
    count = min(len(left), len(right))
    return [sum(left[i] @ right[power - i] for i in range(power + 1)) for power in range(count)]


@dataclass(frozen=True)
class FactorSeries:
    """Coefficients of ε^k, k = 0 …, of F_l along several lines; k = 0 has one line only.

    links    of B̂_l, l = 1 … L + 1: [link][k] → [line, row, rank]
    factors  of F_1 … F_{L+1}
    """

    coordinates: ChainCoordinates
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
        """Gradient at θ of Σ_k ⟨weights_k, coefficient k of F_1⟩, for every line by itself.

        Coefficients from the last to the first make each step back a product of series as well.
        """
        coordinates, pieces = self.coordinates, []
        heads, weights = coordinates.architecture.heads, weights[::-1]
        for layer, (link, matrices) in enumerate(zip(coordinates.links, self.links, strict=True)):
            shape, on_link = link.shape, weights
            if layer < len(heads):
                by_head = [split_heads(weight, heads[layer]) for weight in weights]
                above = [factor.swapaxes(1, 2)[:, None] for factor in self.factors[layer + 1]]
                on_link = multiply_series(above, by_head)
                on_link = [each.reshape(len(each), shape.rows, shape.rank) for each in on_link]
                turned = [split_heads(matrix, heads[layer]).swapaxes(2, 3) for matrix in matrices]
                weights = [each.sum(axis=1) for each in multiply_series(by_head, turned)]
            # Coefficients on the diagonal grow as e^{r x}; of other entries only the first moves.
            diagonal = np.arange(shape.rank)
            moved = sum(
                weight[:, diagonal, diagonal] * matrix[:, diagonal, diagonal]
                for weight, matrix in zip(on_link[::-1], matrices, strict=False)
            )
            below = on_link[-1][:, *places(shape.rows, shape.rank)][:, shape.rank :]
            pieces += [moved * link.rate, link.scale * below]
        lines = max(map(len, pieces))
        spread = [np.broadcast_to(piece, (lines, piece.shape[1])) for piece in pieces]
        return np.concatenate(spread, axis=1)
