"""Means, variances, scores and calibration of draws, with errors of the size that they have."""

import math

import numpy as np
import pytest
import scipy.stats
import xarray as xr
from scipy.special import expit

from sampler.analysis.calibration import (
    BINS,
    calibration_error,
    calibration_error_of_test_set,
)
from sampler.analysis.estimates import OF_CHAINS, Averages
from sampler.analysis.scores import LabelMoments, density
from tests.assertions import assert_equal_to_rounding
from tests.small import TEST, autoregressive
from theory.observables import binomial_error

CHAINS, DRAWS, REPETITIONS = 4, 500, 400


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


# --- scores of one Gaussian at every label, of theories and draws alike: against plain formulas


TEMPERATURE = 0.2


AXES = ("test_example", "output")


def labelled(values: np.ndarray) -> xr.DataArray:
    """Values with the axes of labels, or of draws of them."""
    return xr.DataArray(values, dims=("chain", "draw", *AXES)[-values.ndim :])


def moments_of(mean, variance, temperature=TEMPERATURE) -> LabelMoments:
    return LabelMoments.of(labelled(mean), labelled(variance), temperature)


def mean_of_density(labels: np.ndarray):
    return lambda mean, variance: density(mean, variance, labelled(labels)).mean("test_example")


def test_draws_that_hardly_differ_have_no_negative_variance(rng):
    """Far from 0 the spread of f is lost in the rounding of its square, and 𝒯 does not hide it."""
    values = 1e3 + 1e-13 * rng.standard_normal((2, 20, TEST, 1))
    moments = moments_of(values, np.zeros_like(values), 1e-30)
    found = moments.estimate(mean_of_density(np.ones((TEST, 1))))
    assert np.isfinite(found.value)
    assert np.isfinite(found.mcse)


# --- calibration: against loops, and on predictors that are known


def plain_bins(probability, positive):
    """Members of each bin, example by example."""
    members = [[] for _ in range(BINS)]
    for p, y in zip(probability.ravel(), positive.ravel(), strict=True):
        place = 0
        while place + 1 < BINS and p >= (place + 1) / BINS:
            place += 1
        members[place].append((p, y))
    return members


def probabilities(rng, size, spread=2.0):
    """Probabilities [example, output] that cover [0, 1]."""
    return expit(spread * rng.standard_normal((size, 1)))


def test_the_error_is_that_of_a_loop_over_bins(rng):
    probability = np.concatenate([probabilities(rng, 200), [[0.0], [0.3], [0.5], [1.0]]])
    positive = rng.random(probability.shape) < 0.5
    expected = 0.0
    for members in filter(None, plain_bins(probability, positive)):
        mean = math.fsum(p for p, _ in members) / len(members)
        share = sum(y for _, y in members) / len(members)
        expected += len(members) / len(probability) * abs(mean - share)
    received = float(calibration_error(probability, positive))
    assert_equal_to_rounding(received, expected, operations=300, scale=1.0)
    both = np.stack([probability, 1 - probability])
    received = calibration_error(both, np.stack([positive, ~positive]))
    assert received.shape == (2,)
    assert received[0] == calibration_error(probability, positive)


def test_the_error_of_the_calibration_error_is_its_spread_over_test_sets(rng):
    """Far from calibration, where |·| is smooth, forty test sets vary as each of them says."""
    values, errors = [], []
    for _ in range(40):
        truth = probabilities(rng, 200)
        claimed = expit(3 * np.log(truth / (1 - truth)))
        positive = rng.random(truth.shape) < truth
        values.append(float(calibration_error(claimed, positive)))
        errors.append(calibration_error_of_test_set(claimed, positive))
    reported = np.sqrt(np.mean(np.square(errors)))
    # a standard deviation of 40 values has a relative error of 1/√(2·39)
    assert abs(np.std(values, ddof=1) / reported - 1) <= 4 / np.sqrt(2 * 39)
