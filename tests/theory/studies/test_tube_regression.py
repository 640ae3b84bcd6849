"""Tube regression: optimality by the duality gap, a closed form, and liblinear's solution."""

import numpy as np
import pytest
from sklearn.svm import LinearSVR

from tests.assertions import assert_equal_to_rounding
from theory.studies.attention_kernel import Similarity, attention_kernel, normalisers
from theory.studies.support_vectors import rounding_of_fit, solve_tube_regression, violation

TUBE = 0.2


def assert_no_duality_gap(kernel, labels, tube, bound, coefficients):
    """Primal cost and dual gain of the same β agree only at the solution of both."""
    fit = kernel @ coefficients
    square = coefficients @ fit
    loss = np.maximum(np.abs(labels - fit) - tube, 0.0)
    loss = bound * loss.sum() if loss.any() else 0.0  # an infinite bound allows no loss at all
    gain = labels @ coefficients - tube * np.abs(coefficients).sum() - square / 2.0
    # A label error within rounding costs bound × rounding; the same error meets β in the dual.
    count, sizes = len(labels), np.abs(kernel) @ np.abs(coefficients) + np.abs(labels) + tube
    weight = np.abs(coefficients).max() if np.isinf(bound) else bound
    assert_equal_to_rounding(
        square / 2.0 + loss, gain, operations=4 * count, scale=weight * sizes.sum()
    )


@pytest.mark.parametrize("similarity", Similarity)
@pytest.mark.parametrize("reach", [1.0, 30.0, 1e6])
@pytest.mark.parametrize(("tokens", "channels"), [(8, 1), (16, 2), (30, 1), (48, 8)])
def test_solved_to_rounding_however_singular(tokens, channels, reach, similarity):
    """Kernels of condition 1e2 to beyond 1e20, of rank 1, and with two equal keys."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        keys = rng.standard_normal((tokens, channels))
        keys[1] = keys[0] if seed == 2 else keys[1]
        kernel = attention_kernel(keys, keys, similarity)
        labels = rng.standard_normal(tokens)
        bound = reach * float(np.median(normalisers(keys, similarity)))
        found = solve_tube_regression(kernel, labels, TUBE, bound)
        assert found.residual <= rounding_of_fit(kernel, labels, TUBE, found.coefficients)
        assert_no_duality_gap(kernel, labels, TUBE, bound, found.coefficients)


@pytest.mark.parametrize("bound", [0.3, 2.0, float("inf")])
def test_one_key_in_closed_form(bound):
    """β = sign y · min(max(|y| − ε, 0)/G, C)."""
    for label in (-3.0, -0.1, 0.0, 0.15, 1.0):
        found = solve_tube_regression(np.array([[1.7]]), np.array([label]), TUBE, bound)
        expected = np.sign(label) * min(max(abs(label) - TUBE, 0.0) / 1.7, bound)
        assert_equal_to_rounding(found.coefficients, expected, operations=8, scale=3.0)


@pytest.mark.parametrize("reach", [2.0, 5.0])
def test_agrees_with_liblinear(reach, rng):
    """LinearSVR without intercept on features F with F Fᵀ = G solves the same problem.

    It stops once a pass over the keys meets projected gradients that sum to `tol` times the sum g
    of the first pass, g ≤ Σ|y| + εn + C ΣG. Steps of the last pass change the gradients it met
    before by at most that sum times κ = max G_ij/G_jj each. For the w that belongs to such β,
    |w − w*|² ≤ Σ |gradient| |β − β*| ≤ 2C (1 + nκ) tol g.
    """
    keys = rng.standard_normal((24, 4))
    kernel = attention_kernel(keys, keys)
    labels = rng.standard_normal(24)
    bound = reach * float(np.median(normalisers(keys)))
    found = solve_tube_regression(kernel, labels, TUBE, bound)
    assert 0 < np.sum(np.abs(found.coefficients) == bound) < np.sum(found.coefficients != 0) < 24
    tolerance = 1e-12
    features = np.linalg.cholesky(kernel)
    model = LinearSVR(
        epsilon=TUBE, C=bound, fit_intercept=False, tol=tolerance, max_iter=10**6, random_state=0
    ).fit(features, labels)
    first = np.abs(labels).sum() + 24 * TUBE + bound * kernel.sum()
    moved = 1.0 + 24 * np.max(kernel / np.diag(kernel))
    distance = np.sqrt(2.0 * bound * moved * tolerance * first)
    limits = distance * np.sqrt(np.diag(kernel))
    assert limits.max() < TUBE / 1000.0, "else the comparison says nothing"
    assert np.all(np.abs(kernel @ found.coefficients - features @ model.coef_) <= limits)


def test_violation_sees_every_condition():
    kernel, labels = np.eye(4), np.array([0.1, 1.0, 5.0, -5.0])
    right = np.array([0.0, 0.8, 2.0, -2.0])
    assert violation(kernel, labels, TUBE, 2.0, right) <= 4 * np.finfo(float).eps
    for place, wrong, expected in ((0, 0.3, 0.4), (1, 0.0, 0.8), (1, 1.0, 0.2), (2, 1.0, 3.8)):
        received = violation(
            kernel, labels, TUBE, 2.0, np.where(np.arange(4) == place, wrong, right)
        )
        assert_equal_to_rounding(received, expected, operations=8, scale=5.0)
    assert violation(kernel, labels, TUBE, 1.5, right) == float("inf")
    # At the bound the error must not be smaller than the tube.
    received = violation(kernel, np.array([0.0, 0.0, 2.0, 0.0]), TUBE, 2.0, right * (right == 2))
    assert_equal_to_rounding(received, TUBE, operations=4)


def test_refused_and_unsolvable(rng):
    kernel, labels = np.eye(2), np.ones(2)
    with pytest.raises(ValueError, match=r"tube = -0\.1: must be 0 or more"):
        solve_tube_regression(kernel, labels, -0.1, 1.0)
    with pytest.raises(ValueError, match=r"bound = 0\.0: must be positive"):
        solve_tube_regression(kernel, labels, 0.1, 0.0)
    with pytest.raises(ValueError, match=r"kernel: diagonal from 0 to 1; must be positive"):
        solve_tube_regression(np.diag([1.0, 0.0]), labels, 0.1, 1.0)
    # Equal keys cannot have labels further apart than the tube is wide, unless errors are allowed.
    with pytest.raises(RuntimeError, match=r"residual = .* must be at most .*; lower the bound"):
        solve_tube_regression(np.ones((2, 2)), np.array([1.0, -1.0]), 0.1, float("inf"))
