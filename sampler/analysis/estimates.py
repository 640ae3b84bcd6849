"""Estimates with their Monte Carlo errors: means and variances of draws, and functions of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from sampler.mcmc.convergence import mean_mcse
from sampler.mcmc.tempered import repetition_weights
from sampler.posterior.importance_weights import effective_draws
from sampler.streams import Stream, stream

# Arrays, labelled or not; labels that go in come out again.
Values = Any
Statistic = Callable[[Any], Values]


@dataclass(frozen=True)
class Estimate:
    """A number (or array of them) with its Monte Carlo standard error.

    deviations  [row, …], whose products of elements sum to the covariance of their errors, if known
    degrees     of freedom that errors and covariance are known by, of repetitions with weights w
                1/Σw² − 1; 0 if unknown
    test_error  standard error by the finite number of examples, which all predictors share
    spread      posterior standard deviation, of a setting that was sampled
    remark      how the number was obtained
    repetitions
                how many were weighed; 0 where there are no weights
    trusted     whether it may be used: by checks of its own, or by those of the draws
    """

    value: Values
    mcse: Values = np.nan
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

    def __sub__(self, predicted: xr.DataArray) -> "Estimate":
        """By how much the samples are above predictions, with the error of the samples.

        Axes meet by their names: of a table of the theory every predictor at once. The labels of
        an axis that both have must be the same.
        """
        with xr.set_options(arithmetic_join="exact"):
            return replace(self, value=self.value - predicted)

    def rows(
        self, chosen: Bool[np.ndarray, "*element"]
    ) -> tuple[Float[np.ndarray, "row chosen"], float | int]:
        """Deviations of chosen elements, and degrees of freedom.

        Without a covariance, errors are assumed fully correlated (conservative).
        """
        if self.deviations is None:
            return np.asarray(self.mcse)[chosen][None], self.degrees
        return self.deviations[:, chosen], self.degrees


class PredictorEstimates(NamedTuple):
    """Posterior mean and variance of f on the test set."""

    mean: Estimate
    variance: Estimate


# Bias by the largest weights, in `Averages.of_means`. By simulation of 8 to 32 repetitions,
# whose ln Z and means are Gaussian, correlated or not, or Z and the share of one of two modes, 95 %
# intervals cover 92 to 98 % where ln Z spreads by up to 1 (without it, and by the number of
# repetitions alone, 71 to 95 %), and 87 % at worst where means are quadratic in ln Z.
BEYOND = 3.0
# Repetitions of less weight than this power of e, relative to the mean one, count there as if they
# had that: what missed nearly all of the posterior hardly constrains its largest weights.
LOWEST_LOG = -1.5
ROUNDING = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Averages:
    """How draws [chain, draw, …] are averaged: chains alike, or repetitions by their weights.

    Draws of a repetition have ancestors in common: its mean counts as one number, whatever their
    number, and errors come from the spread of these means.

    weights  of the repetitions, summing to one; None where chains are Markov chains
    """

    weights: Float[np.ndarray, " repetition"] | None = None

    @classmethod
    def of(cls, statistics: Mapping[str, Any]) -> "Averages":
        """Weigh repetitions by the evidence that is among the statistics of draws."""
        return cls(repetition_weights(statistics))

    def mean(self, draws: Values) -> Estimate:
        """Mean over chains and draws, MCSE from the effective sample size.

        The covariance between elements is that of batch means. With weights of repetitions the
        mean is theirs, and MCSE and covariance come from the spread between them.
        """
        values = np.asarray(draws, dtype=np.float64)
        if self.weights is not None:
            found = self.of_means(values.mean(axis=1))
        else:
            found = Estimate(values.mean(axis=(0, 1)), mean_mcse(values), *_spread(values))
        value, mcse = (of_one_draw(draws, one) for one in (found.value, found.mcse))
        return replace(found, value=value, mcse=mcse)

    def of_means(self, means: np.ndarray) -> Estimate:
        """Σ_r w_r m_r of means, w_r in proportion to an evidence that varies with m_r.

        The deviations are changes of the mean without each repetition (jackknife),
        w_r/(1 − w_r) (m_r − m̄), and one more. Where m goes with the evidence, the repetitions that
        would have the largest weight are the rarest, and may be missing. To second order in the
        cumulants of ln w and m the mean is E[m] + Cov(ln w, m), which the middle of their
        distribution tells: how far that is from the weighted mean, `BEYOND` times, is the last row.
        """
        weights = self.weights
        value = np.tensordot(weights, means, axes=1)
        apart = means - value
        count, axes = len(weights), [1] * (means.ndim - 1)
        without = weights / np.maximum(1.0 - weights, ROUNDING) * np.sqrt((count - 1) / count)
        beyond = BEYOND * np.tensordot(cumulant_shares(weights), apart, axes=1)
        deviations = np.concatenate([without.reshape(-1, *axes) * apart, beyond[None]])
        error = np.sqrt(np.sum(deviations**2, axis=0))
        degrees = effective_draws(weights) - 1.0
        return Estimate(value, error, deviations, degrees, repetitions=count)

    def variance(self, draws: Values) -> Estimate:
        """Variance over chains and draws; MCSE that of the mean of squared deviations."""
        return self.mean(self.squared_deviations(draws))

    def squared_deviations(self, draws: Values) -> Values:
        """Squared deviations from the mean over all draws, of which the mean is unbiased."""
        values = np.asarray(draws, dtype=np.float64)
        count = values.shape[0] * values.shape[1]
        squares = (values - self.centre(values)) ** 2 * (count / (count - 1))
        return draws.copy(data=squares) if isinstance(draws, xr.DataArray) else squares

    def centre(self, draws: Values) -> Values:
        """The mean alone, over chains and draws."""
        values = np.asarray(draws)
        if self.weights is None:
            return of_one_draw(draws, np.asarray(values.mean(axis=(0, 1))))
        means = np.tensordot(self.weights, values.mean(axis=1), axes=1)
        return of_one_draw(draws, np.asarray(means))

    def batches(self, draws: Values) -> Values:
        """Means of ten consecutive batches of draws of each chain, [batch, …]; chains in order.

        A repetition is one batch.
        """
        values = np.asarray(draws)
        means = batch_means(values) if self.weights is None else values.mean(axis=1)
        if not isinstance(draws, xr.DataArray):
            return means
        one = draws.isel(chain=0, draw=0, drop=True)
        return one.expand_dims(batch=len(means)).copy(data=means)

    def mean_of_batches(self, batches: Values) -> Values:
        """Mean over batches [batch, …], or that of repetitions by their weights."""
        values = np.asarray(batches)
        mean = values.mean(0) if self.weights is None else np.tensordot(self.weights, values, 1)
        return batches[0].copy(data=mean) if isinstance(batches, xr.DataArray) else np.asarray(mean)

    def bootstrap(self, statistic: Statistic, batches: Values, replicates: int = 400) -> Estimate:
        """A function of the mean over batches, with its bootstrap error over batches.

        `statistic` maps [replicate, …] means to [replicate, …] numbers; it need not be smooth (an
        accuracy is not, which rules out the jackknife).
        """
        return self.of_replicates(statistic(self.resampled(batches, replicates)), len(batches))

    def resampled(self, batches: Values, replicates: int = 400) -> Values:
        """Means [replicate, …] of batches that are drawn again, with their weights.

        Behind them the mean of all, and of repetitions the middle of the distribution of their
        means.
        """
        weights, values, count = self.weights, np.asarray(batches), len(batches)
        even = np.full(count, 1 / count)
        shares = stream(0, Stream.BOOTSTRAP).multinomial(count, even, replicates) / count
        last = [np.asarray(self.mean_of_batches(values))]
        if weights is not None:
            shares = shares * weights
            shares = shares / shares.sum(axis=1, keepdims=True)
            # As in `of_means`, with no negative share: not every function takes what lies outside.
            middle = np.maximum(cumulant_shares(weights), 0.0)
            last.append(np.tensordot(middle / middle.sum(), values, axes=1))
        means = np.concatenate([np.tensordot(shares, values, axes=1), np.stack(last)])
        if not isinstance(batches, xr.DataArray):
            return means
        return batches[0].expand_dims(replicate=len(means)).copy(data=means)

    def of_replicates(self, found: Values, batches: int) -> Estimate:
        """The estimate of a function that has these values at `resampled` means of batches."""
        weights, values = self.weights, np.asarray(found, dtype=np.float64)
        place = -1 if weights is None else -2
        value, replicates, wider = found[place], values[:place], 1.0
        if weights is not None:
            # Of few batches drawn again the spread is smaller than that of the jackknife.
            without = weights / np.maximum(1.0 - weights, ROUNDING)
            wider = np.sqrt((batches - 1) / batches * np.sum(without**2) / np.sum(weights**2))
        # About the first of them, so that values that are all the same have no error at all.
        shifts = wider * (replicates - replicates[0])
        deviations = (shifts - shifts.mean(axis=0)) / np.sqrt(len(shifts) - 1)
        if weights is None:
            error = shifts.std(axis=0, ddof=1)
            return Estimate(value, _like(value, error), deviations, batches - 1)
        deviations = np.concatenate([deviations, BEYOND * (values[-1:] - values[place])])
        error = np.sqrt(np.sum(deviations**2, axis=0))
        degrees = effective_draws(weights) - 1.0
        return Estimate(value, _like(value, error), deviations, degrees, repetitions=batches)

    def predictor(self, draws: Mapping[Any, Values]) -> PredictorEstimates:
        """E[f] and Var[f]; Rao–Blackwellised, E[m] and E[v] + Var[m], where m and v are known."""
        if "predictor_mean" in draws:
            mean, variance = draws["predictor_mean"], draws["predictor_variance"]
            total = variance + self.squared_deviations(mean)
            return PredictorEstimates(self.mean(mean), self.mean(total))
        return PredictorEstimates(self.mean(draws["predictor"]), self.variance(draws["predictor"]))


# Chains that all count alike.
OF_CHAINS = Averages()


def batch_means(draws: np.ndarray, batches_per_chain: int = 10) -> np.ndarray:
    """Means of consecutive batches of draws [chain, draw, …], chains one after another."""
    size = max(1, draws.shape[1] // batches_per_chain)
    kept = draws[:, : size * (draws.shape[1] // size)]
    shape = (draws.shape[0] * (draws.shape[1] // size), size, *draws.shape[2:])
    return kept.reshape(shape).mean(axis=1)


def cumulant_shares(weights: Float[np.ndarray, " repetition"]) -> Float[np.ndarray, " repetition"]:
    """Shares a_r with Σ_r a_r m_r = mean of m + covariance of ln w and m; they add up to 1."""
    count = len(weights)
    logs = np.log(np.maximum(count * weights, np.exp(LOWEST_LOG)))
    return 1.0 / count + (logs - logs.mean()) / max(count - 1, 1)


def _spread(draws: np.ndarray) -> tuple[np.ndarray, int]:
    """Deviations of batch means, scaled to the error of their mean, and degrees of freedom."""
    batches = batch_means(draws)
    count = len(batches)
    return (batches - batches.mean(axis=0)) / np.sqrt(max(count * (count - 1), 1)), count - 1


# --- labels


def of_one_draw(draws: Values, values: Values) -> Values:
    """Values with the labels that one of the draws has, where it has some."""
    if not isinstance(draws, xr.DataArray):
        return values
    return draws.isel(chain=0, draw=0, drop=True).copy(data=values)


def _like(value: Values, error: Values) -> Values:
    return value.copy(data=error) if isinstance(value, xr.DataArray) else error
