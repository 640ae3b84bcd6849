"""Elements of what is drawn that a problem fixes: they have one value, whatever the point.

Such as the predictor of an example whose inputs are 0. Draws from the prior tell them: what does
not differ between them cannot differ between draws from the posterior.
"""

import jax
import numpy as np
from jaxtyping import Bool

from sampler.mcmc.collected_draws import rounded
from sampler.posterior.space import Space
from sampler.streams import Stream, jax_key, stream

# Points that are compared, and roundings by which half of what is the same may differ.
POINTS, ROUNDINGS = 16, 32.0


def fixed_by(space: Space, seed: int) -> dict[str, Bool[np.ndarray, " element"]]:
    """Name → which elements of a draw have the same value at draws from the prior, to rounding.

    In the precision in which draws are kept. An element that is no number is not fixed.
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
