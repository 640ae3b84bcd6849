"""Points at which a density is not a number, though it may matter there.

A density that is zero excludes a point; one that is not a number leaves open what is there. Far out
it may overflow where nothing is: a bound of it tells these points from those that are lost.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp

from sampler.posterior.space import Space
from sampler.runtime import side_by_side

# Weights of less than e^−30 of all together change nothing.
NEGLIGIBLE = 30.0
TOGETHER = 64


def is_no_number(logs: Float[np.ndarray, " point"]) -> np.ndarray:
    """Whether a log density is neither a number nor −∞, that of density zero."""
    return np.isnan(logs) | np.isposinf(logs)


def count_lost(
    space: Space,
    points: Float[np.ndarray, "point coordinate"],
    log_p: Float[np.ndarray, " point"],
    log_q: Float[np.ndarray, " point"],
) -> int:
    """Points drawn from q at which p(x, y) is not a number, and may matter beside the others.

    Where an upper bound of p/q is negligible beside the weights of the others, nothing is lost.
    """
    bad = is_no_number(log_p)
    if not bad.any():
        return 0
    ratio = np.where(bad, -np.inf, log_p) - log_q
    largest = -np.asarray(_least_potentials(jnp.asarray(points), space)) - log_q
    known = ratio[np.isfinite(ratio)]
    total = logsumexp(known) if known.size else -np.inf
    return int(np.sum(bad & ~(largest < total - NEGLIGIBLE)))


@jax.jit
def _least_potentials(points, space: Space) -> Float[Array, " point"]:
    return jax.lax.map(space.least_potential, points, batch_size=side_by_side(TOGETHER))
