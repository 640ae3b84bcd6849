"""Calibration: against loops, and on predictors that are known."""

import math

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from sampler.analysis.calibration import (
    BINS,
    calibration_error,
    calibration_error_of_test_set,
    probability_of_positive,
)
from tests.assertions import assert_equal_to_rounding


def test_probability_of_one_gaussian_is_that_of_its_densities(rng):
    """p(+1)/(p(+1) + p(−1))."""
    mean, variance = rng.standard_normal((7, 2)), rng.uniform(0.3, 1.0, (7, 2))
    plus, minus = (norm.pdf(label, mean, np.sqrt(variance)) for label in (1.0, -1.0))
    received = probability_of_positive(mean, variance)
    assert_equal_to_rounding(received, plus / (plus + minus), operations=1000, scale=1.0)


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


def test_several_outputs_are_pooled(rng):
    probability = rng.random((50, 3))
    positive = rng.random((50, 3)) < 0.5
    expected = calibration_error(probability.reshape(-1, 1), positive.reshape(-1, 1))
    received = calibration_error(probability, positive)
    assert_equal_to_rounding(received, expected, operations=150, scale=1.0)


def test_an_overconfident_predictor_is_off_by_what_quadrature_says(rng):
    """Twice the log odds: the error is that of the population."""
    truth = probabilities(rng, 4000)
    claimed = expit(2 * np.log(truth / (1 - truth)))
    positive = rng.random(truth.shape) < truth
    value, error = (
        calibration_error(claimed, positive),
        calibration_error_of_test_set(claimed, positive),
    )
    # ∫ |p_claimed − p| over the normal log odds: no bin holds both signs, which change at ½
    grid = np.linspace(-12.0, 12.0, 200_001)
    weight = np.exp(-0.5 * (grid / 2.0) ** 2) / (2.0 * np.sqrt(2 * np.pi))
    expected = np.trapezoid(np.abs(expit(2 * grid) - expit(grid)) * weight, grid)
    assert abs(value - expected) <= 4 * error, (value, expected)


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
