"""Means, functions of them, and differences from a theory, known as well as they claim.

Coverage of means over repetitions is in `tests/calibration`, scores in `tests/told`.
"""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import chi2, ncx2

from sampler.analysis.calibration import calibration_error
from sampler.analysis.difference import (
    Noise,
    SquaredDistance,
    difference_of,
    element_bound,
)
from sampler.analysis.estimates import OF_CHAINS, Averages, Estimate
from sampler.analysis.scores import LabelMoments, density
from tests.problems import TEST
from tests.told import expected


def test_a_repetition_that_missed_the_posterior_counts_little_beyond_the_others(rng):
    """Below e^−1.5 of the mean weight it has that in the cumulants of the evidence."""
    weights, draws = np.array([0.55, 0.449, 0.001]), rng.standard_normal((3, 50, 4))
    received, one = Averages(weights).mean(draws), expected.mean_of(draws, weights)
    np.testing.assert_allclose(received.value, one.value, rtol=1e-12)
    np.testing.assert_allclose(received.mcse, one.error, rtol=1e-12)


def test_bootstrap_of_what_never_changes_has_no_error(rng):
    """Not even rounding: shares like 0.959 have none of their own."""
    batches = 1.0 + rng.random((20, 1000))
    estimate = OF_CHAINS.bootstrap(lambda means: (means > 0.0).mean(axis=-1) * 0.959, batches)
    assert estimate.value == 0.959
    assert estimate.mcse == 0.0


def test_draws_that_hardly_differ_have_no_negative_variance(rng):
    """Far from 0 the spread of f is lost in the rounding of its square, and 𝒯 does not hide it."""
    axes = ("chain", "draw", "test_example", "output")
    values = xr.DataArray(1e3 + 1e-13 * rng.standard_normal((2, 20, TEST, 1)), dims=axes)
    labels = xr.DataArray(np.ones((TEST, 1)), dims=axes[2:])
    moments = LabelMoments.of(values, xr.zeros_like(values), 1e-30)
    found = moments.estimate(
        lambda mean, variance: density(mean, variance, labels).mean("test_example")
    )
    assert np.isfinite([found.value, found.mcse]).all()


def test_certain_predictions_are_in_the_last_bin():
    """Each of two predictors has bins of its own."""
    chances = np.array([[1.0, 0.95, 0.0, 0.05], [0.0, 0.05, 0.45, 0.55]])[..., None]
    positive = np.array([False, True, False, True])[:, None]
    found = calibration_error(chances, positive)
    # Surpluses 1 − 0.05 and 0 − 0.95; then 0 − 0.95, 0.45 and −0.45.
    np.testing.assert_allclose(found, [1.9 / 4, 1.85 / 4])


# --- differences: their coverage is in `tests/calibration`


def test_the_square_of_a_difference_has_no_bias(rng):
    """Without a difference it is negative as often as its noise asks for, and 0 on average."""
    elements, batches, runs = 50, 40, 2000
    spread = rng.normal(size=(elements, elements)) / np.sqrt(elements)
    squares = []
    for run in range(runs):
        means = rng.normal(size=(batches, elements)) @ spread
        deviations = (means - means.mean(axis=0)) / np.sqrt(batches * (batches - 1))
        variances, mean = np.sum(deviations**2, axis=0), means.mean(axis=0)
        noise = Noise.of(deviations, float(np.sum(variances)), batches - 1)
        squares.append(SquaredDistance.of(mean, mean, noise).excess)
        if run % 100 == 0:  # a difference has it, with an interval that takes long to find
            estimate = Estimate(mean, np.sqrt(variances), deviations, batches - 1)
            whole = difference_of(np.zeros(elements), estimate, unit="1")
            assert whole["square"] == pytest.approx(squares[-1], rel=1e-9, abs=1e-12)
    noise = np.trace(spread.T @ spread) / batches
    error = np.std(squares) / np.sqrt(runs)
    assert abs(np.mean(squares)) < 4.0 * error
    assert error < 0.01 * noise  # what would be added without the correction


@pytest.mark.parametrize(("elements", "size"), [(1, 0.0), (1, 3.0), (6, 0.0), (6, 2.5), (80, 5.0)])
def test_the_law_of_a_squared_distance_is_the_noncentral_chi_square(elements, size):
    """Equal variances and many degrees of freedom, where the law is known exactly."""
    noise = Noise(np.zeros((1, 1)), float(elements), float(elements), 10**12)
    distance = SquaredDistance(0.0, noise, 1.0)
    for probability in (0.025, 0.25, 0.5, 0.75, 0.975):
        exact = (
            ncx2.ppf(probability, elements, size**2) if size else chi2.ppf(probability, elements)
        )
        # Three moments agree; without a difference it is the law itself.
        tolerance = 0.012 if size else 1e-8
        assert distance.below(exact, size**2) == pytest.approx(probability, abs=tolerance)


def test_a_bound_of_one_element_is_that_of_a_difference_of_one_number():
    for gap, mcse, degrees in ((0.0, 0.1, 39), (0.15, 0.1, 39), (0.15, 0.1, 9)):
        estimate = Estimate(np.array([1.0]), np.array([mcse]), None, degrees)
        whole = difference_of(np.array([1.0 - gap]), estimate, unit="1")
        assert element_bound(gap, mcse, degrees) == pytest.approx(whole["below"], rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "state"),
    [([0.15] * 6 + [0.01] * 10, "resolved"), ([1 / 7] * 7, "not enough draws")],
)
def test_that_repetitions_are_enough_is_asked_of_their_number(weights, state, rng):
    """Sixteen that are worth 7.4 are enough, seven alike are not; eight are needed."""
    weights = np.array(weights)
    means = 10.0 + 0.01 * rng.standard_normal((len(weights), 2))
    assert 1 / np.sum(weights**2) < 8
    received = difference_of(np.full(2, 6.0), Averages(weights).of_means(means))
    assert received["state"] == state
    assert received["difference"] == pytest.approx(0.4, rel=0.01)


@pytest.mark.parametrize(
    ("mcse", "degrees", "state"),
    [
        (0.001, 39, "resolved"),
        (0.001, 7, "resolved"),
        (0.001, 6, "not enough draws"),
        (0.001, 0, "not enough draws"),
        (0.9, 39, "not enough draws"),  # the quantity itself is hardly there
    ],
)
def test_what_can_be_said_of_a_difference(mcse, degrees, state):
    """Also where errors are known by almost nothing; elements without a number are left out."""
    value, error = np.array([1.0, 3.0, 2.0]), np.array([mcse, mcse, np.nan])
    theory = np.array([0.5, np.nan, 2.0])
    received = difference_of(theory, Estimate(value, error, None, degrees))
    assert received["state"] == state
    assert received["compared"] == 1
    assert difference_of(theory, Estimate(value, np.full(3, np.nan), None, 39)) == {}
