"""Scores of one Gaussian at every label, of theories and draws alike: against plain formulas."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

from sampler.analysis.estimates import batch_means
from sampler.analysis.scores import LabelMoments, density, error_of_mean
from tests.assertions import assert_equal_to_rounding
from tests.small import TEST

TEMPERATURE = 0.2


AXES = ("test_example", "output")


def labelled(values: np.ndarray) -> xr.DataArray:
    """Values with the axes of labels, or of draws of them."""
    return xr.DataArray(values, dims=("chain", "draw", *AXES)[-values.ndim :])


def moments_of(mean, variance, temperature=TEMPERATURE) -> LabelMoments:
    return LabelMoments.of(labelled(mean), labelled(variance), temperature)


def mean_of_density(labels: np.ndarray):
    return lambda mean, variance: density(mean, variance, labelled(labels)).mean("test_example")


def test_the_error_of_a_density_is_that_of_a_mean_over_examples(rng):
    labels = rng.choice([-1.0, 1.0], (TEST, 2))
    mean, variance = rng.standard_normal((TEST, 2)), rng.uniform(0.1, 1.0, (TEST, 2))
    received = density(labelled(mean), labelled(variance + TEMPERATURE), labelled(labels))
    logs = norm.logpdf(labels, mean, np.sqrt(variance + TEMPERATURE)).mean(axis=1)
    assert_equal_to_rounding(received.values, logs, operations=100, scale=10.0)
    error = logs.std(ddof=1) / np.sqrt(TEST)
    assert_equal_to_rounding(error_of_mean(received), error, operations=100, scale=10.0)


@pytest.mark.parametrize("collapsed", [True, False])
def test_a_label_varies_within_and_between_draws_and_by_the_temperature(collapsed, rng):
    """E[v] + Var[m] + ⟨𝒯⟩; of draws of all weights v is 0, and nothing else is different."""
    shape = (2, 30, TEST, 1)
    mean, temperature = rng.standard_normal(shape), 10.0 ** rng.uniform(-2.0, 1.0, shape[:2])
    variance = rng.uniform(0.1, 1.0, shape) if collapsed else np.zeros(shape)
    noise = xr.DataArray(temperature, dims=("chain", "draw"))
    received = moments_of(mean, variance, noise).posterior
    flat = mean.reshape(-1, TEST, 1)
    total = variance.mean(axis=(0, 1)) + flat.var(axis=0, ddof=1) + temperature.mean()
    np.testing.assert_allclose(received[0], flat.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(received[1], total, rtol=1e-12)


def test_both_kinds_of_draws_have_the_same_score(rng):
    """f = m + √v ε: weights and order parameters differ by the noise of ε alone."""
    labels, shape = rng.choice([-1.0, 1.0], (TEST, 1)), (4, 4000, TEST, 1)
    mean = 0.5 * rng.standard_normal(shape)
    variance = rng.uniform(0.1, 0.5, shape)
    outputs = mean + np.sqrt(variance) * rng.standard_normal(shape)
    collapsed, drawn = (
        moments_of(m, v).estimate(mean_of_density(labels))
        for m, v in ((mean, variance), (outputs, np.zeros(shape)))
    )
    error = np.hypot(collapsed.mcse, drawn.mcse)
    assert abs(collapsed.value - drawn.value) <= 4.0 * error
    assert error < 0.01


def test_means_of_some_batches_have_their_own_variance(rng):
    """What a bootstrap asks for: means of batches that are not the mean over all draws."""
    values = rng.standard_normal((2, 30, TEST, 1))
    moments = moments_of(values, np.zeros_like(values))
    some = values.reshape(-1, 3, TEST, 1)[:4]
    mean, square = some.mean(axis=(0, 1)), (some**2).mean(axis=(0, 1))
    received = moments.moments(moments.batches[:4].mean("batch"))
    np.testing.assert_allclose(received[0], mean, atol=1e-13)
    expected = (square - mean**2) * 60 / 59 + TEMPERATURE
    np.testing.assert_allclose(received[1], expected, rtol=1e-12)
    np.testing.assert_allclose(moments.batches[..., 0], batch_means(values), rtol=1e-13)


def test_draws_that_hardly_differ_have_no_negative_variance(rng):
    """Far from 0 the spread of f is lost in the rounding of its square, and 𝒯 does not hide it."""
    values = 1e3 + 1e-13 * rng.standard_normal((2, 20, TEST, 1))
    moments = moments_of(values, np.zeros_like(values), 1e-30)
    found = moments.estimate(mean_of_density(np.ones((TEST, 1))))
    assert np.isfinite(found.value)
    assert np.isfinite(found.mcse)
