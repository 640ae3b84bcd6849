"""Softmax attention with bilinear logits."""

import numpy as np

from sampler.attention.heads import bilinear_attention
from sampler.attention.variants import Softmax, softmax

EPSILON = np.finfo(float).eps


def test_attention_equals_a_loop_over_keys_and_queries():
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((3, 4, 5))
    weights = generator.standard_normal((2, 5, 5))
    received = bilinear_attention(inputs, weights)
    logit_bound = 0.0
    expected = np.empty((3, 2, 4, 4))
    for example in range(3):
        for head in range(2):
            for query in range(4):
                logits = [
                    inputs[example, key] @ weights[head] @ inputs[example, query]
                    for key in range(4)
                ]
                expected[example, head, :, query] = np.exp(logits) / np.sum(np.exp(logits))
                sizes = np.abs(inputs[example]) @ np.abs(weights[head])
                logit_bound = max(logit_bound, (sizes @ np.abs(inputs[example, query])).max())
    # A rounding error of 2 D ε times the sum of sizes in a logit is one of that size, relatively,
    # in its exponential, and twice that in the quotient.
    assert np.all(np.abs(received - expected) <= 2 * (2 * 5 + 4) * EPSILON * logit_bound)


def test_columns_sum_to_one_over_keys():
    generator = np.random.default_rng(1)
    received = bilinear_attention(
        generator.standard_normal((2, 6, 3)), generator.standard_normal((2, 3, 3))
    )
    assert np.all(np.abs(received.sum(axis=2) - 1) <= 6 * EPSILON)


def test_huge_logits_neither_overflow_nor_lose_the_largest():
    logits = np.array([[1e308, -1e308], [1e308, 700.0], [-1e308, 701.0]])
    expected = np.array([[0.5, 0.0], [0.5, 1 / (1 + np.e)], [0.0, np.e / (1 + np.e)]])
    with np.errstate(over="ignore"):  # −1e308 − 1e308 is −inf, whose exponential is 0
        received = softmax(logits)
    assert np.all(np.abs(received - expected) <= 4 * EPSILON)


def test_a_constant_added_to_a_column_changes_nothing():
    logits = np.random.default_rng(2).integers(-9, 9, (5, 4)).astype(float)
    assert np.array_equal(softmax(logits), softmax(logits + 1024.0))


def test_a_variant_sees_the_same_logits():
    """Weights that are not symmetric tell queries from keys."""
    generator = np.random.default_rng(3)
    inputs, weights = generator.standard_normal((3, 4, 5)), generator.standard_normal((2, 5, 5))
    received = bilinear_attention(inputs, weights, (Softmax(), Softmax()))
    expected = bilinear_attention(inputs, weights)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-13)
