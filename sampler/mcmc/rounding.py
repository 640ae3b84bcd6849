"""What rounding does to a log density: how rough it is, and how far off in single precision.

Of a rough one no step is short enough; by one that is off chains accept and refuse wrongly.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sampler.posterior.space import Space
from sampler.runtime import jax_settings
from sampler.streams import Stream, jax_key

# So close are points that differ by rounding alone, relative to their size, and so many there are.
NEAR, POINTS = 1e-13, 16


def shift_in_single_precision(
    single: Space, double: Callable[[], Space], points: Float[np.ndarray, "draw coordinate"]
) -> float:
    """The largest |difference| of ln p between single and double precision at some draws.

    double  makes the space in double precision
    """
    rough = np.asarray(_at_points(points, single), np.float64)
    with jax_settings():
        exact = np.asarray(_at_points(points.astype(np.float64), double()))
    return float(np.max(np.abs(rough - exact)))


@jax.jit
def _at_points(points, space: Space):
    return jax.lax.map(space.potential, points)


def roughness_attributes(space: Space, seed: int) -> dict[str, Any]:
    """Spread of ln p(x, y) between nearest points, and the condition number of K + 𝒯 1 there.

    Where a chain may start. The condition number is left out where labels have no covariance.
    """
    values, covariance, temperature = _nearby(jax_key(seed, Stream.ROUGHNESS), space)
    found = {"roughness": float(np.ptp(np.asarray(values)))}
    if covariance is not None:
        largest = float(np.linalg.eigvalsh(np.asarray(covariance, float))[-1])
        found["condition_number"] = largest / float(temperature)
    return found


@jax.jit
def _nearby(key, space: Space):
    start_key, near_key = jax.random.split(key)
    point = space.start(start_key)
    steps = NEAR * jax.random.normal(near_key, (POINTS, len(point)), point.dtype)
    values = jax.lax.map(space.potential, point + steps * (1.0 + jnp.abs(point)))
    position = space.unflatten(point)
    covariance = getattr(space.law(position), "covariance", None)
    return values, covariance, space.temperature_at(position)
