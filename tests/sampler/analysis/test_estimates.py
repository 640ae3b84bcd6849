"""Means, variances and functions of them, with errors of the size that they have.

Coverage of means over repetitions is in `tests/calibration`, scores in `tests/told`.
"""

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.estimates import OF_CHAINS
from sampler.analysis.scores import LabelMoments, density
from tests.assertions import assert_equal_to_rounding
from tests.small import TEST, autoregressive

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
