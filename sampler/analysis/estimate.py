"""Means and variances of sampled quantities, each with its Monte Carlo standard error (MCSE)."""

from dataclasses import dataclass

import numpy as np
from arviz_stats.base import array_stats

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
