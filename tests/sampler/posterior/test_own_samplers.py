"""Samplers of other libraries find, on the exported density, the posterior that is known."""

import jax
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.posterior.flat_density import FlatDensity
from tests.assertions import assert_within_mcse
from tests.benchmarks.own_samplers import (
    AXES,
    SAMPLERS,
)
from tests.problems import all_but, exact_scalar_posterior, scalar_problem, space_of

# The library of each, and its steps before and after it has adapted.
LIBRARIES = {
    "BlackJAX, NUTS": ("blackjax", 300, 1000),
    "BlackJAX, MCLMC": ("blackjax", 500, 1500),
    "nutpie": ("nutpie", 300, 1000),
    "flowMC": ("flowMC", 800, 1000),
}


def skip_without(library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: the extra `samplers` has it")


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", all_but(SAMPLERS, set(SAMPLERS) - {"flowMC"}, pytest.mark.slow))
@pytest.mark.long
def test_a_sampler_finds_what_quadrature_knows(name, without_annotation_checks):
    library, warmup, draws = LIBRARIES[name]
    skip_without(library)
    problem, test = scalar_problem(np.random.default_rng(7))
    exact = exact_scalar_posterior(problem, test)
    flat = FlatDensity(space_of(problem, test=test, whitened=False))
    points = SAMPLERS[name](flat, warmup, draws, 3)
    assert points.shape == (4, draws, flat.dimension)
    found = flat.observables(points, jax.random.key(1))
    for values, (mean, deviation) in (
        (found["order_parameter"][..., 0, 0], exact.order_parameter),
        (found["readout_order_parameter"][..., 0, 0], exact.readout),
    ):
        for kind, expected in ((values, mean), ((values - mean) ** 2, deviation**2)):
            error = array_stats.mcse(kind, method="mean", **AXES)
            ess = array_stats.ess(kind, method="bulk", **AXES)
            assert_within_mcse(kind.mean(), expected, error, ess=ess)
    means = found["predictor_mean"]
    error = array_stats.mcse(means, method="mean", **AXES)
    assert_within_mcse(means.mean(axis=(0, 1)), exact.predictor_mean, error)
