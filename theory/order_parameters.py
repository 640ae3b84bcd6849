"""Order parameters U_1 … U_L, U_a, and their log-Cholesky coordinates.

The coordinates of U_l = F_l F_lᵀ are the logarithms of the diagonal of its Cholesky factor F_l and
the entries below it: U_l is positive definite at any values. Derivatives in them are taken by JAX,
or by `overlap_jacobian` and `overlap_curvature` where the action is differentiated in NumPy.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from theory.architecture import Architecture


@partial(jax.tree_util.register_dataclass, data_fields=["factors"], meta_fields=[])
@dataclass(frozen=True)
class OrderParameters:
    """The overlaps of all layers, kept as factors: U_l = F_l F_lᵀ for l = 1 … L+1, U_{L+1} = U_a.

    `factors[l - 1]` is [p_l, r_l]; the Cholesky factor of U_l wherever U_l is regular. Indices of
    U_l are (h_l … h_L, output), h_l slowest, output fastest.
    """

    factors: tuple[Float[Array, "_rows _rank"], ...]

    @property
    def matrices(self) -> tuple[Float[Array, "_rows _rows"], ...]:
        """U_1 … U_L, U_a."""
        return _overlaps(self.factors)

    @classmethod
    def from_matrices(cls, matrices: Iterable[Num[Array | np.ndarray, "..."]]) -> "OrderParameters":
        """Order parameters from symmetric positive definite matrices U_1 … U_L, U_a.

        Raises ValueError when a matrix is not symmetric positive definite.
        """
        factors = []
        for layer, matrix in enumerate(matrices, start=1):
            matrix = np.asarray(matrix, dtype=float)
            square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
            if not square or not np.all(np.isfinite(matrix)):
                raise ValueError(
                    f"order parameter {layer}: must be a square matrix of finite numbers, "
                    f"got shape {matrix.shape}"
                )
            asymmetry, size = np.abs(matrix - matrix.T).max(), np.abs(matrix).max()
            if asymmetry > 1e-10 * size:
                raise ValueError(
                    f"order parameter {layer}: entries differ from their transpose by up to "
                    f"{asymmetry:.3g}; must be symmetric to 1e-10 of the largest entry"
                )
            try:
                factors.append(jnp.asarray(np.linalg.cholesky(matrix)))
            except np.linalg.LinAlgError as error:
                smallest = np.linalg.eigvalsh(matrix)[0]
                raise ValueError(
                    f"order parameter {layer}: smallest eigenvalue {smallest:.3g}; "
                    "must be positive definite"
                ) from error
        return cls(tuple(factors))

    @classmethod
    def gp_limit(cls, architecture: Architecture) -> "OrderParameters":
        """Order parameters at infinite width, U_l = σ_a² σ_L² ··· σ_l² · 1 (arXiv 2405.15926)."""
        deviations = np.sqrt(np.cumprod(architecture.order_parameter_variances[::-1])[::-1])
        pairs = zip(deviations, architecture.order_parameter_sizes, strict=True)
        return cls(tuple(jnp.asarray(deviation * np.eye(size)) for deviation, size in pairs))


_overlaps = jax.jit(lambda factors: tuple(factor @ factor.T for factor in factors))


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
        pieces.append(np.log(np.diagonal(factor)))
        pieces.append(factor[np.tril_indices(len(factor), -1)])
    return np.concatenate(pieces)


def from_log_cholesky(
    coordinates: Float[Array | np.ndarray, " coordinate"], sizes: tuple[int, ...]
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
    rows, columns, slopes = _entry_slopes(factor)
    jacobian = np.zeros((len(rows), *factor.shape))
    jacobian[np.arange(len(rows)), rows] = slopes[:, None] * factor[:, columns].T
    return jacobian + jacobian.swapaxes(1, 2)


def overlap_curvature(
    factor: Float[np.ndarray, "row row"], gradient: Float[np.ndarray, "row row"]
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Σ_ab G_ab ∂²U_ab/∂x_k ∂x_k' of one U = F Fᵀ for a symmetric G."""
    rows, columns, slopes = _entry_slopes(factor)
    same = columns[:, None] == columns[None, :]
    second = 2.0 * np.outer(slopes, slopes) * gradient[np.ix_(rows, rows)] * same
    # exp has its own second derivative, equal to its first
    diagonal = np.arange(len(factor))
    own = 2.0 * np.einsum("i,ia,ai->i", np.diagonal(factor), gradient, factor)
    second[diagonal, diagonal] += own
    return second


def _entry_slopes(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and ∂F/∂x of the entry that each coordinate moves."""
    rows, columns = places(len(factor))
    return rows, columns, np.where(rows == columns, np.diagonal(factor)[rows], 1.0)


def coordinate_scales(
    coordinates: Float[np.ndarray, " coordinate"], sizes: Sequence[int]
) -> Float[np.ndarray, " coordinate"]:
    """Scales of coordinates: 1 for a logarithm, √(U_l)_ii for entries of row i of F_l below it.

    The natural unit of each log-Cholesky coordinate, whatever the scale of the labels.
    """
    scales, start = np.ones_like(coordinates), 0
    for size in sizes:
        below = slice(start + size, start + size * (size + 1) // 2)
        rows = np.tril_indices(size, -1)[0]
        square = np.exp(2.0 * coordinates[start : start + size])
        np.add.at(square, rows, coordinates[below] ** 2)
        scales[below] = np.sqrt(square)[rows]
        start = below.stop
    return scales


def log_invariant_volume(order_parameters: OrderParameters) -> float:
    """ln of the measure Π_l (det U_l)^{−(p_l + 1)/2} dU_l in log-Cholesky coordinates.

    Σ_l [ p_l ln 2 − Σ_i i ln (F_l)_ii ],   i counted from 0
    """
    return float(
        sum(
            math.log(2.0) * len(factor) - np.arange(len(factor)) @ np.log(np.diagonal(factor))
            for factor in map(np.asarray, order_parameters.factors)
        )
    )
