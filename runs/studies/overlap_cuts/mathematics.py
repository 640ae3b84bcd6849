"""U₁ with one of two properties taken away: its off-diagonal elements, or its unequal diagonal.

Both take a factor F of U₁ = F Fᵀ and return one of the matrix that is left.
"""

import numpy as np
from jaxtyping import Float


def diagonal_only(factor: Float[np.ndarray, "row rank"]) -> Float[np.ndarray, "row row"]:
    """Factor of U₁ with every off-diagonal element set to zero: no cross-path terms."""
    return np.diag(np.sqrt(np.sum(np.asarray(factor) ** 2, axis=1)))


def equal_diagonal(factor: Float[np.ndarray, "row rank"]) -> Float[np.ndarray, "row row"] | None:
    """Factor of U₁ with every diagonal element set to the first and the off-diagonal ones kept.

    None where that matrix is not positive definite: nothing is predicted with it.
    """
    factor = np.asarray(factor)
    overlap = factor @ factor.T
    np.fill_diagonal(overlap, overlap[0, 0])
    try:
        return np.linalg.cholesky(overlap)
    except np.linalg.LinAlgError:
        return None
