"""Weights of independent draws: effective number, tail, and resampling."""

import numpy as np
from jaxtyping import Float, Int

# The tail is fitted to the √n largest weights; fewer draws leave too few of them to fit.
FEWEST_DRAWS = 400


def normalised_weights(log_weights: Float[np.ndarray, " draw"]) -> Float[np.ndarray, " draw"]:
    """Weights that sum to one, however large their logarithms are."""
    weights = np.exp(log_weights - np.max(log_weights))
    return weights / weights.sum()


def effective_draws(weights: Float[np.ndarray, " draw"]) -> float:
    """1/Σ w² of weights that sum to one: draws of equal weight that these are worth."""
    return float(1.0 / np.sum(weights**2))


def pareto_k(log_weights: Float[np.ndarray, " draw"]) -> float:
    """Shape of a generalised Pareto tail fitted to the largest weights.

    Infinite where the tail cannot be fitted, so that such weights are never trusted.
    """
    finite = log_weights[np.isfinite(log_weights)]
    if len(finite) < FEWEST_DRAWS:
        return float("inf")
    from arviz_stats.base import array_stats  # only here: importing it takes long

    # The library takes pointwise log likelihoods, whose weights are their inverse.
    shape = float(array_stats.psislw(-finite)[1])
    return shape if np.isfinite(shape) else float("inf")


def systematic_resampling(
    weights: Float[np.ndarray, " draw"], count: int, rng: np.random.Generator
) -> Int[np.ndarray, " _count"]:
    """Indices of `count` equally weighted draws, in random order; weights sum to one.

    One uniform number places `count` evenly spaced marks on the cumulated weights: draw i is taken
    ⌊count · w_i⌋ or ⌈count · w_i⌉ times, count · w_i on average. Draws taken more than once make
    the result worth fewer than `count` independent draws: take a small share of the effective
    ones. Raises ValueError when weights are not finite, negative, or do not sum to one.
    """
    if count < 1:
        raise ValueError(f"count = {count}: must be at least 1")
    total = float(np.sum(weights))
    rounding = np.finfo(float).eps * len(weights)
    if not (np.all(weights >= 0) and abs(total - 1.0) <= rounding):
        raise ValueError(f"weights sum to {total!r}: need non-negative weights that sum to 1")
    marks = (np.arange(count) + rng.random()) / count
    edges = np.cumsum(weights)
    edges /= edges[-1]
    return rng.permutation(np.searchsorted(edges, marks, side="right"))
