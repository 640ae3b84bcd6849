"""Softmax attention as a limit of features of finite order, and as a maximiser."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from scipy.special import rel_entr

from sampler.attention.variants import HardMaximum
from tests.assertions import FLOAT64_ROUNDING, assert_equal_to_rounding
from theory.studies.softmax_forms import (
    attention_matrix,
    most_similarity_and_entropy,
    normalisers,
    similarity_and_entropy,
    taylor_features,
    truncated_attention,
    truncation_bound,
)
from theory.studies.support_vectors import support_vector_attention

TOKENS, CHANNELS = 7, 3


@pytest.fixture
def queries_and_keys(rng):
    return rng.standard_normal((2, TOKENS, CHANNELS))


def truncated_exponential(value, order):
    return sum(value**power / math.factorial(power) for power in range(order + 1))


@pytest.mark.parametrize("order", range(6))
def test_products_of_features_are_the_truncated_exponential(order, queries_and_keys):
    queries, keys = queries_and_keys
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


@pytest.mark.parametrize("size", [0.5, 1.0, 1.5])
def test_truncated_attention_approaches_softmax_within_the_remainder(size, queries_and_keys):
    queries, keys = size * queries_and_keys
    expected = attention_matrix(queries, keys)
    below_one = 0
    for order in range(0, 24, 2):
        bound = truncation_bound(queries, keys, order)
        received = np.abs(weights_of(queries, keys, order) - expected).sum(axis=1)
        # Features of order n add up one term of each degree, and signs may differ.
        rounding = 1000 * FLOAT64_ROUNDING * math.exp(2 * np.abs(queries @ keys.T).max())
        assert np.all(received <= bound + rounding)
        below_one += np.isfinite(bound).sum()
    assert below_one > 4 * TOKENS, "bounds that say nothing"
    assert bound.max() < 1e-3, "the last order is not yet near softmax"


def test_the_error_falls_as_a_factorial_of_the_order():
    """Two keys, logits R and 0: R^{n+1}/(n+1)! within constants, from above and from below.

    With A = softmax(R, 0) and a relative error −η of the first weight, the rows differ by
    2 A₁A₂ η/(1 − A₁η), and η e^R is the tail of the series, at least its first term and at most
    e^R times it.
    """
    reach = 2.0
    queries, keys = np.array([[reach]]), np.array([[1.0], [0.0]])
    weights = attention_matrix(queries, keys)[0]
    for order in range(18):
        received = np.abs(weights_of(queries, keys, order)[0] - weights).sum()
        first = reach ** (order + 1) / math.factorial(order + 1)
        least = 2.0 * weights.prod() * first * math.exp(-reach)
        most = 2.0 * weights.prod() * first / (1.0 - min(weights[0] * first, 0.999))
        rounding = 100 * FLOAT64_ROUNDING
        assert least - rounding <= received
        if weights[0] * first < 0.999:
            assert received <= most + rounding
    assert first < 1e-9


def test_even_orders_have_positive_weights_and_odd_ones_need_not(rng):
    queries, keys = 4.0 * rng.standard_normal((2, TOKENS, CHANNELS))
    for order in (0, 2, 4, 8):
        weights = weights_of(queries, keys, order)
        assert np.all(weights > 0)
        assert_equal_to_rounding(weights.sum(axis=1), 1.0, operations=1000)
    assert np.any(weights_of(queries, keys, 3) < 0)
    assert_equal_to_rounding(weights_of(queries, keys, 0), 1.0 / TOKENS, operations=10)


def test_the_primal_weights_of_a_regression_approach_its_attention(rng):
    """W = Σ_j φ(k_j) v_jᵀ with the values of a solved regression, one row per feature."""
    keys, queries = 0.7 * rng.standard_normal((2, TOKENS, CHANNELS))
    bound = 5.0 * float(normalisers(keys).max())
    found = support_vector_attention(keys, rng.standard_normal((TOKENS, 2)), 0.2, bound)
    sizes = np.abs(found.values).max()
    for order in (4, 8, 12):
        received = truncated_attention(queries, keys, found.values, order)
        allowed = truncation_bound(queries, keys, order)[:, None] * sizes
        rounding = 1e4 * FLOAT64_ROUNDING * sizes
        assert np.all(np.abs(received - found.regressor(queries)) <= allowed + rounding)
    assert allowed.max() < 1e-6 * sizes


def test_a_negative_order_is_refused(queries_and_keys):
    with pytest.raises(ValueError, match=r"order = -1: must be 0 or more"):
        taylor_features(queries_and_keys[0], -1)
    with pytest.raises(ValueError, match=r"order = -1: must be 0 or more"):
        truncation_bound(*queries_and_keys, -1)


def logits_of(queries, keys):
    return queries @ keys.T / math.sqrt(keys.shape[1])


def test_softmax_attains_the_log_of_the_sum_and_nothing_else_does(queries_and_keys, rng):
    """Any other point of the simplex stays below by its relative entropy to softmax."""
    logits = logits_of(*queries_and_keys)
    softmax = attention_matrix(*queries_and_keys)
    most = most_similarity_and_entropy(logits)
    expected = [math.log(sum(math.exp(value) for value in row)) for row in logits]
    assert_equal_to_rounding(most, expected, operations=100, scale=10.0)
    assert_equal_to_rounding(
        similarity_and_entropy(softmax, logits), most, operations=100, scale=10.0
    )
    corners = [np.eye(TOKENS)[[one] * TOKENS] for one in range(TOKENS)]
    drawn = [rng.dirichlet(np.full(TOKENS, shape), TOKENS) for shape in (0.1, 1.0, 10.0)]
    nearby = [softmax * (1.0 + scale * rng.standard_normal(softmax.shape)) for scale in (0.1, 0.01)]
    nearby = [one / one.sum(axis=1, keepdims=True) for one in nearby]
    for weights in (*corners, *drawn, *nearby):
        short = most - similarity_and_entropy(weights, logits)
        assert np.all(short > 0)
        distance = rel_entr(weights, softmax).sum(axis=1)
        assert_equal_to_rounding(short, distance, operations=1000, scale=10.0)


def test_a_constrained_optimiser_finds_the_row_of_softmax(queries_and_keys):
    """SLSQP over the simplex, which is told neither of softmax nor of exponentials.

    What it stops short of the maximum is a relative entropy, at least half the squared distance
    Σ|p − A| (Pinsker), so that the values alone say how far its point may be.
    """
    logits = logits_of(*queries_and_keys)
    softmax = attention_matrix(*queries_and_keys)
    most = most_similarity_and_entropy(logits)
    sums = LinearConstraint(np.ones(TOKENS), 1.0, 1.0)
    for row, expected, value in zip(logits, softmax, most, strict=True):
        found = minimize(
            lambda p, row=row: -similarity_and_entropy(p[None], row[None])[0],
            np.full(TOKENS, 1.0 / TOKENS),
            method="SLSQP",
            bounds=[(0.0, 1.0)] * TOKENS,
            constraints=sums,
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        assert found.success, found.message
        short = value + found.fun
        assert abs(short) < 1e-8, "the optimiser has not converged"
        weights = found.x / found.x.sum()
        short = value - similarity_and_entropy(weights[None], row[None])[0]
        rounding = 100 * FLOAT64_ROUNDING * 10.0
        assert np.abs(weights - expected).sum() <= math.sqrt(2.0 * max(short, 0.0) + rounding)


def test_similarity_alone_chooses_the_hard_maximum(queries_and_keys):
    """Logits l/τ with τ → 0: all other weights fall as exp of minus the gap over τ."""
    queries, keys = queries_and_keys
    hard = HardMaximum().matrices(queries[None, None], keys[None, None])[0, 0].T
    logits = np.sort(logits_of(queries, keys), axis=1)
    gap = logits[:, -1] - logits[:, -2]
    for temperature in (0.1, 0.01, 0.001):
        weights = attention_matrix(queries / temperature, keys)
        most = 2.0 * TOKENS * np.exp(-gap / temperature)
        assert np.all(np.abs(weights - hard).sum(axis=1) <= most + TOKENS * FLOAT64_ROUNDING)
        value = temperature * most_similarity_and_entropy(logits / temperature)
        # Entropy is from 0 to ln T.
        entropy, rounding = (value - logits[:, -1]) / temperature, 1e4 * FLOAT64_ROUNDING
        assert np.all(entropy >= -rounding)
        assert np.all(entropy <= math.log(TOKENS) + rounding)
