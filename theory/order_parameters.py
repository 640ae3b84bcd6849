"""Order parameters U_1 … U_L, U_a, and their log-Cholesky coordinates.

The coordinates of U_l = F_l F_lᵀ are the logarithms of the diagonal of its Cholesky factor F_l and
the entries below it: U_l is positive definite at any values. Derivatives in them are taken by JAX,
or by `overlap_jacobian` and `overlap_curvature` where the action is differentiated in NumPy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from theory.architecture import Architecture


@register_dataclass
@dataclass(frozen=True)
class OrderParameters:
    """The overlaps of all layers, as factors: U_l = F_l F_lᵀ for l = 1 … L+1, U_{L+1} = U_a.

    `factors[l - 1]` is [p_l, r_l]; the Cholesky factor of U_l wherever U_l is regular. Indices of
    U_l are (h_l … h_L, output), h_l slowest, output fastest.
    """

    factors: tuple[Float[Array | np.ndarray, "_rows _rank"], ...]

    @property
    @jax.jit
    def matrices(self) -> tuple[Float[Array, "_rows _rows"], ...]:
        """U_1 … U_L, U_a."""
        return tuple(factor @ factor.T for factor in self.factors)

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


def to_log_cholesky(order_parameters: OrderParameters) -> Float[np.ndarray, " coordinate"]:
    """Log-Cholesky coordinates: log diagonals, then entries below the diagonal, layer by layer."""
    pieces = []
    for factor in map(np.asarray, order_parameters.factors):
        diagonal, below = np.split(factor[places(len(factor))], [len(factor)])
        pieces += [np.log(diagonal), below]
    return np.concatenate(pieces)


def from_log_cholesky(
    coordinates: Float[Array | np.ndarray, " coordinate"], sizes: Sequence[int]
) -> OrderParameters:
    """Order parameters of sizes p_1 … p_{L+1} in log-Cholesky coordinates; any vector is valid."""
    return OrderParameters(tuple(map(jnp.asarray, cholesky_factors(coordinates, sizes))))


def cholesky_factors(
    coordinates: Float[Array | np.ndarray, " coordinate"], sizes: Sequence[int]
) -> list[Float[Array | np.ndarray, "_row _row"]]:
    """F_1 … F_{L+1} [p_l, p_l] as JAX or NumPy arrays, whichever the coordinates are."""
    numbers, factors, start = coordinates.__array_namespace__(), [], 0
    for size in sizes:
        end = start + size * (size + 1) // 2
        diagonal, below = coordinates[start : start + size], coordinates[start + size : end]
        entries = numbers.concatenate([numbers.exp(diagonal), below])
        factor = numbers.zeros((size, size), entries.dtype)
        if numbers is np:
            factor[places(size)] = entries
        else:  # set at fixed places, which differentiates into slices, not into gathers
            factor = factor.at[places(size)].set(entries)
        factors.append(factor)
        start = end
    return factors


def overlap_jacobian(
    factor: Float[np.ndarray, "row row"],
) -> Float[np.ndarray, "coordinate row row"]:
    """∂U/∂x_k of one U = F Fᵀ: for the coordinate of F_ij, ∂F_ij/∂x (e_i f_jᵀ + f_j e_iᵀ).

    f_j is column j of F, and ∂F_ij/∂x is F_ii on the diagonal, 1 below it.
    """
    rows, columns = places(len(factor))
    slopes = np.where(rows == columns, np.diagonal(factor)[rows], 1.0)
    jacobian = np.zeros((len(rows), *factor.shape))
    jacobian[np.arange(len(rows)), rows] = slopes[:, None] * factor[:, columns].T
    return jacobian + jacobian.swapaxes(1, 2)


def overlap_curvature(
    factor: Float[np.ndarray, "row row"], gradient: Float[np.ndarray, "row row"]
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Σ_ab G_ab ∂²U_ab/∂x_k ∂x_k' of one U = F Fᵀ for a symmetric G.

    2 ∂F_ij/∂x ∂F_i'j/∂x' G_ii' for entries of one column j, and 2 F_ii (G F)_ii of an exponential's
    second derivative on the diagonal.
    """
    rows, columns = places(len(factor))
    slopes = np.where(rows == columns, np.diagonal(factor)[rows], 1.0)
    same_column = columns[:, None] == columns[None, :]
    curvature = 2.0 * np.outer(slopes, slopes) * gradient[np.ix_(rows, rows)] * same_column
    diagonal = np.arange(len(factor))
    curvature[diagonal, diagonal] += 2.0 * np.diagonal(factor) * np.diagonal(gradient @ factor)
    return curvature


def coordinate_scales(
    coordinates: Float[np.ndarray, " coordinate"], sizes: Sequence[int]
) -> Float[np.ndarray, " coordinate"]:
    """Scales of coordinates: 1 for a logarithm, √(U_l)_ii for entries of row i of F_l below it.

    The natural unit of each log-Cholesky coordinate, whatever the scale of the labels.
    """
    pieces = []
    for factor in cholesky_factors(coordinates, sizes):
        below = np.tril_indices(len(factor), -1)[0]
        pieces += [np.ones(len(factor)), np.linalg.norm(factor, axis=1)[below]]
    return np.concatenate(pieces)


def log_invariant_volume(order_parameters: OrderParameters) -> float:
    """ln of the measure Π_l (det U_l)^{−(p_l + 1)/2} dU_l in log-Cholesky coordinates.

    Σ_l [ p_l ln 2 − Σ_i i ln (F_l)_ii ],   i counted from 0
    """
    volume = 0.0
    for factor in map(np.asarray, order_parameters.factors):
        size = len(factor)
        volume += size * math.log(2.0) - np.arange(size) @ np.log(np.diagonal(factor))
    return float(volume)
