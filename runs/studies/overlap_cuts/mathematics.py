"""U₁ with one of two properties taken away: its off-diagonal elements, or its unequal diagonal.

Both take a factor F of U₁ = F Fᵀ and return one of the matrix that is left.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from theory import Predictor, predict


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


FULL = "full"
CUTS = {"diagonal only": diagonal_only, "equal diagonal": equal_diagonal}


def right(problem, factor: Float[np.ndarray, "row rank"]) -> dict[str, np.ndarray]:
    """Which test examples are right, with the full U₁ = F Fᵀ and with each cut; NaN if undefined.

    An equal diagonal with the off-diagonal elements kept need not be positive definite.
    """
    predictor = Predictor.for_examples(problem.learning, problem.attended_test)
    labels = np.asarray(problem.labels_test)
    found = {}
    for name, one in {FULL: factor, **{name: cut(factor) for name, cut in CUTS.items()}}.items():
        if one is None:
            found[name] = np.full(len(labels), np.nan)
        else:
            mean = np.asarray(predict(predictor, jnp.asarray(one))[0])
            found[name] = (np.sign(mean) == labels)[:, 0].astype(float)
    return found


def losses(found: dict[str, list]) -> Float[np.ndarray, "cut example"]:
    """Right with the full U₁ minus right with each cut."""
    return np.array([np.subtract(found[FULL], found[name]) for name in CUTS])
