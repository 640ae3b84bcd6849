"""Calibration and the mixture over draws: against loops, and on predictors that are known."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from sampler.analysis.calibration import (
    BINS,
    calibration_error,
    calibration_error_of_test_set,
    error_if_calibrated,
    mixture_density,
    probability_of_positive,
    reliability,
    wilson_interval,
)
from tests.assertions import assert_equal_to_rounding
from tests.small import TEST, signs

TEMPERATURE = 0.2


def draws_of(rng, shape=(2, 20, TEST, 1), **further) -> dict[str, np.ndarray]:
    """Draws that know their own mean and variance."""
    mean, variance = rng.standard_normal(shape), rng.uniform(0.1, 1.0, shape)
    return {"predictor_mean": mean, "predictor_variance": variance, **further}


def test_probability_of_one_gaussian_is_that_of_its_densities(rng):
    """p(+1)/(p(+1) + p(−1))."""
    mean, variance = rng.standard_normal((7, 2)), rng.uniform(0.3, 1.0, (7, 2))
    plus, minus = (norm.pdf(label, mean, np.sqrt(variance)) for label in (1.0, -1.0))
    received = probability_of_positive(mean, variance)
    assert_equal_to_rounding(received, plus / (plus + minus), operations=1000, scale=1.0)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("sampled", [False, True])
def test_the_density_of_a_mixture_is_that_of_a_loop(outputs, sampled, rng):
    """ln ⟨N(y; m_d, v_d + 𝒯_d)⟩, with temperatures over three orders of magnitude."""
    labels, shape = rng.choice([-1.0, 1.0], (TEST, outputs)), (2, 20, TEST, outputs)
    draws, temperature = draws_of(rng, shape), np.full((2, 20), TEMPERATURE)
    if sampled:
        temperature = 10.0 ** rng.uniform(-2.0, 1.0, (2, 20))
    logs = []
    for i, c in np.ndindex(TEST, outputs):
        densities = [
            norm.pdf(
                labels[i, c],
                draws["predictor_mean"][k, d, i, c],
                math.sqrt(draws["predictor_variance"][k, d, i, c] + temperature[k, d]),
            )
            for k, d in np.ndindex(2, 20)
        ]
        logs.append(math.log(math.fsum(densities) / 40))
    received = mixture_density(draws, labels, temperature if sampled else TEMPERATURE)
    expected = math.fsum(logs) / len(logs)
    assert_equal_to_rounding(float(received.value), expected, operations=1000, scale=10.0)


def test_densities_that_underflow_still_have_logarithms():
    """Every draw as far from the label as exp cannot say."""
    draws = {
        "predictor_mean": np.full((2, 10, 3), 1.0),
        "predictor_variance": np.full((2, 10, 3), 1e-5),
    }
    expected = norm.logpdf(-1.0, 1.0, math.sqrt(2e-5))
    assert math.exp(expected) == 0.0
    received = mixture_density(draws, -np.ones((3, 1)), 1e-5)
    assert_equal_to_rounding(float(received.value), expected, operations=20)


def test_the_monte_carlo_error_of_a_mixture_is_the_spread_over_repetitions(rng):
    labels = signs(rng)
    centres = rng.standard_normal(TEST)
    values, errors = [], []
    for _ in range(40):
        mean = centres + rng.standard_normal((4, 60, TEST))
        draws = {"predictor_mean": mean, "predictor_variance": np.full_like(mean, 0.3)}
        found = mixture_density(draws, labels, TEMPERATURE)
        values.append(float(found.value))
        errors.append(float(found.mcse))
    reported = np.sqrt(np.mean(np.square(errors)))
    # 40 values and, in each error, 40 batches: relative errors of their deviations
    error = np.hypot(1 / np.sqrt(2 * 39), 1 / np.sqrt(40 * 2 * 39))
    assert abs(np.std(values, ddof=1) / reported - 1) <= 4 * error


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
    value = calibration_error(probability, rng.random(probability.shape) < probability)
    mean, deviation = error_if_calibrated(probability)
    assert value > 0  # the bias
    assert abs(value - mean) <= 4 * deviation


def test_an_overconfident_predictor_is_further_off_than_chance(rng):
    """Twice the log odds: the error is that of the population, computed by quadrature."""
    truth = probabilities(rng, 4000)
    claimed = expit(2 * np.log(truth / (1 - truth)))
    positive = rng.random(truth.shape) < truth
    value, error = (
        calibration_error(claimed, positive),
        calibration_error_of_test_set(claimed, positive),
    )
    mean, deviation = error_if_calibrated(claimed)
    assert value > mean + 4 * deviation
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
