"""Slow: the theory at next order against importance draws of the published four-path posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.problems import weighted_mean_and_error
from tests.reference_data import published_draws
from theory import (
    NextOrderStatus,
    Predictor,
    predict,
    solve_next_order,
    solve_saddle_point,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both():
    """The problem of ten units, its saddle point, next order, draws and their factors of U_1."""
    problem, draws, factors = published_draws()
    saddle = solve_saddle_point(problem)
    return problem, saddle, solve_next_order(problem, saddle), draws, factors


def test_every_element_of_the_order_parameter(both):
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


def test_predictors(both, reference):
    """Mean and variance on 50 test examples as wholes: within 1 %."""
    problem, saddle, expansion, draws, factors = both
    test = jnp.asarray(reference["attended_inputs_test"][:50], float)
    predictor = Predictor.for_examples(problem, test)
    means, variances = (
        np.asarray(values)[..., 0]
        for values in jax.jit(lambda f: jax.lax.map(predictor, f, batch_size=100))(
            jnp.asarray(factors)
        )
    )
    mean, error = weighted_mean_and_error(draws.weights, means)
    squares = variances + (means - mean) ** 2
    variance, variance_error = weighted_mean_and_error(draws.weights, squares)
    at_saddle = predict(predictor, saddle.order_parameters.factors[0])
    received = expansion.predict(np.asarray(test))
    for what, value, leading, expected, noise in zip(
        ("mean", "variance"),
        received,
        at_saddle,
        (mean, variance),
        (error, variance_error),
        strict=True,
    ):
        size = np.linalg.norm(expected)
        off, leading_off = (
            np.linalg.norm(np.asarray(v)[:, 0] - expected) / size for v in (value, leading)
        )
        noise = np.linalg.norm(noise) / size
        assert noise < 0.005, what
        assert off < 0.01 < leading_off, what


def test_evidence(both):
    _, _, expansion, draws, _ = both
    exact, error = draws.log_evidence, draws.log_evidence_error
    assert error < 0.02
    assert abs(expansion.log_evidence - exact) <= 0.02 + 3.0 * error
