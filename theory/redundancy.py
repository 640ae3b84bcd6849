"""How much attention paths repeat one another, in the data and in the posterior."""

import numpy as np
from jaxtyping import Float


def participation_ratio(overlap: Float[np.ndarray, "row row"]) -> float:
    """Effective number of paths (Σ λ_i)²/Σ λ_i² of the eigenvalues λ of U_1, from 1 to p_1."""
    return float(np.trace(overlap) ** 2 / np.sum(overlap * overlap.T))


def off_diagonal_share(overlap: Float[np.ndarray, "row row"]) -> float:
    """Share of Σ |U_1^{ππ'}| that lies off the diagonal: 0 if no two paths go together."""
    size = np.abs(overlap)
    return float(1.0 - np.trace(size) / size.sum())


def path_alignment(
    features: Float[np.ndarray, "example path channel"],
) -> Float[np.ndarray, "path path"]:
    """Centred kernel alignment of the kernels C_ππ and C_π'π' of any two paths, from 0 to 1.

    ‖φ̄^πᵀ φ̄^π'‖_F²/(‖φ̄^πᵀ φ̄^π‖_F ‖φ̄^π'ᵀ φ̄^π'‖_F) with φ̄ = φ − mean over examples. NaN for a path
    whose features are the same for all examples.
    """
    centred = features - features.mean(axis=0)
    products = np.einsum("xpi,xqj->pqij", centred, centred)
    squares = (products**2).sum(axis=(2, 3))
    own = np.sqrt(np.diagonal(squares))
    with np.errstate(divide="ignore", invalid="ignore"):
        return squares / np.outer(own, own)


def mean_alignment_of_others(alignment: Float[np.ndarray, "path path"]) -> float:
    """Mean over pairs of different paths; NaN for a single path."""
    others = alignment[~np.eye(len(alignment), dtype=bool)]
    return float(others.mean()) if others.size else float("nan")
