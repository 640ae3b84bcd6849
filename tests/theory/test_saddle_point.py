"""The saddle point: its equations, its minimum, its limit, and what is said without it."""

from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.stats

from tests.dense import dense_kernel
from tests.problems import ARCHITECTURES, order_parameters_of, random_problem
from theory import (
    Architecture,
    LearningProblem,
    OrderParameters,
    SaddlePointStatus,
    solve_saddle_point,
)
from theory import saddle_point as saddle_point_module
from theory.action_functional import DenseAction
from theory.saddle_point import descend, make_action, smallest_eigenvalue

SOLVED = ["one layer, two outputs", "two layers", "narrow"]


@pytest.fixture(scope="module", params=SOLVED)
def solved(request):
    """A problem with its saddle point, searched for from four starts."""
    rng = np.random.default_rng(7)
    problem = random_problem(ARCHITECTURES[request.param], rng)
    return problem, solve_saddle_point(problem, starts=4)


def coordinate_error(saddle):
    """How far the order parameters can be from the minimum, given the gradient that is left.

    |δ| ≤ |gradient| / smallest Hessian eigenvalue, doubled for the cubic terms that are left out.
    """
    return 2 * saddle.gradient_norm / saddle.smallest_hessian_eigenvalue


def equation_tolerance(saddle):
    """What |δ| in the coordinates can do to an entry of an equation among the U_l."""
    largest = max(np.abs(matrix).max() for matrix in saddle.order_parameters.matrices)
    condition = max(np.linalg.cond(matrix) for matrix in saddle.order_parameters.matrices)
    rounding = np.finfo(float).eps * 100
    return condition**2 * max(largest, 1) * (coordinate_error(saddle) + rounding)


def test_every_start_finds_the_same_minimum(solved):
    _, saddle = solved
    assert saddle.status is SaddlePointStatus.CONVERGED, saddle.explain()
    assert saddle.gradient_norm <= saddle.tolerance == 1e-10
    assert saddle.smallest_hessian_eigenvalue > 0
    # two starts, each within |gradient| / eigenvalue of the minimum
    assert saddle.start_disagreement <= 4 * saddle.tolerance / saddle.smallest_hessian_eigenvalue


def test_stationarity_of_the_lowest_order_parameter(solved):
    """U_1⁻¹ = (1 ⊗ U_2⁻¹)/σ_1² + M/N_1."""
    problem, saddle = solved
    arch = problem.architecture
    lowest, above = (np.asarray(m) for m in saddle.order_parameters.matrices[:2])
    features, outputs = np.asarray(problem.features), arch.outputs
    kernel = dense_kernel(problem.attended, problem.attended, lowest, arch)
    inverse = np.linalg.inv(kernel + problem.temperature * np.eye(len(kernel)))
    alpha = inverse @ np.asarray(problem.labels).reshape(-1)
    residual = (inverse - np.outer(alpha, alpha)).reshape(len(features), outputs, -1, outputs)
    slope = np.einsum("xpi,xcyd,yqi->pcqd", features, residual, features).reshape(lowest.shape)
    expected = np.kron(np.eye(arch.heads[0]), np.linalg.inv(above)) / arch.variances[1]
    expected = expected + slope / arch.widths[0]
    received = np.linalg.inv(lowest)
    limit = (
        equation_tolerance(saddle)
        * np.abs(received).max()
        * np.linalg.cond(kernel + problem.temperature * np.eye(len(kernel)))
    )
    assert limit < 1e-4 * np.abs(received).max(), "the comparison must be able to fail"
    np.testing.assert_allclose(received, expected, rtol=0, atol=limit)


def test_every_upper_layer_follows_from_its_neighbours(solved):
    """X² + bX = c G^{-1/2} (Tr_h U_{l−1}) G^{-1/2} with X = G^{-1/2} U_l G^{-1/2}."""
    problem, saddle = solved
    arch = problem.architecture
    matrices = [np.asarray(matrix) for matrix in saddle.order_parameters.matrices]
    for layer in range(1, arch.layers + 1):  # U_{layer + 1} in the theory's counting
        below, heads_below = matrices[layer - 1], arch.heads[layer - 1]
        rows = len(below) // heads_below
        traced = np.einsum("hrhs->rs", below.reshape(heads_below, rows, heads_below, rows))
        if layer == arch.layers:
            scale = arch.variances[-1] * np.eye(arch.outputs)
        else:
            scale = np.kron(np.eye(arch.heads[layer]), matrices[layer + 1])
            scale = arch.variances[layer + 1] * scale
        root = np.linalg.inv(scipy.linalg.sqrtm(scale).real)
        ratio = arch.widths[layer - 1] / arch.widths[layer]
        b, c = heads_below * ratio - 1, ratio / arch.variances[layer]
        right = c * root @ traced @ root
        # the positive definite root of the quadratic equation
        values, vectors = np.linalg.eigh((right + right.T) / 2)
        solution = (vectors * ((-b + np.sqrt(b**2 + 4 * values)) / 2)) @ vectors.T
        expected = np.linalg.inv(root) @ solution @ np.linalg.inv(root)
        limit = equation_tolerance(saddle) * np.linalg.cond(scale)
        assert limit < 1e-4 * np.abs(expected).max(), "the comparison must be able to fail"
        np.testing.assert_allclose(matrices[layer], expected, rtol=0, atol=limit)


def test_hessian_products_lead_to_the_same_place(monkeypatch):
    problem = random_problem(ARCHITECTURES["two layers"], np.random.default_rng(7))
    dense = solve_saddle_point(problem)
    assert isinstance(make_action(problem), DenseAction)
    with monkeypatch.context() as patched:
        patched.setattr("theory.size_limits.DENSE_ACTION_COORDINATES", 0)
        assert not isinstance(make_action(problem), DenseAction)
    monkeypatch.setattr("theory.size_limits.DENSE_HESSIAN_NUMBERS", 0)
    assert not isinstance(make_action(problem), DenseAction)
    by_products = solve_saddle_point(problem, tolerance=dense.tolerance)
    assert by_products.converged, by_products.explain()
    np.testing.assert_allclose(
        by_products.smallest_hessian_eigenvalue, dense.smallest_hessian_eigenvalue, rtol=1e-3
    )
    point_of = DenseAction(problem).coordinates.point_of
    one, other = (point_of(each.order_parameters.factors) for each in (by_products, dense))
    difference = np.abs(one - other).max()
    assert difference <= coordinate_error(dense) + coordinate_error(by_products)


def test_the_smallest_eigenvalue_may_be_negative(rng):
    turned = scipy.stats.ortho_group(30, seed=3).rvs()
    matrix = (turned * np.linspace(-2.0, 5.0, 30)) @ turned.T
    assert smallest_eigenvalue(partial(np.matmul, matrix), 30) == pytest.approx(-2.0, rel=1e-3)


def test_too_few_steps_are_reported_as_such(rng):
    saddle = solve_saddle_point(random_problem(ARCHITECTURES["one layer"], rng), max_steps=1)
    assert saddle.status is SaddlePointStatus.STEP_LIMIT
    assert not saddle.converged
    assert saddle.steps == 1
    assert "max_steps" in saddle.explain()


def test_an_action_that_is_not_finite_is_reported_as_such(rng):
    problem = random_problem(ARCHITECTURES["one head"], rng)
    limit = OrderParameters.gp_limit(problem.architecture)
    far = OrderParameters(tuple(1e200 * factor for factor in limit.factors))
    saddle = solve_saddle_point(problem, starts=2, initial=far)
    assert saddle.status is SaddlePointStatus.NOT_FINITE


def test_descent_leaves_a_saddle_of_the_function_for_its_minimum():
    """f = (x² − 1)² + y²: the Newton point of the start (0.1, 1) is the maximum in x."""

    def value_and_gradient(point):
        x, y = point
        return (x**2 - 1) ** 2 + y**2, np.array([4 * x * (x**2 - 1), 2 * y])

    def hessian(point):
        return np.diag([12 * point[0] ** 2 - 4, 2.0])

    for direction in (
        saddle_point_module.dense_direction(hessian),
        saddle_point_module.truncated_direction(lambda point: partial(np.matmul, hessian(point))),
    ):
        end = descend(value_and_gradient, direction, np.ones_like, np.array([0.1, 1.0]), 1e-10, 50)
        assert end.status is SaddlePointStatus.CONVERGED
        np.testing.assert_allclose(end.point, [1, 0], rtol=0, atol=1e-10)


def problem_with_two_minima() -> LearningProblem:
    """One path, C = diag(1, 1, 1, 0.01): labels 0 draw U_1 down, a faint large label draws it up.

    Along U_a = √U_1 the action has minima near ln U_1 = −7.3 and −0.2, and a saddle near −5.5.
    """
    architecture = Architecture((1,), (1, 1), (1.0, 1.0, 1.0), channels=4)
    attended = 2.0 * np.diag([1.0, 1.0, 1.0, 0.1])[:, None, :]
    labels = np.array([[0.0], [0.0], [0.0], [0.2]])
    return LearningProblem(architecture, jnp.asarray(attended), jnp.asarray(labels), 1e-3)


def one_path(log_overlap: float) -> OrderParameters:
    """U_1 and U_a = √U_1."""
    logs = (log_overlap, log_overlap / 2)
    return order_parameters_of(np.full((1, 1), np.exp(value)) for value in logs)


def test_a_saddle_of_the_action_is_no_minimum():
    problem = problem_with_two_minima()
    function = DenseAction(problem)

    def slope(log_overlap):
        return function.value_and_gradient(np.array([log_overlap / 4, log_overlap / 4]))[1][0]

    place = scipy.optimize.brentq(slope, -6.0, -5.0, xtol=1e-14)
    saddle = solve_saddle_point(problem, initial=one_path(place), tolerance=1e-9)
    assert saddle.gradient_norm <= saddle.tolerance
    assert saddle.smallest_hessian_eigenvalue < -0.1
    assert saddle.status is SaddlePointStatus.NOT_A_MINIMUM
    assert not saddle.converged
    assert "starts" in saddle.explain()


def test_of_several_starts_the_lowest_minimum_is_kept():
    """Also where the first start leads to the higher one."""
    problem = problem_with_two_minima()
    higher = solve_saddle_point(problem, initial=one_path(-6.0))
    lower = solve_saddle_point(problem, initial=one_path(-1.0))
    assert higher.converged
    assert lower.converged
    assert higher.action > lower.action + 10.0
    both = solve_saddle_point(problem, initial=one_path(-6.0), starts=8)
    assert both.converged, both.explain()
    assert both.action == pytest.approx(lower.action, rel=1e-12)
    # ln L_1 = ln (U_1/U_a)/2 = ln U_1/4, and the two minima lie seven units of ln U_1 apart.
    assert 1.5 < both.start_disagreement < 2.0
    np.testing.assert_allclose(
        both.order_parameters.matrices[0], lower.order_parameters.matrices[0], rtol=1e-8
    )


# --- the limit of the theory


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
