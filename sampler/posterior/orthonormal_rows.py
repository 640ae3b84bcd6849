"""Orthonormal rows that span those of a matrix."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def orthonormal_rows(matrix: Float[Array, "row width"]) -> Float[Array, "row width"]:
    """Q with Q Qᵀ = 1 and matrix = L Q, L lower triangular with a positive diagonal.

    Gram–Schmidt row by row, each row projected twice, which makes Q orthogonal to rounding whatever
    the condition of the matrix. Rows of a Gaussian matrix give a uniform (Haar) Q: each points in a
    uniform direction of what the rows before it leave. Needs linearly independent rows, so
    row ≤ width. Plain products rather than a library's QR: several large batches of QR at a time
    can block XLA for ever on few cores.
    """

    def add_row(index, basis):
        row = matrix[index]
        for _ in range(2):
            row = row - (basis @ row) @ basis  # rows not yet found are zero
            row = row / jnp.linalg.norm(row)
        return basis.at[index].set(row)

    return jax.lax.fori_loop(0, matrix.shape[0], add_row, jnp.zeros_like(matrix))
