"""The log evidence at the saddle point: exact without data, of order 1/N with them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.assertions import assert_equal_to_rounding
from tests.problems import (
    ARCHITECTURES,
    copied,
    exact_scalar_posterior,
    random_problem,
    scalar_problem,
)
from theory import solve_saddle_point
from theory.action_functional import RelativeCoordinates
from theory.log_evidence import action_without_data, log_evidence_at_saddle

REGULAR = ("one layer, two outputs", "three layers, two outputs")
REGULAR_CASES = pytest.mark.parametrize("architecture", [ARCHITECTURES[n] for n in REGULAR])


@REGULAR_CASES
def test_lowest_action_without_data(architecture):
    coordinates = RelativeCoordinates(architecture)
    entropy, slope, _ = coordinates.prior_derivatives(np.zeros(coordinates.size))
    assert not slope.any()
    received = max(architecture.widths) * entropy.sum()
    sizes = np.multiply(architecture.widths, architecture.order_parameter_sizes)
    assert_equal_to_rounding(
        received,
        action_without_data(architecture),
        operations=4 * architecture.coordinate_count,
        scale=float(np.sum(sizes)),
    )


@REGULAR_CASES
def test_exact_without_data(architecture, rng):
    """With zero inputs the labels are pure noise, whatever the order parameters."""
    problem = random_problem(architecture, rng)
    problem = replace(problem, attended=jnp.zeros_like(problem.attended))
    saddle = solve_saddle_point(problem)
    assert saddle.converged, saddle.explain()
    expected = scipy.stats.norm.logpdf(problem.labels, scale=problem.temperature**0.5).sum()
    received = log_evidence_at_saddle(problem, saddle)
    # The gradient that remains, up to its norm times the largest width, moves ln det H by as much
    # per coordinate; the rest is rounding of the numbers that are added up.
    count = architecture.coordinate_count
    remaining = saddle.gradient_norm * max(architecture.widths) * count
    size = abs(expected) + max(architecture.widths) * (abs(saddle.action) + count)
    rounding = 2.0**-52 * (count + problem.labels.size) * size
    assert abs(received - expected) <= remaining + rounding


@pytest.mark.parametrize(("data", "order"), [("in proportion", 1), ("fixed", 2)])
def test_order_of_the_error_in_the_width(data, order, rng):
    """Against quadrature: 1/N with data in proportion to the width, 1/N² with fixed data.

    Fixed data change the 1/N term of the expansion, which is exact for the prior, by 1/N only.
    """
    problem, _ = scalar_problem(rng)
    errors = []
    for copies in (1, 2, 4, 8, 16):
        wide = copied(problem, copies) if data == "in proportion" else problem
        architecture = replace(wide.architecture, widths=(16 * copies,) * 2)
        wide = replace(wide, architecture=architecture)
        exact = exact_scalar_posterior(wide, wide.attended[:1], points=1500, span=6.0).log_evidence
        errors.append(log_evidence_at_saddle(wide, solve_saddle_point(wide)) - exact)
    orders = np.log2(np.abs(errors[:-1]) / np.abs(errors[1:]))
    # The next term of the expansion, smaller by 1/N, explains what is missing: it halves.
    deviations = np.abs(orders - order)
    assert np.all(deviations[1:] < 0.75 * deviations[:-1]), orders
    assert deviations[-1] < 0.1, orders
