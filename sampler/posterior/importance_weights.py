"""Weights of independent draws: what they are worth, their tail, and resampling by them."""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

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
    shape = pareto_smoothed(finite)[1]
    return shape if np.isfinite(shape) else float("inf")


# Of a generalised Pareto fit: the weight of the prior mean 1/2 of k, in draws, and how far below
# the smallest admitted value the grid of its other parameter begins, in inverse quartiles.
PRIOR_DRAWS, GRID = 10, 3
FEWEST_OF_TAIL = 5


def pareto_smoothed(
    log_weights: Float[np.ndarray, " draw"], efficiency: float = 1.0
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Logarithms of normalised weights, smoothed, and the shape k of their tail.

    The largest are replaced by quantiles of the generalised Pareto law that is fitted to them, none
    beyond the largest (Vehtari, Simpson, Gelman, Yao, Gabry, 2024). The same numbers as
    `arviz_stats` has, whose import takes as long as a run of ten thousand draws.

    efficiency  effective draws for each draw

    Raises ValueError where the tail is too short, or all one value.
    """
    logs, count = log_weights - np.max(log_weights), len(log_weights)
    length = 3.0 * (count / efficiency) ** 0.5 if count * efficiency > 225 else count / 5
    order = np.argsort(logs)
    if not FEWEST_OF_TAIL <= length < count:
        raise ValueError(f"no tail of {length:g} among {count} weights")
    tail, cutoff = order[-int(length) :], np.exp(logs[order[-int(length) - 1]])
    largest = logs[tail[-1]]
    if abs(largest - logs[tail[0]]) < np.finfo(float).tiny:
        raise ValueError("all weights of the tail are the same")
    shape, scale = pareto_fit(np.exp(logs[tail]) - cutoff)
    if np.isfinite(shape):
        beyond = -np.log1p(-np.arange(0.5, int(length)) / int(length))
        quantiles = np.expm1(shape * beyond) / shape if shape else beyond
        smooth = np.log(cutoff + scale * quantiles) if scale > 0 else np.full(int(length), np.nan)
        logs[tail] = np.where(smooth > largest, largest, smooth)
    return logs - logsumexp(logs), float(shape)


def pareto_fit(excess: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Shape k and scale σ of a generalised Pareto law for sorted values (Zhang, Stephens, 2009).

    b = −k/σ is its posterior mean on a grid; a prior draws k to 1/2.
    """
    count = len(excess)
    points = 30 + int(count**0.5)
    grid = 1.0 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    grid = grid / (GRID * excess[int(count / 4 + 0.5) - 1]) + 1.0 / excess[-1]
    shapes = np.mean(np.log1p(-grid[:, None] * excess), axis=1)
    profile = count * (np.log(-grid / shapes) - shapes - 1.0)
    weights = np.exp(profile - logsumexp(profile))
    weights = np.where(weights >= 10 * np.finfo(float).eps, weights, 0.0)
    mean = np.sum(grid * weights) / np.sum(weights)
    shape = np.mean(np.log1p(-mean * excess))
    return float((count * shape + PRIOR_DRAWS * 0.5) / (count + PRIOR_DRAWS)), float(-shape / mean)


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
