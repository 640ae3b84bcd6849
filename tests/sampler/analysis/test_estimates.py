"""Means, variances, accuracies and rank correlations, with errors of the size that they have."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from sampler.analysis.estimates import OF_CHAINS, Averages, batch_means
from sampler.analysis.scores import LabelMoments, hits
from tests.assertions import assert_equal_to_rounding
from tests.small import autoregressive
from theory.observables import binomial_error

CHAINS, DRAWS, REPETITIONS = 4, 500, 400
BATCHES = 20  # of two chains


def repeated_chains(rng, coefficient):
    """[chain, draw, repetition] of mean 0 and variance 1."""
    chains = autoregressive(rng, coefficient, (CHAINS * REPETITIONS, DRAWS))
    return np.moveaxis(chains.reshape(CHAINS, REPETITIONS, DRAWS), 1, 2)


def squared_error_in_mcse(estimate, truth):
    """Mean of ((estimate − truth)/MCSE)² over repetitions, and its standard error if it is χ²."""
    ratio = ((estimate.value - truth) / estimate.mcse) ** 2
    return ratio.mean(), np.sqrt(2.0 / ratio.size)


@pytest.mark.parametrize("coefficient", [0.0, 0.7])
@pytest.mark.parametrize("estimator", ["mean", "variance"])
def test_errors_are_as_large_as_their_mcse(estimator, coefficient, rng):
    """AR(1) chains: the variance of the mean is (1 + ρ)/(1 − ρ)/n, that of squares with ρ²."""
    draws = repeated_chains(rng, coefficient)
    estimate = getattr(OF_CHAINS, estimator)(draws)
    truth = 0.0 if estimator == "mean" else 1.0
    received, error = squared_error_in_mcse(estimate, truth)
    # An MCSE from an ESS that is itself estimated to a relative √(2/40) adds its own variance:
    # E[1/(1 + x)] ≈ 1 + Var x.
    assert abs(received - 1.0) <= 4 * error + 2 / 40, received
    correlation = coefficient if estimator == "mean" else coefficient**2
    spread = 1.0 if estimator == "mean" else 2.0
    variance = spread * (1 + correlation) / (1 - correlation) / (CHAINS * DRAWS)
    assert abs(np.mean(estimate.mcse**2) / variance - 1.0) <= 4 * error + 2 / 40


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
    estimate = OF_CHAINS.bootstrap(lambda means: (means > 0.0).mean(axis=-1) * 0.959, batches)
    assert estimate.value == 0.959
    assert estimate.mcse == 0.0


def test_bootstrap_of_the_mean_is_the_standard_error_of_the_mean(rng):
    batches = rng.standard_normal((50, 30))
    estimate = OF_CHAINS.bootstrap(lambda means: means.mean(axis=-1), batches, replicates=2000)
    over = batches.mean(axis=1)
    expected = over.std() / np.sqrt(50)
    # a standard deviation from R replicates has a relative error of 1/√(2R)
    assert abs(estimate.mcse / expected - 1) <= 4 / np.sqrt(2 * 2000)
    assert_equal_to_rounding(estimate.value, over.mean(), operations=1500, scale=5.0)
    # Deviations are about the mean of the replicates: their squares are the error's.
    assert np.sum(estimate.deviations**2) == pytest.approx(estimate.mcse**2, rel=1e-12)


@pytest.mark.heavy
def test_error_of_the_accuracy_is_that_of_repeated_sampling(rng):
    """With true means spread evenly over much more than their error, the bootstrap is unbiased.

    The variance of an accuracy is Σ Φ(1 − Φ) over test examples, Φ the chance of the right sign;
    averaging over estimated instead of true means leaves that sum as it is when means are even.
    """
    tests, draws, repetitions = 300, 40, 300
    means = np.linspace(-1.0, 1.0, tests)
    labels = xr.DataArray(rng.choice([-1.0, 1.0], (tests, 1)), dims=("example", "output"))
    values, variances = [], []
    for _ in range(repetitions):
        sample = means + rng.standard_normal((2, draws, tests))
        sample = xr.DataArray(sample[..., None], dims=("chain", "draw", *labels.dims))
        received = LabelMoments.of(sample, 0.0 * sample, 0.1).estimate(
            lambda mean, variance: hits(mean, variance, labels).mean("example")
        )
        values.append(received.value)
        variances.append(received.mcse**2)
    # a resampled mean of n batches varies by (n − 1)/n of what a new one does
    expected = np.var(values, ddof=1) * (BATCHES - 1) / BATCHES
    error = np.hypot(
        np.sqrt(2 / (repetitions - 1)),
        np.std(variances) / np.mean(variances) / np.sqrt(repetitions),
    )
    assert abs(np.mean(variances) / expected - 1) <= 4 * error, (np.mean(variances), expected)


def test_binomial_error_is_that_of_the_size_of_the_test_set():
    expected = np.sqrt(0.8 * 0.2 / 100 + 1 / 200**2) / 1.01
    assert_equal_to_rounding(binomial_error(0.8, 100), expected, operations=8)


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_binomial_error_is_half_of_wilsons_interval(share):
    """Where all test examples agree it is not 0."""
    test = scipy.stats.binomtest(round(200 * share), 200)
    low, high = test.proportion_ci(1.0 - 2.0 * scipy.stats.norm.sf(1.0), method="wilson")
    assert_equal_to_rounding(binomial_error(share, 200), (high - low) / 2, operations=256)


# --- repetitions, whose means count as one number each, weighed by their evidence


def repetitions_of(rng, count: int, particles: int = 50, coupling: float = 0.4):
    """Means that go up with the evidence of their repetition; their weighted mean is known.

    ln Z ~ N(0, coupling²), and all draws of a repetition have z = (ln Z)/coupling in common: the
    mean over repetitions weighed by Z is that of z under e^(coupling z) N(z; 0, 1), coupling.
    """
    common = rng.standard_normal(count)
    draws = common[:, None, None] + rng.standard_normal((count, particles, 1))
    evidence = np.exp(coupling * common)
    return draws, evidence / evidence.sum()


def test_errors_of_repetitions_are_those_of_their_weighted_means(rng):
    """And not those of draws, which would be seven times smaller."""
    scores, narrow, replicated = [], [], []
    for _ in range(REPETITIONS):
        draws, weights = repetitions_of(rng, 24)
        found = Averages(weights).mean(draws)
        scores.append((found.value - 0.4) / found.mcse)
        narrow.append(draws.std() / np.sqrt(draws[..., 0].size) / found.mcse)
        batches = Averages(weights).batches(draws)
        again = Averages(weights).bootstrap(lambda means: means[..., 0], batches, 100)
        replicated.append(again.mcse / found.mcse)
        assert again.value == pytest.approx(found.value[0], rel=1e-12)
    scores = np.ravel(scores)
    # Student's t of 23 degrees, but for the bias of a ratio and of its error, of order 1/24.
    assert abs(scores.mean()) < 4 / np.sqrt(REPETITIONS) + 0.15
    assert 0.9 < scores.std() < 1.35
    assert np.mean(narrow) < 0.3
    assert np.mean(replicated) == pytest.approx(1.0, abs=0.05)


def test_weighted_means_are_written_out(rng):
    draws, weights = rng.standard_normal((3, 5, 2)), np.array([0.2, 0.5, 0.3])
    found = Averages(weights).mean(draws)
    means = draws.mean(axis=1)
    value = sum(w * m for w, m in zip(weights, means, strict=True))
    np.testing.assert_allclose(found.value, value, rtol=1e-12)
    # The jackknife, from means without each repetition, and the mean to second order in cumulants.
    without = [np.average(np.delete(means, r, 0), 0, np.delete(weights, r)) for r in range(3)]
    square = sum((value - one) ** 2 for one in without) * 2 / 3
    logs = np.log(weights)
    covariance = sum((log - logs.mean()) * m for log, m in zip(logs, means, strict=True)) / 2
    square += (3.0 * (means.mean(axis=0) + covariance - value)) ** 2
    np.testing.assert_allclose(found.mcse**2, square, rtol=1e-12)
    np.testing.assert_allclose((found.deviations**2).sum(axis=0), square, rtol=1e-12)
    assert found.degrees == pytest.approx(1.0 / np.sum(weights**2) - 1.0, rel=1e-12)
    assert found.repetitions == 3
    variance = Averages(weights).variance(draws).value
    expected = sum(
        w * np.mean((one - value) ** 2, axis=0) for w, one in zip(weights, draws, strict=True)
    )
    np.testing.assert_allclose(variance, expected * 15 / 14, rtol=1e-12)


def test_equal_weights_are_the_mean_and_its_spread(rng):
    draws = rng.standard_normal((6, 40, 3))
    found = Averages(np.full(6, 1 / 6)).mean(draws)
    np.testing.assert_allclose(found.value, draws.mean(axis=(0, 1)), rtol=1e-12)
    expected = draws.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(6)
    np.testing.assert_allclose(found.mcse, expected, rtol=1e-12)
