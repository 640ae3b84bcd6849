"""One scale a layer: its limits, its minimum, and the linear theory of one head."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import all_but
from tests.theory.nonlinear import nonlinear_problem
from theory import Architecture, LearningProblem, OrderParameters, action, solve_saddle_point
from theory.nonlinear_kernels import kernels_at
from theory.one_scale import kernel_and_slopes, solve_one_scale

ONE_HEAD = Architecture((1,), (5, 7), (0.8, 1.4, 1.2), 4)
HEADS = Architecture((2, 3), (7, 5, 6), (0.9, 1.5, 0.6, 1.3), 4)


def action_at(problem, scales) -> float:
    """A/max width of the definition, in NumPy."""
    variances = np.array(problem.architecture.order_parameter_variances)
    kernel = kernels_at(problem, problem.train, jnp.asarray(scales * variances)).train
    noisy = np.asarray(kernel) + problem.temperature * np.eye(len(kernel))
    widths = np.array(problem.architecture.widths)
    labels = np.asarray(problem.labels)
    outputs = labels.shape[1]
    entropy = outputs * np.sum(widths * (scales - np.log(scales)))
    energy = outputs * np.linalg.slogdet(noisy)[1]
    energy += np.sum(labels * np.linalg.solve(noisy, labels))
    return (entropy + energy) / widths.max()


@pytest.mark.heavy
@pytest.mark.parametrize(("values", "outputs"), [("relu", 2), ("erf", 1)])
def test_the_scales_are_a_minimum_of_the_action(values, outputs, rng):
    problem, _, _ = nonlinear_problem(replace(HEADS, outputs=outputs), values, rng)
    found = solve_one_scale(problem)
    assert found.converged
    assert found.smallest_hessian_eigenvalue > 0
    lowest = action_at(problem, found.scales)
    assert_equal_to_rounding(found.descent.value, lowest, operations=1000)
    step = 1e-4
    for kick in step * np.eye(3):
        up, down = (action_at(problem, found.scales * np.exp(s * kick)) for s in (1, -1))
        # (up − down)/2 is a third derivative of order 1 times step³/6.
        assert abs(up - down) / 2 < step**3
        assert up + down > 2 * lowest


@pytest.mark.heavy
@pytest.mark.parametrize("values", ["relu", "gelu"])
def test_slopes_of_the_kernel_are_its_differences(values, rng):
    """For the ReLU the kernel itself is (Π q) K, which the recursion knows nothing of."""
    problem, _, _ = nonlinear_problem(HEADS, values, rng)
    at, variances = rng.standard_normal(3), np.array(HEADS.order_parameter_variances)

    def by_recursion(point):
        scales = jnp.asarray(np.exp(point) * variances)
        return np.asarray(kernels_at(problem, problem.train, scales).train)

    kernel, slopes = map(np.asarray, kernel_and_slopes(problem)(jnp.asarray(at)))
    assert_equal_to_rounding(kernel, by_recursion(at), operations=200)
    step = 1e-5
    for slope, kick in zip(slopes, step * np.eye(3), strict=True):
        difference = (by_recursion(at + kick) - by_recursion(at - kick)) / (2 * step)
        # Central differences: step² times a third derivative, and rounding over step.
        limit = 10 * np.abs(kernel).max() * (step**2 + 2.0**-52 / step)
        assert np.abs(slope - difference).max() < limit


@pytest.mark.parametrize("outputs", all_but([1, 2], [1]))
def test_one_linear_head_is_the_linear_theory(outputs, rng):
    """With one output it is the saddle point; with several the best multiple of the identity."""
    arch = replace(ONE_HEAD, outputs=outputs)
    problem, _, (data, _) = nonlinear_problem(arch, "linear", rng)
    learning = LearningProblem(arch, data.attended, problem.labels, problem.temperature)
    found = solve_one_scale(problem)
    variances = np.array(arch.order_parameter_variances)
    overlaps = np.cumprod((found.scales * variances)[::-1])[::-1]
    order_parameters = OrderParameters.from_matrices(
        tuple(jnp.asarray(u * np.eye(outputs)) for u in overlaps)
    )
    constant = outputs * np.sum(np.array(arch.widths) * np.log(variances))
    expected = (float(action(order_parameters, arch, learning.energy)) + constant) / 7
    assert_equal_to_rounding(found.descent.value, expected, operations=1000)
    if outputs == 1:
        saddle = solve_saddle_point(learning)
        expected = [float(u[0, 0]) for u in saddle.order_parameters.matrices]
        np.testing.assert_allclose(overlaps, expected, rtol=1e-9)


@pytest.mark.heavy
@pytest.mark.parametrize("values", ["relu", "erf"])
def test_wide_layers_have_scales_of_one(values, rng):
    """|q − 1| is of order 1/N, with slopes of the energy for factors."""
    wide = replace(HEADS, widths=(10**8,) * 3)
    problem, _, _ = nonlinear_problem(wide, values, rng)
    scales = solve_one_scale(problem).scales
    assert 0 < np.abs(scales - 1).max() < 100 / 10**8
