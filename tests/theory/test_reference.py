"""The published four-path problem: published numbers come out, and the next order is right."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.problems import published_draws, reference_problem, weighted_mean_and_error
from theory import (
    NextOrderStatus,
    OrderParameters,
    Predictor,
    predict,
    solve_next_order,
    solve_saddle_point,
)

WIDTHS = [10, 100, 1000]
# Order parameters are stored at machine precision; predictors as an optimiser left them that
# stopped at |gradient| = 1e-5.
ORDER_PARAMETER_TOLERANCE = 1e-6
PREDICTOR_TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def saddles(reference):
    return {width: solve_saddle_point(reference_problem(reference, width)) for width in WIDTHS}


@pytest.mark.parametrize("width", WIDTHS)
def test_order_parameters_and_action(width, saddles, reference):
    saddle = saddles[width]
    assert saddle.converged, saddle.explain()
    lower, upper, readout = saddle.order_parameters.matrices
    tolerance = {"rtol": 0, "atol": ORDER_PARAMETER_TOLERANCE}
    np.testing.assert_allclose(lower, reference[f"N{width}_U_1"], **tolerance)
    np.testing.assert_allclose(upper, reference[f"N{width}_U_2"], **tolerance)
    np.testing.assert_allclose(readout[0, 0], reference[f"N{width}_U_a"], **tolerance)
    np.testing.assert_allclose(saddle.action, reference[f"N{width}_S_over_N"], **tolerance)


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_predictors(width, saddles, reference):
    """At every width, and at the order parameters of infinite width."""
    problem = reference_problem(reference, width or 10)
    limit, prefix = OrderParameters.gp_limit(problem.architecture), "gp"
    if width is not None:
        limit, prefix = saddles[width].order_parameters, f"N{width}_predictor"
    test = jnp.asarray(reference["attended_inputs_test"], float)
    found = predict(Predictor.for_examples(problem, test), limit.factors[0])
    for received, what in zip(found, ("mean", "variance"), strict=True):
        expected = reference[f"{prefix}_{what}"]
        np.testing.assert_allclose(received[:, 0], expected, rtol=0, atol=PREDICTOR_TOLERANCE)


# --- slow: the theory at next order against importance draws of the published four-path posterior


@pytest.fixture(scope="module")
def both():
    """The problem of ten units, its saddle point, next order, draws and their factors of U_1."""
    problem, draws, factors = published_draws()
    saddle = solve_saddle_point(problem)
    return problem, saddle, solve_next_order(problem, saddle), draws, factors


@pytest.mark.slow
def test_every_element_of_the_order_parameter_at_next_order(both):
    """Within 1.5 % of itself on the diagonal, of √(U_aa U_bb) off it, and three standard errors.

    Some elements off the diagonal are nearly zero, so that their own size is no scale for them.
    """
    _, saddle, expansion, draws, factors = both
    assert expansion.status is NextOrderStatus.FINE, expansion.explain()
    mean, error = weighted_mean_and_error(draws.weights, factors @ factors.swapaxes(1, 2))
    scale = np.sqrt(np.outer(np.diagonal(mean), np.diagonal(mean)))
    received = (expansion.order_parameters[0] - mean) / scale
    leading = (np.asarray(saddle.order_parameters.matrices[0]) - mean) / scale
    assert np.max(error / scale) < 0.009
    assert np.all(np.abs(received) <= 0.015 + 3.0 * error / scale), received
    assert np.abs(leading).max() > 0.09


@pytest.mark.slow
def test_evidence_at_next_order(both):
    _, _, expansion, draws, _ = both
    exact, error = draws.log_evidence, draws.log_evidence_error
    assert error < 0.02
    assert abs(expansion.log_evidence - exact) <= 0.02 + 3.0 * error
