"""The energy of the labels and its hand-written derivatives."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.assertions import FLOAT64_ROUNDING, assert_equal_to_rounding
from tests.problems import ARCHITECTURES, random_order_parameters, random_problem
from theory import LabelEnergy
from theory.energy import (
    energy_and_gradients,
    energy_curvature,
    energy_hessian,
    feature_columns,
    whitened_products,
)
from theory.path_kernels import store_path_kernels


def problem_and_factor(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng)
    overlap = random_order_parameters(problem.architecture, rng)[0]
    return problem, jnp.asarray(np.linalg.cholesky(overlap))


def both_forms(problem):
    """The energy with path kernels kept as features and stored as kernels."""
    energy = problem.energy
    stored = store_path_kernels(energy.kernels, problem.architecture)
    return energy, LabelEnergy(stored, energy.labels, energy.temperature)


def dense_kernel(problem, overlap):
    """K + 𝒯 1 from the features with every index written out."""
    outputs, paths = problem.architecture.outputs, problem.architecture.path_count
    blocks = overlap.reshape(paths, outputs, paths, outputs)
    kernel = jnp.einsum("xpi,pcqd,yqi->xcyd", problem.features, blocks, problem.features)
    size = problem.labels.size
    return kernel.reshape(size, size) + problem.temperature * jnp.eye(size)


def plain_energy(problem, overlap):
    """ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y for JAX to differentiate by itself."""
    noisy, labels = dense_kernel(problem, overlap), problem.labels.reshape(-1)
    cholesky = jnp.linalg.cholesky(noisy)
    whitened = jax.scipy.linalg.solve_triangular(cholesky, labels, lower=True)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(cholesky))) + whitened @ whitened


def rounding_of(problem, factor):
    """Tolerance arguments of one Cholesky solve with this problem's K + 𝒯 1."""
    noisy = np.asarray(dense_kernel(problem, factor @ factor.T))
    return {"operations": len(noisy) ** 2, "condition": np.linalg.cond(noisy)}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_energy_is_minus_twice_the_log_likelihood(name, rng):
    problem, factor = problem_and_factor(name, rng)
    noisy = np.asarray(dense_kernel(problem, factor @ factor.T))
    labels = np.asarray(problem.labels).reshape(-1)
    normal = scipy.stats.multivariate_normal(np.zeros(len(noisy)), noisy)
    expected = -2 * normal.logpdf(labels) - len(noisy) * np.log(2 * np.pi)
    for energy in both_forms(problem):
        assert_equal_to_rounding(energy(factor), expected, **rounding_of(problem, factor))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradient_is_that_of_autodiff_through_cholesky(name, rng):
    problem, factor = problem_and_factor(name, rng)
    plain = jax.jit(jax.value_and_grad(lambda f: plain_energy(problem, f @ f.T)))
    expected_value, expected = plain(factor)
    for energy in both_forms(problem):
        value, gradient, _ = jax.jit(energy_and_gradients)(energy, factor)
        by_jax = jax.jit(jax.grad(energy))(factor)
        rounding = rounding_of(problem, factor)
        assert_equal_to_rounding(value, expected_value, **rounding)
        # the gradient solves twice with K + 𝒯 1
        rounding["condition"] **= 2
        assert_equal_to_rounding(gradient, expected, **rounding)
        assert_equal_to_rounding(by_jax, expected, **rounding)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_slope_in_the_temperature_is_that_of_autodiff_through_cholesky(name, rng):
    problem, factor = problem_and_factor(name, rng)
    noisy, labels = dense_kernel(problem, factor @ factor.T), problem.labels.reshape(-1)

    def plain(temperature):
        matrix = noisy + (temperature - problem.temperature) * jnp.eye(labels.size)
        cholesky = jnp.linalg.cholesky(matrix)
        whitened = jax.scipy.linalg.solve_triangular(cholesky, labels, lower=True)
        return 2 * jnp.sum(jnp.log(jnp.diagonal(cholesky))) + whitened @ whitened

    expected = jax.grad(plain)(problem.temperature)
    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2  # solves twice with K + 𝒯 1
    for energy in both_forms(problem):
        slope = jax.jit(jax.grad(lambda t, e: replace(e, temperature=t)(factor)))
        assert_equal_to_rounding(slope(problem.temperature, energy), expected, **rounding)
        assert_equal_to_rounding(energy_and_gradients(energy, factor)[2], expected, **rounding)


@pytest.mark.parametrize("name", ["one head", "two layers, three outputs", "narrow"])
def test_gradient_is_that_of_finite_differences(name, rng):
    problem, factor = problem_and_factor(name, rng)
    direction = jnp.asarray(rng.standard_normal(factor.shape))
    direction /= jnp.linalg.norm(direction)
    received = float(jnp.vdot(energy_and_gradients(problem.energy, factor)[1], direction))

    def slope(step):
        ends = [float(problem.energy(factor + sign * step * direction)) for sign in (1, -1)]
        return (ends[0] - ends[1]) / (2 * step)

    # Halving the step divides the error of a central difference by four; Richardson removes it.
    step = FLOAT64_ROUNDING**0.2
    coarse, fine = slope(2 * step), slope(step)
    extrapolated = (4 * fine - coarse) / 3
    truncation = abs(fine - coarse) * step  # the next order of the expansion
    noise = 100 * FLOAT64_ROUNDING * abs(float(problem.energy(factor))) / step
    assert abs(received - extrapolated) <= truncation + noise, (received, extrapolated)


@pytest.mark.parametrize("name", ["one head", "one layer, two outputs", "two layers"])
def test_second_derivatives_are_those_of_autodiff(name, rng):
    problem, factor = problem_and_factor(name, rng)
    overlap = factor @ factor.T

    def energy_of_a_free_matrix(free):
        # R is symmetric, so K may be symmetrised without changing any derivative in U_1
        noisy = dense_kernel(problem, free)
        noisy, labels = (noisy + noisy.T) / 2, problem.labels.reshape(-1)
        return jnp.linalg.slogdet(noisy)[1] + labels @ jnp.linalg.solve(noisy, labels)

    gradient, second = jax.jit(energy_hessian)(problem.energy, problem.features, factor)
    expected_gradient = jax.jit(jax.grad(energy_of_a_free_matrix))(overlap)
    expected = jax.jit(jax.hessian(energy_of_a_free_matrix))(overlap)
    # only derivatives along symmetric U_1 exist in this theory: compare on them
    received = symmetrised(np.asarray(second))
    expected = symmetrised(np.asarray(expected))
    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2
    assert_equal_to_rounding(gradient, expected_gradient, **rounding)
    assert_equal_to_rounding(received, expected, **rounding)


@pytest.mark.parametrize("name", ["one layer, two outputs", "two layers"])
def test_second_derivatives_of_numpy_arrays_are_those_of_jax_arrays(name, rng):
    problem, factor = problem_and_factor(name, rng)
    columns = feature_columns(np.asarray(problem.features), problem.architecture.outputs)
    size, rows, channels = columns.shape
    noisy = np.asarray(dense_kernel(problem, factor @ factor.T))
    lower = np.linalg.cholesky(noisy)
    whitened = np.linalg.solve(lower, columns.reshape(size, -1))
    labels = np.linalg.solve(lower, np.asarray(problem.labels).reshape(-1))
    projected = (labels @ whitened).reshape(rows, channels)
    received = energy_curvature(whitened_products(whitened, rows), projected)
    assert isinstance(received, np.ndarray)
    _, expected = jax.jit(energy_hessian)(problem.energy, problem.features, factor)
    limit = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(received, expected, rtol=0, atol=limit)


def symmetrised(second):
    second = second + second.transpose(1, 0, 2, 3)
    return second + second.transpose(0, 1, 3, 2)


def test_the_hessian_by_autodiff_of_the_hand_written_gradient_agrees(rng):
    problem, factor = problem_and_factor("two layers", rng)
    direction = jnp.asarray(rng.standard_normal(factor.shape))

    def derivative_of_gradient(function):
        return jax.jit(lambda f, d: jax.jvp(jax.grad(function), (f,), (d,))[1])(factor, direction)

    received = derivative_of_gradient(problem.energy)
    expected = derivative_of_gradient(lambda f: plain_energy(problem, f @ f.T))
    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2
    assert_equal_to_rounding(received, expected, **rounding)


def test_energy_and_gradient_compile_and_batch(rng):
    problem, factor = problem_and_factor("one layer, two outputs", rng)
    factors = jnp.stack([factor, 1.1 * factor])
    energy = problem.energy
    received = jax.jit(jax.vmap(jax.grad(lambda f, e: e(f)), in_axes=(0, None)))(factors, energy)
    one_by_one = jax.jit(energy_and_gradients)
    expected = jnp.stack([one_by_one(energy, one)[1] for one in factors])
    assert_equal_to_rounding(received, expected, **rounding_of(problem, factor))
