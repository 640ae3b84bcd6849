"""Expected calibration error and reliability: against loops, and on predictors that are known."""

import math

import numpy as np
import pytest
from scipy.special import expit

from sampler.analysis.predictive_quality import (
    BINS,
    calibration,
    calibration_error,
    reliability,
    wilson_interval,
)
from tests.assertions import assert_equal_to_rounding


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


def test_bins_and_error_are_those_of_a_loop(rng):
    probability = np.concatenate([probabilities(rng, 200), [[0.0], [0.3], [0.5], [1.0]]])
    positive = rng.random(probability.shape) < 0.5
    rows = iter(reliability(probability, positive))
    expected = 0.0
    for place, members in enumerate(plain_bins(probability, positive)):
        if not members:
            continue
        row = next(rows)
        mean = math.fsum(p for p, _ in members) / len(members)
        share = sum(y for _, y in members) / len(members)
        assert (row.low, row.high) == (place / BINS, (place + 1) / BINS)
        assert row.count == len(members)
        assert row.fraction == share
        assert_equal_to_rounding(row.mean_probability, mean, operations=len(members))
        expected += len(members) / len(probability) * abs(mean - share)
    assert not list(rows)
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
    assert sum(row.count for row in reliability(probability, positive)) == 150


@pytest.mark.parametrize("seed", range(5))
def test_a_calibrated_predictor_is_as_far_off_as_chance_makes_it(seed):
    rng = np.random.default_rng(seed)
    probability = probabilities(rng, 1000)
    found = calibration(probability, rng.random(probability.shape) < probability)
    assert found.value > 0  # the bias
    assert abs(found.value - found.if_calibrated) <= 4 * found.if_calibrated_deviation


def test_an_overconfident_predictor_is_further_off_than_chance(rng):
    """Twice the log odds: the error is that of the population, computed by quadrature."""
    truth = probabilities(rng, 4000)
    claimed = expit(2 * np.log(truth / (1 - truth)))
    found = calibration(claimed, rng.random(truth.shape) < truth)
    assert found.value > found.if_calibrated + 4 * found.if_calibrated_deviation
    # ∫ |p_claimed − p| over the normal log odds: no bin holds both signs, which change at ½
    grid = np.linspace(-12.0, 12.0, 200_001)
    weight = np.exp(-0.5 * (grid / 2.0) ** 2) / (2.0 * np.sqrt(2 * np.pi))
    expected = np.trapezoid(np.abs(expit(2 * grid) - expit(grid)) * weight, grid)
    assert abs(found.value - expected) <= 4 * found.error, (found, expected)


def test_the_error_of_the_calibration_error_is_its_spread_over_test_sets(rng):
    """Far from calibration, where |·| is smooth, forty test sets vary as each of them says."""
    values, errors = [], []
    for _ in range(40):
        truth = probabilities(rng, 200)
        claimed = expit(3 * np.log(truth / (1 - truth)))
        found = calibration(claimed, rng.random(truth.shape) < truth)
        values.append(found.value)
        errors.append(found.error)
    reported = np.sqrt(np.mean(np.square(errors)))
    # a standard deviation of 40 values has a relative error of 1/√(2·39)
    assert abs(np.std(values, ddof=1) / reported - 1) <= 4 / np.sqrt(2 * 39)


def test_wilson_interval_holds_the_share_where_its_score_is_one_deviation():
    positive, count = np.array([1, 3, 0, 100]), np.array([1, 7, 30, 400])
    fraction = positive / count

    def intervals(deviations):
        pairs = zip(positive.tolist(), count.tolist(), strict=True)
        return np.array([wilson_interval(*pair, deviations) for pair in pairs]).T

    for deviations in (1.0, 2.0):
        for end in intervals(deviations):
            received, expected = (fraction - end) ** 2 * count, deviations**2 * end * (1 - end)
            assert_equal_to_rounding(received, expected, operations=20, scale=count.max())
    low, high = intervals(1.0)
    assert np.all(high - low > 0)
    assert np.all(low > -1e-15)
    assert np.all(high < 1 + 1e-15)


def test_the_error_of_a_bin_is_half_its_wilson_interval(rng):
    claimed = probabilities(rng, 60)
    for found in reliability(claimed, rng.random(claimed.shape) < claimed):
        positive = round(found.fraction * found.count)
        low, high = wilson_interval(positive, found.count)
        assert found.interval() == (low, high)
        assert found.error == (high - low) / 2
        assert low < found.fraction + 1e-12
        assert high > found.fraction - 1e-12
