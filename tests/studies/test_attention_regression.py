"""The solver of the regression, complementarity, features of finite order, softmax as maximiser."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import rel_entr

from runs.studies.attention_regression.mathematics import (
    complementarity_problem,
    normalisers,
    similarity_and_entropy,
    support_vector_attention,
    taylor_features,
    truncated_attention,
    truncation_bound,
    unknowns_of,
    violation,
)
from tests.assertions import FLOAT64_ROUNDING, assert_equal_to_rounding
from tests.theory.test_attention_regression import assert_no_duality_gap
from theory import attention_kernel, attention_matrix

TUBE, TOKENS, CHANNELS = 0.3, 7, 3


@pytest.fixture
def queries_and_keys(rng):
    return rng.standard_normal((2, TOKENS, CHANNELS))


def test_values_inside_the_tube_are_zero(rng):
    keys = rng.standard_normal((16, 4))
    labels = rng.standard_normal((16, 3))
    bound = 30.0 * float(np.median(normalisers(keys)))
    found = support_vector_attention(keys, labels, TUBE, bound)
    errors = found.labels - found.regressor(found.keys)
    # Closer to the labels than the tube, or further, by more than rounding can explain.
    inside, outside = np.abs(errors) < TUBE - 1e-9, np.abs(errors) > TUBE + 1e-9
    assert 0 < inside.sum() < inside.size
    np.testing.assert_array_equal(found.values[inside], 0.0)
    # Errors beyond the tube take all the weight there is.
    np.testing.assert_array_equal(np.abs(found.coefficients[outside]), bound)
    silent = sorted(set(range(len(keys))) - set(found.support_vectors))
    assert silent == [key for key in range(len(keys)) if not np.any(found.values[key])]


@pytest.mark.parametrize(("tokens", "channels", "reach"), [(30, 1, 1000.0), (48, 8, 1.0)])
def test_solved_to_rounding(tokens, channels, reach):
    """Kernels of condition 1e2 to beyond 1e20, and with two equal keys."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        keys = rng.standard_normal((tokens, channels))
        keys[1] = keys[0] if seed == 2 else keys[1]
        labels = rng.standard_normal((tokens, 1))
        bound = reach * float(np.median(normalisers(keys)))
        found = support_vector_attention(keys, labels, TUBE, bound)
        assert_no_duality_gap(
            attention_kernel(keys, keys), labels[:, 0], TUBE, bound, found.coefficients[:, 0]
        )


def test_violation_sees_every_condition():
    kernel, labels = np.eye(4), np.array([0.1, 1.0, 5.0, -5.0])
    right = np.array([0.0, 0.8, 2.0, -2.0])
    assert violation(kernel, labels, 0.2, 2.0, right) <= 4 * np.finfo(float).eps
    for place, wrong, expected in ((0, 0.3, 0.4), (1, 0.0, 0.8), (1, 1.0, 0.2), (2, 1.0, 3.8)):
        received = violation(
            kernel, labels, 0.2, 2.0, np.where(np.arange(4) == place, wrong, right)
        )
        assert_equal_to_rounding(received, expected, operations=8, scale=5.0)
    assert violation(kernel, labels, 0.2, 1.5, right) == float("inf")
    # At the bound the error must not be smaller than the tube.
    received = violation(kernel, np.array([0.0, 0.0, 2.0, 0.0]), 0.2, 2.0, right * (right == 2))
    assert_equal_to_rounding(received, 0.2, operations=4)


def test_every_other_basis_fails(rng):
    """Brute force: of all 2^{4n} choices of which factor is 0 exactly the solution is left."""
    keys, labels = 2.0 * rng.standard_normal((3, 2)), np.array([2.0, 0.1, -0.8])
    kernel, bound = attention_kernel(keys, keys), 0.7 * float(np.median(normalisers(keys)))
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
    found = support_vector_attention(keys, labels[:, None], TUBE, bound).coefficients[:, 0]
    # One key is inside the tube, one on its edge, one at the bound.
    assert np.any(found == 0)
    assert np.any((found != 0) & (np.abs(found) < bound))
    assert np.any(np.abs(found) == bound)
    (only,) = solutions
    above, below, _, _ = only.reshape(4, -1)
    operations, condition = 100, np.linalg.cond(kernel)
    assert_equal_to_rounding(above - below, found, operations=operations, condition=condition)
    expected = unknowns_of(kernel, labels, TUBE, found)
    assert_equal_to_rounding(only, expected, operations=operations, condition=condition)


def truncated_exponential(value, order):
    return sum(value**power / math.factorial(power) for power in range(order + 1))


def test_products_of_features_are_the_truncated_exponential(queries_and_keys):
    order, (queries, keys) = 4, queries_and_keys
    of_queries, of_keys = taylor_features(queries, order), taylor_features(keys, order)
    assert of_keys.shape == (TOKENS, math.comb(order + CHANNELS, CHANNELS))
    # The features from their definition, over all powers of the channels.
    powers = [
        one for one in itertools.product(range(order + 1), repeat=CHANNELS) if sum(one) <= order
    ]
    for key, row in zip(keys, of_keys, strict=True):
        expected = [
            math.prod(x**m / math.sqrt(math.factorial(m)) for x, m in zip(key, one, strict=True))
            / CHANNELS ** (sum(one) / 4)
            for one in powers
        ]
        assert_equal_to_rounding(np.sort(row), np.sort(expected), operations=100)
    for i, j in itertools.product(range(TOKENS), repeat=2):
        logit = float(queries[i] @ keys[j]) / math.sqrt(CHANNELS)
        expected = truncated_exponential(logit, order)
        size = truncated_exponential(np.linalg.norm(queries[i]) * np.linalg.norm(keys[j]), order)
        received = of_queries[i] @ of_keys[j]
        assert_equal_to_rounding(received, expected, operations=200, scale=size)


def weights_of(queries, keys, order):
    """Weights of truncated attention, from the values 1."""
    return truncated_attention(queries, keys, np.eye(len(keys)), order)


def test_truncated_attention_approaches_softmax_within_the_remainder(queries_and_keys):
    """2ρ/(1 − ρ), of which ρ is the sum of Lagrange's remainders over the sum of exponentials."""
    queries, keys = 1.5 * queries_and_keys
    expected = attention_matrix(queries, keys)
    below_one = 0
    for order in range(0, 24, 2):
        bound = truncation_bound(queries, keys, order)
        for logits, one in zip(logits_of(queries, keys), bound, strict=True):
            lost = sum(
                abs(value) ** (order + 1) / math.factorial(order + 1) * max(1.0, math.exp(value))
                for value in logits
            )
            share = lost / sum(map(math.exp, logits))
            assert one == (pytest.approx(2 * share / (1 - share)) if share < 1 else math.inf)
        received = np.abs(weights_of(queries, keys, order) - expected).sum(axis=1)
        # Features of order n add up one term of each degree, and signs may differ.
        rounding = 1000 * FLOAT64_ROUNDING * math.exp(2 * np.abs(queries @ keys.T).max())
        assert np.all(received <= bound + rounding)
        below_one += np.isfinite(bound).sum()
    assert below_one > 4 * TOKENS, "bounds that say nothing"
    assert bound.max() < 1e-3, "the last order is not yet near softmax"


def logits_of(queries, keys):
    return queries @ keys.T / math.sqrt(keys.shape[1])


def test_softmax_attains_the_log_of_the_sum_and_nothing_else_does(queries_and_keys, rng):
    """Any other point of the simplex stays below by its relative entropy to softmax."""
    logits = logits_of(*queries_and_keys)
    softmax = attention_matrix(*queries_and_keys)
    most = np.array([math.log(sum(math.exp(value) for value in row)) for row in logits])
    assert_equal_to_rounding(
        similarity_and_entropy(softmax, logits), most, operations=100, scale=10.0
    )
    drawn = [rng.dirichlet(np.full(TOKENS, shape), TOKENS) for shape in (0.1, 1.0, 10.0)]
    for weights in drawn:
        short = most - similarity_and_entropy(weights, logits)
        assert np.all(short > 0)
        distance = rel_entr(weights, softmax).sum(axis=1)
        assert_equal_to_rounding(short, distance, operations=1000, scale=10.0)
