"""Estimates with their Monte Carlo errors, rank correlations and power laws."""

from dataclasses import dataclass

import numpy as np
from arviz_stats.base import array_stats
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from sampler.mcmc.draws import BatchMoments

AXES = {"chain_axis": 0, "draw_axis": 1}


@dataclass(frozen=True)
class Estimate:
    """A number (or array of them) with its Monte Carlo standard error."""

    value: np.ndarray | np.floating
    mcse: np.ndarray | np.floating


def mean_of(draws: np.ndarray) -> Estimate:
    """Mean over chains and draws, MCSE from the effective sample size; draws [chain, draw, …]."""
    draws = np.asarray(draws, dtype=np.float64)
    return Estimate(draws.mean(axis=(0, 1)), array_stats.mcse(draws, method="mean", **AXES))


def variance_of(draws: np.ndarray) -> Estimate:
    """Variance over chains and draws; MCSE that of the mean of squared deviations."""
    return mean_of(squared_deviations(draws))


def squared_deviations(draws: np.ndarray) -> np.ndarray:
    """Squared deviations from the mean over all draws, scaled so that their mean is unbiased."""
    draws = np.asarray(draws, dtype=np.float64)
    count = draws.shape[0] * draws.shape[1]
    return (draws - draws.mean(axis=(0, 1))) ** 2 * (count / (count - 1))


def mean_of_batches(moments: BatchMoments) -> Estimate:
    """Mean over all batches; MCSE from the spread of batch means."""
    return _over_batches(moments.mean)


def variance_of_batches(moments: BatchMoments) -> Estimate:
    """Variance over all draws; MCSE from the spread of batch means of squared deviations."""
    centre = moments.mean.mean(axis=(0, 1))
    deviations = moments.mean_square - 2 * centre * moments.mean + centre**2
    variance = _over_batches(deviations)
    count = moments.batch_size * moments.mean.shape[0] * moments.mean.shape[1]
    return Estimate(variance.value * (count / (count - 1)), variance.mcse)


def _over_batches(values: np.ndarray) -> Estimate:
    count = values.shape[0] * values.shape[1]
    spread = values.std(axis=(0, 1), ddof=1)
    return Estimate(values.mean(axis=(0, 1)), spread / np.sqrt(count))


def batch_means(draws: np.ndarray, batches_per_chain: int = 10) -> np.ndarray:
    """Means of consecutive batches of draws, [batch, …], chains one after another."""
    size = max(1, draws.shape[1] // batches_per_chain)
    kept = draws[:, : size * (draws.shape[1] // size)]
    shape = (draws.shape[0] * (draws.shape[1] // size), size, *draws.shape[2:])
    return kept.reshape(shape).mean(axis=1)


def bootstrap(statistic, batches: np.ndarray, replicates: int = 400, seed: int = 0) -> Estimate:
    """A function of the mean over batches, with its bootstrap error over batches.

    `statistic` maps [replicate, …] means to [replicate] numbers; it need not be smooth (an accuracy
    is not, which rules out the jackknife).
    """
    count = batches.shape[0]
    chosen = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), replicates)
    means = np.tensordot(chosen / count, batches, axes=1)
    values = np.asarray(statistic(means), dtype=np.float64)
    # About the first of them, so that values that are all the same have no error at all.
    spread = (values - values[0]).std(axis=0, ddof=1)
    return Estimate(np.asarray(statistic(batches.mean(axis=0)[None]))[0], spread)


REPLICATES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's ρ and two 95 % percentile intervals.

    interval_over_heads     other heads could have been trained: pairs (score, drop) drawn again
    interval_over_examples  other examples could have been tested on: the drops measured again
    """

    value: float
    interval_over_heads: tuple[float, float]
    interval_over_examples: tuple[float, float]


def spearman(
    one: Float[np.ndarray, "*batch pair"], other: Float[np.ndarray, "*batch pair"]
) -> Float[np.ndarray | np.floating, "*batch"]:
    """Correlation of the ranks along the last axis, ties at their mean; NaN without variation.

    `scipy.stats.spearmanr` takes one pair at a time; the intervals need thousands at once.
    """
    ranks = [rankdata(values, axis=-1) for values in (one, other)]
    a, b = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def rank_correlation(
    scores: Float[np.ndarray, " head"],
    lost: Float[np.ndarray, "head example"] | Bool[np.ndarray, "head example"],
    seed: int = 0,
) -> RankCorrelation:
    """ρ between scores and drops, a drop being the mean over examples of what was lost there."""
    lost = np.asarray(lost, dtype=np.float64)
    generator = np.random.default_rng(seed)
    heads, examples = lost.shape

    def interval(found: np.ndarray) -> tuple[float, float]:
        # A sample of equal scores or drops has no correlation.
        found = found[np.isfinite(found)]
        if not found.size:
            return float("nan"), float("nan")
        tail = (1.0 - LEVEL) / 2.0
        return float(np.quantile(found, tail)), float(np.quantile(found, 1.0 - tail))

    drops = lost.mean(axis=1)
    chosen = generator.integers(heads, size=(REPLICATES, heads))
    over_heads = spearman(scores[chosen], drops[chosen])
    counts = generator.multinomial(examples, np.full(examples, 1 / examples), REPLICATES)
    measured_again = np.stack([lost @ (count / examples) for count in counts])
    over_examples = spearman(np.broadcast_to(scores, measured_again.shape), measured_again)
    value = float(spearman(scores, drops))
    return RankCorrelation(value, interval(over_heads), interval(over_examples))


# A difference counts where it is this many Monte Carlo errors, and the layers are this wide.
RESOLVED_MCSE = 3.0
SMALLEST_FITTED_WIDTH = 30


@dataclass(frozen=True)
class PowerLaw:
    """|difference| ≈ prefactor · N^slope, with the standard error of the slope.

    `widths` are those that entered the fit; slope and error are NaN with fewer than three.
    """

    slope: float
    slope_error: float
    prefactor: float
    widths: tuple[int, ...]


def fit_power_law(widths: np.ndarray, difference: np.ndarray, mcse: np.ndarray) -> PowerLaw:
    """Weighted straight line through ln |theory − exact| against ln N.

    Points with N < 30 or |difference| < 3 MCSE are left out. Weights are the Monte Carlo errors of
    ln |difference|; the error of the slope is inflated by √(χ²/degrees) where the points scatter
    more than that, since a power law is only the leading term.
    """
    widths, size = np.asarray(widths, dtype=float), np.abs(np.asarray(difference, dtype=float))
    mcse = np.asarray(mcse, dtype=float)
    used = (widths >= SMALLEST_FITTED_WIDTH) & (size > RESOLVED_MCSE * mcse)
    fitted = tuple(int(width) for width in widths[used])
    if used.sum() < 3:
        return PowerLaw(float("nan"), float("nan"), float("nan"), fitted)
    x, y, error = np.log(widths[used]), np.log(size[used]), mcse[used] / size[used]
    weights = 1.0 / error**2
    centre = np.average(x, weights=weights)
    spread = np.sum(weights * (x - centre) ** 2)
    slope = np.sum(weights * (x - centre) * y) / spread
    intercept = np.average(y, weights=weights) - slope * centre
    chi_square = np.sum(weights * (y - intercept - slope * x) ** 2)
    scatter = max(1.0, np.sqrt(chi_square / (used.sum() - 2)))
    slope_error = scatter / np.sqrt(spread)
    return PowerLaw(float(slope), float(slope_error), float(np.exp(intercept)), fitted)
