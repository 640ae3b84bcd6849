"""Equally weighted draws from weighted ones."""

import numpy as np
from jaxtyping import Float, Int


def systematic_resampling(
    weights: Float[np.ndarray, " draw"], count: int, seed: int
) -> Int[np.ndarray, " _count"]:
    """Indices of `count` equally weighted draws, in random order; weights sum to one.

    One uniform number places `count` evenly spaced marks on the cumulated weights: draw i is taken
    ⌊count · w_i⌋ or ⌈count · w_i⌉ times, count · w_i on average. Draws taken more than once make
    the result worth fewer than `count` independent draws: take no more than there are effective
    draws. Raises ValueError when weights are not finite, negative, or do not sum to one.
    """
    if count < 1:
        raise ValueError(f"count = {count}: must be at least 1")
    total = float(np.sum(weights))
    rounding = np.finfo(float).eps * len(weights)
    if not (np.all(weights >= 0) and abs(total - 1.0) <= rounding):
        raise ValueError(f"weights sum to {total!r}: need non-negative weights that sum to 1")
    rng = np.random.default_rng(seed)
    marks = (np.arange(count) + rng.random()) / count
    edges = np.cumsum(weights)
    edges /= edges[-1]
    return rng.permutation(np.searchsorted(edges, marks, side="right"))
