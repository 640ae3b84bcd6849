"""Means, variances and accuracies with Monte Carlo errors that are as large as the errors."""

import numpy as np
import pytest

from sampler.analysis.comparison import sampled_accuracy
from sampler.analysis.estimate import (
    batch_means,
    bootstrap,
    mean_of,
    mean_of_batches,
    variance_of,
    variance_of_batches,
)
from sampler.mcmc.draws import BATCHES_PER_CHAIN, BatchMoments
from tests.assertions import assert_equal_to_rounding
from tests.small import autoregressive

CHAINS, DRAWS, REPETITIONS = 4, 500, 400


def repeated_chains(rng, coefficient):
    """[chain, draw, repetition] of mean 0 and variance 1."""
    chains = autoregressive(rng, coefficient, (CHAINS * REPETITIONS, DRAWS))
    return np.moveaxis(chains.reshape(CHAINS, REPETITIONS, DRAWS), 1, 2)


def moments_of(draws):
    size = DRAWS // BATCHES_PER_CHAIN
    batches = draws.reshape(CHAINS, BATCHES_PER_CHAIN, size, -1)
    return BatchMoments(batches.mean(axis=2), (batches**2).mean(axis=2), size)


def squared_error_in_mcse(estimate, truth):
    """Mean of ((estimate − truth)/MCSE)² over repetitions, and its standard error if it is χ²."""
    ratio = ((estimate.value - truth) / estimate.mcse) ** 2
    return ratio.mean(), np.sqrt(2.0 / ratio.size)


@pytest.mark.parametrize("coefficient", [0.0, 0.7])
@pytest.mark.parametrize("estimator", [mean_of, variance_of])
def test_errors_are_as_large_as_their_mcse(estimator, coefficient, rng):
    """AR(1) chains: the variance of the mean is (1 + ρ)/(1 − ρ)/n, that of squares with ρ²."""
    draws = repeated_chains(rng, coefficient)
    estimate = estimator(draws)
    truth = 0.0 if estimator is mean_of else 1.0
    received, error = squared_error_in_mcse(estimate, truth)
    # An MCSE from an ESS that is itself estimated to a relative √(2/40) adds its own variance:
    # E[1/(1 + x)] ≈ 1 + Var x.
    assert abs(received - 1.0) <= 4 * error + 2 / 40, received
    correlation = coefficient if estimator is mean_of else coefficient**2
    spread = 1.0 if estimator is mean_of else 2.0
    variance = spread * (1 + correlation) / (1 - correlation) / (CHAINS * DRAWS)
    assert abs(np.mean(estimate.mcse**2) / variance - 1.0) <= 4 * error + 2 / 40


@pytest.mark.parametrize("estimator", [mean_of_batches, variance_of_batches])
def test_errors_of_batch_estimates_are_as_large_as_their_mcse(estimator, rng):
    """Independent draws: batch means of 80 batches give a t statistic with 79 degrees."""
    estimate = estimator(moments_of(repeated_chains(rng, 0.0)))
    truth = 0.0 if estimator is mean_of_batches else 1.0
    received, error = squared_error_in_mcse(estimate, truth)
    degrees = CHAINS * BATCHES_PER_CHAIN - 1
    assert abs(received - degrees / (degrees - 2)) <= 4 * error, received


def test_batch_moments_give_the_estimates_of_the_full_draws(rng):
    draws = 5.0 + repeated_chains(rng, 0.3)[..., :20]
    rounding = {"operations": 2 * CHAINS * DRAWS, "scale": (draws**2).max()}
    for full, batched in ((mean_of, mean_of_batches), (variance_of, variance_of_batches)):
        expected, received = full(draws), batched(moments_of(draws))
        assert_equal_to_rounding(received.value, expected.value, **rounding)


def test_batch_means_are_means_of_consecutive_draws(rng):
    draws = rng.standard_normal((2, 43, 3))
    received = batch_means(draws, batches_per_chain=10)
    assert received.shape == (2 * 10, 3)  # ten batches of four; the last three draws are left out
    assert_equal_to_rounding(received[0], draws[0, :4].mean(axis=0), operations=4, scale=4)
    assert_equal_to_rounding(received[-1], draws[1, 36:40].mean(axis=0), operations=4, scale=4)
    assert batch_means(draws[:, :3]).shape == (6, 3)


def test_bootstrap_of_what_never_changes_has_no_error(rng):
    """Not even rounding: shares like 0.959 have none of their own."""
    batches = 1.0 + rng.random((20, 1000))
    estimate = bootstrap(lambda means: (means > 0.0).mean(axis=-1) * 0.959, batches)
    assert estimate.value == 0.959
    assert estimate.mcse == 0.0


def test_bootstrap_of_the_mean_is_the_standard_error_of_the_mean(rng):
    batches = rng.standard_normal((50, 30))
    estimate = bootstrap(lambda means: means.mean(axis=-1), batches, replicates=2000)
    over = batches.mean(axis=1)
    expected = over.std() / np.sqrt(50)
    # a standard deviation from R replicates has a relative error of 1/√(2R)
    assert abs(estimate.mcse / expected - 1) <= 4 / np.sqrt(2 * 2000)
    assert_equal_to_rounding(estimate.value, over.mean(), operations=1500, scale=5.0)


def test_error_of_the_accuracy_is_that_of_repeated_sampling(rng):
    """With true means spread evenly over much more than their error, the bootstrap is unbiased.

    The variance of an accuracy is Σ Φ(1 − Φ) over test examples, Φ the chance of the right sign;
    averaging over estimated instead of true means leaves that sum as it is when means are even.
    """
    tests, draws, repetitions = 300, 40, 300
    means = np.linspace(-1.0, 1.0, tests)
    labels = rng.choice([-1.0, 1.0], (tests, 1))
    values, variances = [], []
    for _ in range(repetitions):
        sample = means + rng.standard_normal((2, draws, tests))
        received = sampled_accuracy(batch_means(sample, draws), labels)
        values.append(received.value)
        variances.append(received.mcse**2)
    # a resampled mean of n batches varies by (n − 1)/n of what a new one does
    expected = np.var(values, ddof=1) * (2 * draws - 1) / (2 * draws)
    error = np.hypot(
        np.sqrt(2 / (repetitions - 1)),
        np.std(variances) / np.mean(variances) / np.sqrt(repetitions),
    )
    assert abs(np.mean(variances) / expected - 1) <= 4 * error, (np.mean(variances), expected)


def test_binomial_error_is_that_of_the_size_of_the_test_set(rng):
    labels = np.ones((100, 1))
    batches = np.where(np.arange(100) < 80, 1.0, -1.0)[None] + 0.01 * rng.standard_normal((20, 100))
    received = sampled_accuracy(batches, labels)
    assert received.value == 0.8
    assert received.mcse == 0.0
    assert_equal_to_rounding(received.binomial_error, 0.04, operations=8)
