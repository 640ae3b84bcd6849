"""The action written out by hand against automatic differentiation of the action."""

import jax
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, random_problem
from theory.action import DenseAction, action
from theory.order_parameters import from_log_cholesky


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_value_gradient_and_hessian(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng)
    arch = problem.architecture

    def expected(point):
        order_parameters = from_log_cholesky(point, arch.order_parameter_sizes)
        return action(order_parameters, arch, problem.energy) / max(arch.widths)

    point = 0.4 * rng.standard_normal(arch.coordinate_count)
    dense = DenseAction(problem)
    value, gradient = dense.value_and_gradient(point)
    # roundings of a sum over examples, channels and rows, magnified by the inverses
    sizes = {"operations": 1e4, "condition": 1.0 / problem.temperature}
    assert_equal_to_rounding(value, float(jax.jit(expected)(point)), **sizes, what="action")
    slope, curvature = jax.jit(lambda x: (jax.grad(expected)(x), jax.hessian(expected)(x)))(point)
    assert_equal_to_rounding(gradient, slope, **sizes, what="gradient")
    assert_equal_to_rounding(dense.hessian(point), curvature, **sizes, what="Hessian")


@pytest.mark.parametrize("name", ["one layer, two outputs", "two layers"])
def test_well_conditioned_derivatives_agree_to_twelve_digits(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng, temperature=1.0)
    arch = problem.architecture

    def expected(point):
        order_parameters = from_log_cholesky(point, arch.order_parameter_sizes)
        return action(order_parameters, arch, problem.energy) / max(arch.widths)

    point = 0.1 * rng.standard_normal(arch.coordinate_count)
    dense = DenseAction(problem)
    value, gradient = dense.value_and_gradient(point)
    by_jax = jax.jit(lambda x: (expected(x), jax.grad(expected)(x), jax.hessian(expected)(x)))
    received = (value, gradient, dense.hessian(point))
    for one, other in zip(received, by_jax(point), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())


def test_where_the_action_is_not_finite(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    point = np.full(problem.architecture.coordinate_count, 800.0)
    value, gradient = DenseAction(problem).value_and_gradient(point)
    assert value == np.inf
    assert np.all(np.isnan(gradient))
