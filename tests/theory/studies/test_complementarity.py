"""Optimality of support-vector regression as a complementarity problem, solved three ways."""

import itertools

import numpy as np
import pytest
from scipy.optimize import Bounds, minimize

from tests.assertions import FLOAT64_ROUNDING, assert_equal_to_rounding
from theory.studies.softmax_forms import attention_kernel, attention_matrix, normalisers
from theory.studies.tube_regression import (
    complementarity_problem,
    rounding_of_fit,
    solve_tube_regression,
    unknowns_of,
)

TUBE = 0.3


def regression(rng, tokens, reach, labels=None):
    """Keys, kernel, labels, and a bound that some of the coefficients meet."""
    keys = 2.0 * rng.standard_normal((tokens, 2))
    labels = rng.standard_normal(tokens) if labels is None else np.array(labels)
    return keys, attention_kernel(keys, keys), labels, reach * float(np.median(normalisers(keys)))


def assert_all_kinds(coefficients, bound):
    """Some keys are inside the tube, some on its edge, some at the bound."""
    assert np.any(coefficients == 0)
    assert np.any((coefficients != 0) & (np.abs(coefficients) < bound))
    assert np.any(np.abs(coefficients) == bound)


def split(unknowns):
    return unknowns.reshape(4, -1)


@pytest.mark.parametrize("reach", [0.5, 2.0, 1e3])
def test_the_solution_is_complementary(reach, rng):
    _, kernel, labels, bound = regression(rng, 20, reach)
    found = solve_tube_regression(kernel, labels, TUBE, bound)
    problem = complementarity_problem(kernel, labels, TUBE, bound)
    unknowns = unknowns_of(kernel, labels, TUBE, found.coefficients)
    slack = problem.slack(unknowns)
    rounding = rounding_of_fit(kernel, labels, TUBE, found.coefficients)
    assert np.all(unknowns >= 0)
    assert np.all(slack >= -2 * rounding)
    # A product is 0 up to the rounding of the one factor that is 0.
    assert np.all(np.abs(unknowns * slack) <= 4 * rounding * np.maximum(unknowns, slack))
    above, below, over, under = split(unknowns)
    assert np.all(above * below == 0)
    assert np.all((above <= bound) & (below <= bound))
    beyond = over + under > 2 * rounding
    assert beyond.any()
    np.testing.assert_array_equal((above + below)[beyond], bound)
    assert_all_kinds(found.coefficients, bound)


def test_every_other_basis_fails(rng):
    """Brute force: of all 2^{4n} choices of which factor is 0 exactly the solution is left."""
    _, kernel, labels, bound = regression(rng, 3, 0.7, labels=[2.0, 0.1, -0.8])
    problem = complementarity_problem(kernel, labels, TUBE, bound)
    size, margin = len(problem.offset), 1e-9
    solutions = []
    for chosen in itertools.product((False, True), repeat=size):
        basis = np.array(chosen)
        block = problem.matrix[np.ix_(basis, basis)]
        if basis.any() and np.linalg.cond(block) > 1e12:
            continue
        unknowns = np.zeros(size)
        unknowns[basis] = np.linalg.solve(block, -problem.offset[basis])
        if np.all(unknowns >= -margin) and np.all(problem.slack(unknowns) >= -margin):
            solutions.append(unknowns)
    found = solve_tube_regression(kernel, labels, TUBE, bound).coefficients
    assert_all_kinds(found, bound)
    (only,) = solutions
    above, below, _, _ = split(only)
    operations, condition = 100, np.linalg.cond(kernel)
    assert_equal_to_rounding(above - below, found, operations=operations, condition=condition)
    expected = unknowns_of(kernel, labels, TUBE, found)
    assert_equal_to_rounding(only, expected, operations=operations, condition=condition)


def test_a_quadratic_programme_has_the_same_multipliers(rng):
    """Another solver on the dual in α and α̃; its duality gap bounds how far it is from the end.

    At a feasible point with gap γ between primal cost and dual gain |β − β*|²_G ≤ 2γ.
    """
    _, kernel, labels, bound = regression(rng, 10, 0.5)
    count = len(labels)
    # Multipliers in units of the bound.
    unit = bound

    def dual(multipliers):
        beta = unit * (multipliers[:count] - multipliers[count:])
        fit = kernel @ beta
        cost = beta @ fit / 2.0 - labels @ beta + TUBE * unit * multipliers.sum()
        slopes = fit - labels
        return cost / unit, np.concatenate([slopes + TUBE, -slopes + TUBE])

    found = minimize(
        dual,
        np.full(2 * count, 0.1),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0.0, 1.0),
        options={"ftol": 1e-16, "gtol": 1e-13, "maxiter": 20_000, "maxfun": 100_000},
    )
    multipliers = unit * found.x
    assert np.all((multipliers >= 0) & (multipliers <= bound))
    beta = multipliers[:count] - multipliers[count:]
    fit = kernel @ beta
    primal = beta @ fit / 2.0 + bound * np.maximum(np.abs(labels - fit) - TUBE, 0.0).sum()
    gain = labels @ beta - TUBE * multipliers.sum() - beta @ fit / 2.0
    size = primal + np.abs(labels) @ np.abs(beta)
    gap = max(primal - gain, 0.0) + 100 * FLOAT64_ROUNDING * size
    expected = solve_tube_regression(kernel, labels, TUBE, bound).coefficients
    difference = beta - expected
    assert difference @ kernel @ difference <= 2.0 * gap
    limits = np.sqrt(2.0 * gap * np.diag(kernel))
    assert np.all(np.abs(kernel @ difference) <= limits)
    assert limits.max() < TUBE / 100.0, "the other solver stopped too early to say anything"
    # Complementary to the same accuracy: no key has both multipliers, and sparsity is the same.
    distance = np.sqrt(2.0 * gap / np.linalg.eigvalsh(kernel)[0])
    assert np.all(np.minimum(multipliers[:count], multipliers[count:]) <= distance)
    assert np.any(expected == 0)
    assert np.all(np.abs(beta[expected == 0]) <= distance)


def test_the_conditions_in_terms_of_attention(rng):
    """Outputs and values alone say the same: slack from A V, sizes of values from C/h."""
    keys, kernel, labels, bound = regression(rng, 20, 0.5)
    found = solve_tube_regression(kernel, labels, TUBE, bound)
    sums = normalisers(keys)
    values = found.coefficients / sums
    outputs = attention_matrix(keys, keys) @ values
    missed = labels - outputs
    rounding = 10 * (found.residual + found.rounding)
    problem = complementarity_problem(kernel, labels, TUBE, bound)
    above, below, _, _ = split(problem.slack(unknowns_of(kernel, labels, TUBE, sums * values)))
    beyond = np.maximum(np.abs(missed) - TUBE, 0.0)
    assert np.all(np.abs(above - (TUBE - missed + beyond * (missed > 0))) <= rounding)
    assert np.all(np.abs(below - (TUBE + missed + beyond * (missed < 0))) <= rounding)
    largest = bound / sums
    within = np.abs(missed) < TUBE - rounding
    outside = np.abs(missed) > TUBE + rounding
    edge = (values != 0) & (np.abs(found.coefficients) < bound)
    assert within.any()
    assert outside.any()
    assert_all_kinds(found.coefficients, bound)
    np.testing.assert_array_equal(values[within], 0.0)
    expected = np.sign(missed) * largest
    assert_equal_to_rounding(values[outside], expected[outside], operations=10)
    assert np.all(np.abs(missed[edge] - TUBE * np.sign(values[edge])) <= rounding)
    assert np.all(np.abs(values) <= largest * (1 + FLOAT64_ROUNDING))


def test_the_problem_is_monotone(rng):
    """M + Mᵀ has no negative eigenvalue: solutions are a convex set."""
    _, kernel, labels, bound = regression(rng, 5, 1.0)
    matrix = complementarity_problem(kernel, labels, TUBE, bound).matrix
    eigenvalues = np.linalg.eigvalsh(matrix + matrix.T)
    assert eigenvalues[0] >= -100 * FLOAT64_ROUNDING * eigenvalues[-1]
