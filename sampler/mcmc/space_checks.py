"""Checks of a space besides its draws: effects of rounding, and fixed elements.

Of a log density that rounding makes rough no step is short enough, and by one that is off in single
precision chains accept and refuse wrongly. Elements of a draw that a problem fixes have one
value, whatever the point, such as the predictor of an example whose inputs are 0.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from sampler.mcmc.collected_draws import rounded
from sampler.posterior.space import Space
from sampler.runtime import jax_settings
from sampler.streams import Stream, jax_key, stream

# Relative distance of points that differ by rounding alone, and the number of points that are
# compared.
NEAR, POINTS = 1e-13, 16
# Roundings by which half of equal numbers may differ.
ROUNDINGS = 32.0


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
    """Spread of ln p(θ, y) between nearest points, and the condition number of K + 𝒯 1 there.

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


def fixed_by(space: Space, seed: int) -> dict[str, Bool[np.ndarray, " element"]]:
    """Name → which elements of a draw have the same value at draws from the prior, to rounding.

    Elements equal between these are equal between draws from the posterior. In the
    precision in which draws are kept; an element that is not a number is not fixed.
    """
    key = jax_key(seed, Stream.FIXED_ELEMENTS)
    drawn = space.draw_by_numpy(POINTS, stream(seed, Stream.FIXED_ELEMENTS))
    observed = _at_draws_from_prior(key, drawn, space)
    return {name: _is_same(rounded(name, np.asarray(v))) for name, v in observed.items()}


def _is_same(values: np.ndarray) -> Bool[np.ndarray, " element"]:
    flat = values.reshape(len(values), -1)
    if not np.issubdtype(flat.dtype, np.floating):
        return (flat == flat[:1]).all(axis=0)
    low, middle, high = np.quantile(flat.astype(np.float64), (0.25, 0.5, 0.75), axis=0)
    return high - low <= ROUNDINGS * np.finfo(flat.dtype).eps * np.abs(middle)


@jax.jit
def _at_draws_from_prior(key, drawn, space: Space):
    def observed(draw):
        of_point, own = draw
        point_key, key = jax.random.split(of_point)
        return space.observe(key, space.draw_prior(point_key, own))

    return jax.lax.map(observed, (jax.random.split(key, POINTS), drawn))
