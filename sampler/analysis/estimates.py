"""Estimates with their Monte Carlo errors: means and variances of draws, and functions of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from sampler.mcmc.convergence import mean_mcse
from sampler.posterior.importance_weights import effective_draws
from sampler.streams import Stream, stream


@dataclass(frozen=True)
class Estimate:
    """A number (or array of them) with its Monte Carlo standard error.

    deviations  [row, …], whose products of elements sum to the covariance of their errors, if known
    degrees     of freedom that errors and covariance are known by, of repetitions with weights w
                1/Σw² − 1; 0 if that is not known
    test_error  standard error by the finite number of examples, which all predictors share
    spread      posterior standard deviation, of a setting that was sampled
    remark      how the number was obtained
    repetitions
                how many were weighed; 0 where there are no weights
    trusted     whether it may be used: by checks of its own, or by those of the draws
    """

    value: np.ndarray | np.floating | float
    mcse: np.ndarray | np.floating | float = np.nan
    deviations: np.ndarray | None = None
    degrees: float | int = 0
    test_error: float = np.nan
    spread: float = np.nan
    remark: str = ""
    repetitions: int = 0
    trusted: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes of the value; empty of a number."""
        return np.shape(self.value)

    def rows(
        self, chosen: Bool[np.ndarray, "*element"]
    ) -> tuple[Float[np.ndarray, "row chosen"], float | int]:
        """Deviations of chosen elements, and degrees of freedom.

        Without a covariance, errors are assumed fully correlated (conservative).
        """
        if self.deviations is None:
            return np.asarray(self.mcse)[chosen][None], self.degrees
        return self.deviations[:, chosen], self.degrees


# Weights of repetitions, summing to one, where chains are such; None where they are Markov chains.
# Draws of a repetition have ancestors in common: its mean counts as one number, whatever their
# number, and errors come from the spread of these means.
RepetitionWeights = Float[np.ndarray, " repetition"] | None
# What the largest weights may hide, in `over_repetitions`. By simulation of 8 to 32 repetitions,
# whose ln Z and means are Gaussian, correlated or not, or Z and the share of one of two modes, 95 %
# intervals cover 92 to 98 % where ln Z spreads by up to 1 (without it, and by the number of
# repetitions alone, 71 to 95 %), and 87 % at worst where means are quadratic in ln Z.
BEYOND = 3.0
# Repetitions of less weight than this power of e, relative to the mean one, count there as if they
# had that: what missed nearly all of the posterior says little about its largest weights.
LOWEST_LOG = -1.5
ROUNDING = float(np.finfo(np.float64).eps)


def mean_of(draws: np.ndarray, weights: RepetitionWeights = None) -> Estimate:
    """Mean over chains and draws, MCSE from the effective sample size; draws [chain, draw, …].

    The covariance between elements is that of batch means. With weights of repetitions the mean is
    theirs, and MCSE and covariance come from the spread between them.
    """
    draws = np.asarray(draws, dtype=np.float64)
    if weights is not None:
        return over_repetitions(batch_means(draws, weights=weights), weights)
    return Estimate(draws.mean(axis=(0, 1)), mean_mcse(draws), *_spread(batch_means(draws)))


def over_repetitions(means: np.ndarray, weights: np.ndarray) -> Estimate:
    """Σ_r w_r m_r of means [repetition, …], w_r in proportion to an evidence that varies with m_r.

    The deviations are what the mean changes by without each repetition (jackknife),
    w_r/(1 − w_r) (m_r − m̄), and one more. Where m goes with the evidence, the repetitions that
    would have the largest weight are the rarest, and may be missing. To second order in the
    cumulants of ln w and m the mean is E[m] + Cov(ln w, m), which the middle of their law tells:
    how far that is from the weighted mean, `BEYOND` times, is the last row.
    """
    value = np.tensordot(weights, means, axes=1)
    apart = means - value
    count, axes = len(weights), [1] * (means.ndim - 1)
    without = weights / np.maximum(1.0 - weights, ROUNDING) * np.sqrt((count - 1) / count)
    beyond = BEYOND * np.tensordot(cumulant_shares(weights), apart, axes=1)
    deviations = np.concatenate([without.reshape(-1, *axes) * apart, beyond[None]])
    error = np.sqrt(np.sum(deviations**2, axis=0))
    degrees = effective_draws(weights) - 1.0
    return Estimate(value, error, deviations, degrees, repetitions=count)


def cumulant_shares(weights: Float[np.ndarray, " repetition"]) -> Float[np.ndarray, " repetition"]:
    """Shares a_r with Σ_r a_r m_r = mean of m + covariance of ln w and m; they add up to 1."""
    count = len(weights)
    logs = np.log(np.maximum(count * weights, np.exp(LOWEST_LOG)))
    return 1.0 / count + (logs - logs.mean()) / max(count - 1, 1)


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
    chosen = stream(seed, Stream.BOOTSTRAP).multinomial(
        count, np.full(count, 1 / count), replicates
    )
    shares, wider = chosen / count, 1.0
    if weights is not None:
        shares = chosen * weights
        shares = shares / shares.sum(axis=1, keepdims=True)
        # Of few batches drawn again the spread is smaller than that of the jackknife.
        without = weights / np.maximum(1.0 - weights, ROUNDING)
        wider = np.sqrt((count - 1) / count * np.sum(without**2) / np.sum(weights**2))
    means = np.tensordot(shares, batches, axes=1)
    values = np.asarray(statistic(means), dtype=np.float64)
    # About the first of them, so that values that are all the same have no error at all.
    shifts = wider * (values - values[0])
    deviations = (shifts - shifts.mean(axis=0)) / np.sqrt(replicates - 1)
    value = np.asarray(statistic(mean_over_batches(batches, weights)[None]))[0]
    if weights is None:
        return Estimate(value, shifts.std(axis=0, ddof=1), deviations, count - 1)
    # As in `over_repetitions`, with no negative share: not every function takes what lies outside.
    shares = np.maximum(cumulant_shares(weights), 0.0)
    middle = np.tensordot(shares / shares.sum(), batches, axes=1)
    beyond = BEYOND * (np.asarray(statistic(middle[None]), dtype=np.float64) - value)
    deviations = np.concatenate([deviations, beyond])
    error = np.sqrt(np.sum(deviations**2, axis=0))
    degrees = effective_draws(weights) - 1.0
    return Estimate(value, error, deviations, degrees, repetitions=count)


class PredictorEstimates(NamedTuple):
    """Posterior mean and variance of f on the test set."""

    mean: Estimate
    variance: Estimate


def predictor_estimates(
    draws: Mapping[str, np.ndarray], weights: RepetitionWeights = None
) -> PredictorEstimates:
    """E[f] and Var[f]; Rao–Blackwellised, E[m] and E[v] + Var[m], where m and v are known."""
    if "predictor_mean" in draws:
        mean, variance = draws["predictor_mean"], draws["predictor_variance"]
        total = variance + squared_deviations(mean, weights)
        return PredictorEstimates(mean_of(mean, weights), mean_of(total, weights))
    values = draws["predictor"]
    return PredictorEstimates(mean_of(values, weights), variance_of(values, weights))
