"""Order parameters with their structure cut down, to see which part carries the gain."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def diagonal_only(factor: Float[Array, "row rank"]) -> Float[Array, "row row"]:
    """Factor of U_1 with every off-diagonal entry set to zero: no cross-path terms."""
    return jnp.diag(jnp.sqrt(jnp.sum(factor**2, axis=1)))


def equal_diagonal(factor: Float[Array, "row rank"]) -> Float[Array, "row row"] | None:
    """Factor of U_1 with every diagonal entry set to U_1[0, 0] and the off-diagonals kept.

    None where that matrix is not positive definite: the variant is then undefined.
    """
    overlap = np.array(factor @ factor.T)
    np.fill_diagonal(overlap, overlap[0, 0])
    try:
        return jnp.asarray(np.linalg.cholesky(overlap))
    except np.linalg.LinAlgError:
        return None
