"""Order parameters U_1 … U_L, U_a, positive definite by construction."""

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
        return tuple(factor @ factor.T for factor in self.factors)

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
        """Infinite width: U_l = σ_a² σ_L² ··· σ_l² · 1 (arXiv 2405.15926, GP limit)."""
        deviations = np.sqrt(np.cumprod(architecture.order_parameter_variances[::-1])[::-1])
        return cls(
            tuple(
                jnp.asarray(deviation * np.eye(size))
                for deviation, size in zip(
                    deviations, architecture.order_parameter_sizes, strict=True
                )
            )
        )


@jax.jit
def to_log_cholesky(order_parameters: OrderParameters) -> Float[Array, " coordinate"]:
    """Log-Cholesky coordinates: log diagonals, then entries below the diagonal, layer by layer."""
    pieces = []
    for factor in order_parameters.factors:
        pieces.append(jnp.log(jnp.diagonal(factor)))
        pieces.append(factor[np.tril_indices(factor.shape[0], -1)])
    return jnp.concatenate(pieces)


@partial(jax.jit, static_argnames="sizes")
def from_log_cholesky(
    coordinates: Float[Array, " coordinate"], sizes: tuple[int, ...]
) -> OrderParameters:
    """Order parameters of sizes p_1 … p_{L+1} in log-Cholesky coordinates; any vector is valid."""
    factors, start = [], 0
    for size in sizes:
        count = size * (size + 1) // 2
        factors.append(_lower_factor(coordinates[start : start + count], size))
        start += count
    return OrderParameters(tuple(factors))


def coordinate_scales(coordinates: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """1 for every logarithm, √(U_l)_ii for the entries of row i of F_l below the diagonal.

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


def _lower_factor(coordinates: Float[Array, " _count"], size: int) -> Float[Array, "_size _size"]:
    """Lower-triangular matrix with exp(first `size` entries) on its diagonal.

    The entries are scattered at fixed places, which differentiates into slices, not gathers.
    """
    values = jnp.concatenate([jnp.exp(coordinates[:size]), coordinates[size:]])
    rows = np.concatenate([np.arange(size), np.tril_indices(size, -1)[0]])
    columns = np.concatenate([np.arange(size), np.tril_indices(size, -1)[1]])
    return jnp.zeros((size, size), values.dtype).at[rows, columns].set(values)


def log_volume_change(coordinates: Float[Array, " coordinate"], sizes: Sequence[int]):
    """ln |∂(U_1 … U_a) / ∂ log-Cholesky|, the Jacobian of the coordinates.

    Σ_l [ p_l ln 2 + Σ_i (p_l − i + 1) ln (F_l)_ii ],   i counted from 0
    """
    total, start = 0.0, 0
    for size in sizes:
        powers = size + 1 - jnp.arange(size)
        total += size * math.log(2.0) + powers @ coordinates[start : start + size]
        start += size * (size + 1) // 2
    return total
