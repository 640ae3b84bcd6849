"""Limits and symmetries of the theory."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.problems import ARCHITECTURES, random_network_data, random_problem
from theory import LearningProblem, OrderParameters, Predictor, predict, solve_saddle_point


def scaled_widths(problem, width):
    arch = problem.architecture
    return replace(problem, architecture=replace(arch, widths=(width,) * len(arch.widths)))


@pytest.mark.parametrize("name", ["two layers", "one layer, two outputs"])
def test_infinite_width_is_gp_regression(name, rng):
    """U − U_GP = O(1/N): at 10⁸ a hundredth of what it is at 10⁶."""
    problem = random_problem(ARCHITECTURES[name], rng)
    limit = OrderParameters.gp_limit(problem.architecture)

    def distance(width):
        saddle = solve_saddle_point(scaled_widths(problem, width))
        assert saddle.converged, saddle.explain()
        pairs = zip(saddle.order_parameters.matrices, limit.matrices, strict=True)
        return max(np.abs(u - v).max() for u, v in pairs)

    far, near = distance(10**6), distance(10**8)
    assert near < 1e-5
    assert 0.005 * far < near < 0.02 * far


@pytest.mark.parametrize("name", ["two layers", "narrow"])
def test_infinite_temperature_is_the_prior(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng)
    limit = OrderParameters.gp_limit(problem.architecture).matrices

    def distance(temperature):
        saddle = solve_saddle_point(replace(problem, temperature=temperature), tolerance=1e-12)
        assert saddle.converged, saddle.explain()
        pairs = zip(saddle.order_parameters.matrices, limit, strict=True)
        return max(np.abs(u - v).max() for u, v in pairs)

    # U − U_prior = O(1/𝒯)
    far, near = distance(1e4), distance(1e6)
    assert near < 1e-4
    assert 0.005 * far < near < 0.02 * far


def test_rotated_outputs_rotate_the_order_parameters(rng):
    """Y → Y Rᵀ turns U_l into (1 ⊗ R) U_l (1 ⊗ Rᵀ) and m into R m."""
    problem = random_problem(ARCHITECTURES["one layer, two outputs"], rng)
    arch = problem.architecture
    attended_test = random_network_data(arch, rng, examples=3).attended
    rotation = scipy.stats.ortho_group(arch.outputs, seed=4).rvs()
    turned = replace(problem, labels=problem.labels @ jnp.asarray(rotation).T)
    plain_saddle, turned_saddle = solve_saddle_point(problem), solve_saddle_point(turned)
    error = sum(
        2 * s.gradient_norm / s.smallest_hessian_eigenvalue for s in (plain_saddle, turned_saddle)
    )
    for plain, received in zip(
        plain_saddle.order_parameters.matrices, turned_saddle.order_parameters.matrices, strict=True
    ):
        both = np.kron(np.eye(len(plain) // arch.outputs), rotation)
        expected = both @ np.asarray(plain) @ both.T
        limit = 10 * np.abs(expected).max() * (error + 100 * np.finfo(float).eps)
        np.testing.assert_allclose(received, expected, rtol=0, atol=limit)
    assert np.abs(plain - received).max() > 1e-3, "the rotation must be visible in U_a"
    plain_mean, _ = predict(
        Predictor.for_examples(problem, attended_test), plain_saddle.order_parameters.factors[0]
    )
    turned_mean, _ = predict(
        Predictor.for_examples(turned, attended_test), turned_saddle.order_parameters.factors[0]
    )
    scale = 100 * (error + 100 * np.finfo(float).eps) / problem.temperature
    np.testing.assert_allclose(turned_mean, plain_mean @ rotation.T, rtol=0, atol=scale)


def test_equal_heads_share_one_order_parameter(rng):
    """Two heads with the same attention: exchanging them leaves the saddle point where it is."""
    problem = random_problem(ARCHITECTURES["two layers"], rng)
    attended = problem.attended.reshape(6, 2, 3, -1)
    twins = attended.at[:, 1].set(attended[:, 0]).reshape(problem.attended.shape)
    problem = LearningProblem(problem.architecture, twins, problem.labels, problem.temperature)
    saddle = solve_saddle_point(problem)
    lowest = np.asarray(saddle.order_parameters.matrices[0]).reshape(2, 3, 2, 3)
    error = 2 * saddle.gradient_norm / saddle.smallest_hessian_eigenvalue
    limit = 10 * np.abs(lowest).max() * (error + 100 * np.finfo(float).eps)
    np.testing.assert_allclose(lowest[::-1, :, ::-1], lowest, rtol=0, atol=limit)
