"""Slow: the theory at next order against importance draws of the published four-path posterior."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.problems import (
    all_but,
    drawn_factors,
    importance_draws_of,
    space_of,
    weighted_mean_and_error,
)
from tests.reference_data import load_reference, reference_problem
from theory import (
    NextOrderStatus,
    Predictor,
    log_evidence_at_saddle,
    predict,
    solve_next_order,
    solve_saddle_point,
)

pytestmark = pytest.mark.slow

WIDTHS = pytest.mark.parametrize("width", all_but([10, 30, 100], [10], pytest.mark.long))
DRAWS, PREDICTED = 60_000, 20_000


@cache
def both(width):
    """The problem, its saddle point, its next order, trusted draws and their U_1."""
    problem = reference_problem(load_reference(), width)
    saddle = solve_saddle_point(problem)
    space = space_of(problem)
    draws = importance_draws_of(space, DRAWS, seed=width)
    assert draws.trusted, draws.explain()
    assert draws.effective_sample_size > 10_000
    return problem, saddle, solve_next_order(problem, saddle), draws, drawn_factors(space, draws)


@WIDTHS
def test_every_element_of_the_order_parameter(width):
    """Within 1.5 % of itself on the diagonal, of √(U_aa U_bb) off it, and three standard errors.

    Some elements off the diagonal are nearly zero, so that their own size is no scale for them.
    """
    _, saddle, expansion, draws, factors = both(width)
    assert expansion.status is NextOrderStatus.FINE, expansion.explain()
    mean, error = weighted_mean_and_error(draws.weights, factors @ factors.swapaxes(1, 2))
    scale = np.sqrt(np.outer(np.diagonal(mean), np.diagonal(mean)))
    received = (expansion.order_parameters[0] - mean) / scale
    leading = (np.asarray(saddle.order_parameters.matrices[0]) - mean) / scale
    print(
        f"\nN = {width}: U_1 off by up to {np.abs(leading).max():.2%} at leading order, "
        f"{np.abs(received).max():.2%} at next order, error up to {np.max(error / scale):.2%}"
    )
    assert np.max(error / scale) < 0.005
    assert np.all(np.abs(received) <= 0.015 + 3.0 * error / scale), received
    if width == 10:
        assert np.abs(leading).max() > 0.09


@WIDTHS
def test_predictors(width, reference):
    """Mean and variance on 50 test examples as wholes: within 1 %."""
    problem, saddle, expansion, draws, factors = both(width)
    test = jnp.asarray(reference["attended_inputs_test"][:50], float)
    predictor = Predictor.for_examples(problem, test)
    means, variances = (
        np.asarray(values)[..., 0]
        for values in jax.jit(lambda f: jax.lax.map(predictor, f, batch_size=100))(
            jnp.asarray(factors[:PREDICTED])
        )
    )
    weights = draws.weights[:PREDICTED] / draws.weights[:PREDICTED].sum()
    mean, error = weighted_mean_and_error(weights, means)
    variance, variance_error = weighted_mean_and_error(weights, variances + (means - mean) ** 2)
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
        print(
            f"\nN = {width}: predictor {what} off by {leading_off:.2%} at leading order, "
            f"{off:.2%} at next order, Monte Carlo error {noise:.2%}"
        )
        assert noise < 0.003
        assert off < 0.01 < leading_off


@WIDTHS
def test_evidence(width):
    problem, saddle, expansion, draws, _ = both(width)
    exact, error = draws.log_evidence, draws.log_evidence_error
    print(
        f"\nN = {width}: ln p(y) {log_evidence_at_saddle(problem, saddle):.4f} at leading order, "
        f"{expansion.log_evidence:.4f} at next order, {exact:.4f} ± {error:.4f} exact"
    )
    assert error < 0.006
    assert abs(expansion.log_evidence - exact) <= 0.02 + 3.0 * error
