"""Estimates with their Monte Carlo errors, rank correlations and power laws."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import chdtri

from sampler.mcmc.convergence import mean_mcse


@dataclass(frozen=True)
class Estimate:
    """A number (or array of them) with its Monte Carlo standard error.

    deviations  [row, …], whose products of elements sum to the covariance of their errors, if known
    degrees     of freedom that errors and covariance are known by; 0 if that is not known
    """

    value: np.ndarray | np.floating
    mcse: np.ndarray | np.floating
    deviations: np.ndarray | None = None
    degrees: int = 0

    def rows(
        self, chosen: Bool[np.ndarray, "*element"]
    ) -> tuple[Float[np.ndarray, "row chosen"], int]:
        """Deviations of chosen elements, and degrees of freedom.

        Where no covariance is known the errors of all elements are taken to go up and down
        together: nothing is then gained by the number of elements.
        """
        if self.deviations is None:
            return np.asarray(self.mcse)[chosen][None], self.degrees
        return self.deviations[:, chosen], self.degrees


# Weights of repetitions, summing to one, where chains are such; None where they are Markov chains.
# Draws of a repetition have ancestors in common: its mean counts as one number, whatever their
# number, and errors come from the spread of these means.
RepetitionWeights = Float[np.ndarray, " repetition"] | None


def mean_of(draws: np.ndarray, weights: RepetitionWeights = None) -> Estimate:
    """Mean over chains and draws, MCSE from the effective sample size; draws [chain, draw, …].

    The covariance between elements is that of batch means. With weights of repetitions the mean is
    theirs, and MCSE and covariance come from the spread between them.
    """
    draws = np.asarray(draws, dtype=np.float64)
    if weights is not None:
        return _over_repetitions(batch_means(draws, weights=weights), weights)
    return Estimate(draws.mean(axis=(0, 1)), mean_mcse(draws), *_spread(batch_means(draws)))


def _over_repetitions(means: np.ndarray, weights: np.ndarray) -> Estimate:
    """Σ_r w_r m_r of means [repetition, …], w_r in proportion to an evidence that varies with m_r.

    Deviations are those of a ratio of two means over repetitions, Σ_r Z_r m_r / Σ_r Z_r.
    """
    count = len(weights)
    value = np.tensordot(weights, means, axes=1)
    scaled = weights.reshape(-1, *[1] * (means.ndim - 1)) * (means - value)
    deviations = scaled * np.sqrt(count / max(count - 1, 1))
    return Estimate(value, np.sqrt(np.sum(deviations**2, axis=0)), deviations, count - 1)


def _spread(batches: np.ndarray) -> tuple[np.ndarray, int]:
    """Deviations of batch means, scaled to the error of their mean, and degrees of freedom."""
    count = len(batches)
    return (batches - batches.mean(axis=0)) / np.sqrt(max(count * (count - 1), 1)), count - 1


def variance_of(draws: np.ndarray, weights: RepetitionWeights = None) -> Estimate:
    """Variance over chains and draws; MCSE that of the mean of squared deviations."""
    return mean_of(squared_deviations(draws, weights), weights)


def squared_deviations(draws: np.ndarray, weights: RepetitionWeights = None) -> np.ndarray:
    """Squared deviations from the mean over all draws, scaled so that their mean is unbiased."""
    draws = np.asarray(draws, dtype=np.float64)
    count = draws.shape[0] * draws.shape[1]
    return (draws - centre_of(draws, weights)) ** 2 * (count / (count - 1))


def centre_of(draws: np.ndarray, weights: RepetitionWeights = None) -> np.ndarray:
    """The mean alone, over chains and draws [chain, draw, …]."""
    if weights is None:
        return np.asarray(draws.mean(axis=(0, 1)))
    return np.tensordot(weights, batch_means(draws, weights=weights), axes=1)


def batch_means(
    draws: np.ndarray, batches_per_chain: int = 10, weights: RepetitionWeights = None
) -> np.ndarray:
    """Means of consecutive batches of draws, [batch, …], chains one after another.

    A repetition is one batch.
    """
    if weights is not None:
        return draws.mean(axis=1)
    size = max(1, draws.shape[1] // batches_per_chain)
    kept = draws[:, : size * (draws.shape[1] // size)]
    shape = (draws.shape[0] * (draws.shape[1] // size), size, *draws.shape[2:])
    return kept.reshape(shape).mean(axis=1)


def mean_over_batches(batches: np.ndarray, weights: RepetitionWeights = None) -> np.ndarray:
    """Mean over batches [batch, …], or that of repetitions by their weights."""
    mean = batches.mean(axis=0) if weights is None else np.tensordot(weights, batches, axes=1)
    return np.asarray(mean)


def bootstrap(
    statistic,
    batches: np.ndarray,
    replicates: int = 400,
    seed: int = 0,
    weights: RepetitionWeights = None,
) -> Estimate:
    """A function of the mean over batches, with its bootstrap error over batches.

    `statistic` maps [replicate, …] means to [replicate] numbers; it need not be smooth (an accuracy
    is not, which rules out the jackknife). Repetitions are drawn again with their weights.
    """
    count = batches.shape[0]
    chosen = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), replicates)
    shares, wider = chosen / count, 1.0
    if weights is not None:
        shares = chosen * weights
        shares = shares / shares.sum(axis=1, keepdims=True)
        # Of few batches drawn again the spread is (n − 1)/n of what it should be.
        wider = np.sqrt(count / max(count - 1, 1))
    means = np.tensordot(shares, batches, axes=1)
    values = np.asarray(statistic(means), dtype=np.float64)
    # About the first of them, so that values that are all the same have no error at all.
    shifts = wider * (values - values[0])
    deviations = (shifts - shifts.mean(axis=0)) / np.sqrt(replicates - 1)
    found = np.asarray(statistic(mean_over_batches(batches, weights)[None]))[0]
    return Estimate(found, shifts.std(axis=0, ddof=1), deviations, count - 1)


REPLICATES = 2000
LEVEL = 0.95
# Of fewer heads the interval says too much: of normal pairs with a correlation of 0.9 it has the
# true ρ in 58, 75 and 86 % of cases with 4, 5 and 6 heads, and in 95 % or more from 8 on.
FEWEST_HEADS = 8


@dataclass(frozen=True)
class PredictorEstimates:
    """Posterior mean and variance of f on the test set, and batch means of the mean.

    parts  where each draw knows its own mean m and variance v: E[v] (within), Var[m] (between)
    """

    mean: Estimate
    variance: Estimate
    batches: np.ndarray
    parts: Mapping[str, Estimate]


def predictor_estimates(
    draws: Mapping[str, np.ndarray], weights: RepetitionWeights = None
) -> PredictorEstimates:
    """E[f] and Var[f]; Rao–Blackwellised, E[m] and E[v] + Var[m], where m and v are known."""
    if "predictor_mean" in draws:
        mean, variance = draws["predictor_mean"], draws["predictor_variance"]
        deviations = squared_deviations(mean, weights)
        parts = {"within": mean_of(variance, weights), "between": mean_of(deviations, weights)}
        total = mean_of(variance + deviations, weights)
        batches = batch_means(mean, weights=weights)
        return PredictorEstimates(mean_of(mean, weights), total, batches, parts)
    values = draws["predictor"]
    estimates = mean_of(values, weights), variance_of(values, weights)
    return PredictorEstimates(*estimates, batch_means(values, weights=weights), {})


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's ρ and two 95 % percentile intervals.

    interval_over_heads     other heads could have been trained: pairs (score, drop) drawn again;
                            NaN of fewer than FEWEST_HEADS
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
    from scipy.stats import rankdata

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
    if heads < 2:
        return RankCorrelation(np.nan, (np.nan, np.nan), (np.nan, np.nan))
    chosen = generator.integers(heads, size=(REPLICATES, heads))
    over_heads = spearman(scores[chosen], drops[chosen])
    counts = generator.multinomial(examples, np.full(examples, 1 / examples), REPLICATES)
    measured_again = np.stack([lost @ (count / examples) for count in counts])
    over_examples = spearman(np.broadcast_to(scores, measured_again.shape), measured_again)
    value = float(spearman(scores, drops))
    of_heads = interval(over_heads) if heads >= FEWEST_HEADS else (np.nan, np.nan)
    return RankCorrelation(value, of_heads, interval(over_examples))


# One element differs by more than Monte Carlo noise where it differs by so many errors.
RESOLVED_MCSE = 3.0
SMALLEST_FITTED_WIDTH = 30
FEWEST_FITTED = 3
SLOPES = (-5.0, 3.0)


@dataclass(frozen=True)
class PowerLaw:
    """difference ≈ prefactor · N^slope, with the standard error of the slope.

    `widths` are those that entered the fit; slope, error and prefactor are NaN where there are
    fewer than three, or no difference that can be told from Monte Carlo noise.
    """

    slope: float
    slope_error: float
    prefactor: float
    widths: tuple[int, ...]


def fit_power_law(
    widths: np.ndarray,
    difference: np.ndarray,
    mcse: np.ndarray,
    smallest_width: int = SMALLEST_FITTED_WIDTH,
) -> PowerLaw:
    """Least squares of theory − exact, with its sign, against c N^slope: min Σ (d − c N^s)²/MCSE².

    All points from `smallest_width` on enter, however small their difference: choosing the resolved
    ones would keep those that noise has made large. The error of the slope is inflated by
    √(χ²/degrees) where the points scatter more than their errors, since a power law is only the
    leading term.
    """
    used = np.asarray(widths) >= smallest_width
    width, gap, error = (np.asarray(a, float)[used] for a in (widths, difference, mcse))
    fitted = tuple(int(one) for one in width)
    undefined = PowerLaw(float("nan"), float("nan"), float("nan"), fitted)
    if len(fitted) < FEWEST_FITTED or not np.all(error > 0.0):
        return undefined
    centre = np.exp(np.log(width).mean())  # so that prefactor and slope are nearly independent
    logs, target = np.log(width / centre), gap / error

    def prefactor_of(slope: float) -> tuple[float, float]:
        """Best prefactor at a slope, and χ² there."""
        shape = np.exp(slope * logs) / error
        best = float(shape @ target / (shape @ shape))
        return best, float(np.sum((target - best * shape) ** 2))

    from scipy.optimize import minimize_scalar

    slopes = np.linspace(*SLOPES, 161)
    start = int(np.argmin([prefactor_of(slope)[1] for slope in slopes]))
    around = slopes[max(0, start - 1)], slopes[min(start + 1, len(slopes) - 1)]
    found = minimize_scalar(lambda slope: prefactor_of(slope)[1], bounds=around, method="bounded")
    slope = float(found.x)
    prefactor, chi_square = prefactor_of(slope)
    # Two numbers were fitted: by chance alone they gain more than this in one case of a thousand.
    if np.sum(target**2) - chi_square < chdtri(2, 1e-3):
        return undefined
    shape = np.exp(slope * logs) / error
    jacobian = np.stack([shape, prefactor * logs * shape], axis=1)
    scatter = max(1.0, chi_square / (len(fitted) - 2))
    slope_error = np.sqrt(scatter * np.linalg.inv(jacobian.T @ jacobian)[1, 1])
    return PowerLaw(slope, float(slope_error), float(prefactor * centre**-slope), fitted)
