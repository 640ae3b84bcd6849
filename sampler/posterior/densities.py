"""Densities of many points, their derivatives, and points at which they are not numbers.

A density that is zero excludes a point; one that is not a number does not. Far out it may overflow
where nothing is: a bound of it distinguishes these points from lost ones.
"""

from collections.abc import Callable
from functools import partial

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


@partial(jax.jit, static_argnames=("of", "batch"))
def values_at(
    of: Callable[[Space, Array], Array],
    space: Space,
    points: Float[Array | np.ndarray, "point coordinate"],
    batch: int | None,
) -> Float[Array, " point"]:
    """A function of space and point at all points, in batches."""
    return jax.lax.map(partial(of, space), points, batch_size=batch)


def log_density(space: Space, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
    """ln p(θ, y)."""
    return -space.potential(point)


def log_likelihood(space: Space, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
    """ln p(y | θ)."""
    return space.log_likelihood(space.unflatten(point))


def largest_log_density(space: Space, point: Float[Array, " coordinate"]) -> Float[Array, ""]:
    """Upper bound of ln p(θ, y)."""
    return -space.least_potential(point)


@jax.jit
def potential_and_slope(space: Space, point: Float[Array | np.ndarray, " coordinate"]):
    """−ln p(θ, y) and its gradient."""
    return jax.value_and_grad(space.potential)(point)


@jax.jit
def hessian_products(
    space: Space,
    point: Float[Array | np.ndarray, " coordinate"],
    directions: Float[Array | np.ndarray, "direction coordinate"],
) -> Float[Array, "direction coordinate"]:
    """Hessian of −ln p(θ, y) times each direction."""
    slope = jax.grad(space.potential)
    return jax.lax.map(lambda direction: jax.jvp(slope, (point,), (direction,))[1], directions)


def log_ratios(
    space: Space,
    points: Float[np.ndarray, "point coordinate"],
    log_p: Float[np.ndarray, " point"],
    log_q: Float[np.ndarray, " point"],
) -> tuple[Float[np.ndarray, " point"], int]:
    """ln p(θ, y) − ln q(θ) of points, −∞ where it is not a number, and how many of these are lost.

    A density is not a number where its logarithm is neither a number nor −∞. Such a point is lost,
    unless an upper bound of p/q is negligible against the weights of the others.
    """
    bad = ~(log_p < np.inf)
    with np.errstate(invalid="ignore"):  # of densities that are both zero
        ratio = np.where(bad, -np.inf, log_p) - log_q
    ratio = np.where(ratio < np.inf, ratio, -np.inf)
    if not bad.any():
        return ratio, 0
    bounds = values_at(largest_log_density, space, jnp.asarray(points), side_by_side(TOGETHER))
    largest = np.asarray(bounds) - log_q
    known = ratio[np.isfinite(ratio)]
    total = logsumexp(known) if known.size else -np.inf
    return ratio, int(np.sum(bad & ~(largest < total - NEGLIGIBLE)))
