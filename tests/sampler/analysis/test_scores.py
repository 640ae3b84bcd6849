"""Scores of one Gaussian at every label, of theories and draws alike: against plain formulas."""

import numpy as np
import xarray as xr

from sampler.analysis.scores import LabelMoments, density
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


def test_draws_that_hardly_differ_have_no_negative_variance(rng):
    """Far from 0 the spread of f is lost in the rounding of its square, and 𝒯 does not hide it."""
    values = 1e3 + 1e-13 * rng.standard_normal((2, 20, TEST, 1))
    moments = moments_of(values, np.zeros_like(values), 1e-30)
    found = moments.estimate(mean_of_density(np.ones((TEST, 1))))
    assert np.isfinite(found.value)
    assert np.isfinite(found.mcse)
