"""When there is no theory at next order: a named status, and never a number."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.problems import ARCHITECTURES, random_problem
from theory import (
    Architecture,
    LearningProblem,
    LogPosterior,
    NextOrderStatus,
    OrderParameters,
    solve_next_order,
    solve_saddle_point,
)
from theory import next_order as next_order_module
from theory.next_order import LARGEST_SHIFT
from theory.size_limits import next_order_fits


def refuses_to_predict(expansion):
    """No number stands in a result that is not defined, and asking for one says why."""
    assert not expansion.defined
    assert expansion.order_parameters == ()
    assert np.isnan(expansion.log_evidence)
    assert np.isnan(expansion.spread)
    assert expansion.status.value in expansion.explain()
    with pytest.raises(ValueError, match="not defined"):
        expansion.predict(np.zeros((1, 1, 1)))


def test_a_saddle_point_that_is_not_converged(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    expansion = solve_next_order(problem, solve_saddle_point(problem, max_steps=1))
    assert expansion.status is NextOrderStatus.NO_SADDLE_POINT
    refuses_to_predict(expansion)


def test_two_minima_with_a_ridge_between_them():
    """A narrow layer with paths that never overlap: off-diagonal ±U_12 are equally likely.

    The descent starts on the ridge between the two, where no gradient leads away.
    """
    rng = np.random.default_rng(0)
    attended = np.zeros((6, 2, 4))
    attended[:, 0, :2], attended[:, 1, 2:] = rng.standard_normal((2, 6, 2))
    labels = 5.0 * attended[:, 1, 2:].sum(axis=1)[:, None]
    architecture = Architecture((2,), (1, 3), (1.0, 1.0, 1.0), channels=4)
    problem = LearningProblem(architecture, jnp.asarray(attended), jnp.asarray(labels), 0.1)
    saddle = solve_saddle_point(problem)
    assert saddle.converged
    expansion = solve_next_order(problem, saddle)
    assert expansion.status is NextOrderStatus.NOT_A_MINIMUM
    refuses_to_predict(expansion)


def test_numbers_that_overflow(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    saddle = solve_saddle_point(problem)
    factors = saddle.order_parameters.factors
    far = replace(saddle, order_parameters=OrderParameters(tuple(1e200 * f for f in factors)))
    expansion = solve_next_order(problem, far)
    assert expansion.status is NextOrderStatus.NOT_FINITE
    refuses_to_predict(expansion)


def test_an_order_parameter_that_is_not_positive():
    """Three heads over one readout unit, 𝒯 far below the labels: corrections exceed U_1 itself."""
    architecture = Architecture((3,), (3, 1), (1.0, 1.0, 1.0), channels=3)
    problem = random_problem(architecture, np.random.default_rng(81), examples=10, temperature=1e-3)
    problem = replace(problem, labels=0.1 * problem.labels)
    expansion = solve_next_order(problem, solve_saddle_point(problem))
    assert expansion.status is NextOrderStatus.NOT_POSITIVE
    assert expansion.correction > LARGEST_SHIFT
    refuses_to_predict(expansion)


@pytest.mark.heavy
def test_rounding_of_the_gradient_is_no_reason_to_refuse(monkeypatch):
    """Labels of 200 standard deviations: |∇Φ| stays above its tolerance, the mode is found."""
    architecture = Architecture((2,), (4, 2), (1.0, 1.0, 1.0), channels=3, outputs=2)
    rng = np.random.default_rng(541)
    problem = random_problem(architecture, rng, examples=40, temperature=1e-3)
    problem = replace(problem, labels=20.0 * problem.labels, attended=0.3 * problem.attended)
    # Rounding leaves |∂A| near 1e-10, on some processors above the default tolerance.
    saddle = solve_saddle_point(problem, tolerance=1e-7)
    assert not LogPosterior(problem).mode(saddle).converged
    expansion = solve_next_order(problem, saddle, evidence=False)
    assert expansion.defined
    assert 0.0 < expansion.around.distance < 1e-6
    monkeypatch.setattr(next_order_module, "LARGEST_DISTANCE", 0.1 * expansion.around.distance)
    expansion = solve_next_order(problem, saddle, evidence=False)
    assert expansion.status is NextOrderStatus.NOT_A_MINIMUM
    refuses_to_predict(expansion)


def test_problems_too_large_are_not_begun(rng, monkeypatch):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    saddle = solve_saddle_point(problem)
    coordinates = LogPosterior(problem).coordinates.size
    assert coordinates == 7
    expected = solve_next_order(problem, saddle)
    # p_1 = 3, D = 5: (p_1 D)² = 225 numbers are the most; for the evidence p_1⁶ = 729.
    monkeypatch.setattr(next_order_module, "LARGEST_THIRD_DERIVATIVES", 728)
    without = solve_next_order(problem, saddle)
    assert without.status is expected.status
    assert np.isnan(without.log_evidence)
    assert np.isfinite(expected.log_evidence)
    np.testing.assert_array_equal(without.order_parameters[0], expected.order_parameters[0])
    monkeypatch.setattr(LogPosterior, "mode", None)
    for name, number in (("LARGEST_BLOCKS", 224), ("HESSIAN_COORDINATES", 6)):
        with monkeypatch.context() as patched:
            patched.setattr(f"theory.size_limits.{name}", number)
            expansion = solve_next_order(problem, saddle)
            assert expansion.status is NextOrderStatus.TOO_LARGE
            refuses_to_predict(expansion)
        assert next_order_fits(problem.architecture)
