"""Softmax attention from learned keys and queries."""

import numpy as np

from sampler.attention.heads import softmax_attention
from tests.assertions import assert_equal_to_rounding


def arrays(heads=3, size=4, tokens=5, channels=6, scale=1.0):
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((2, tokens, channels))
    query, key = scale * generator.standard_normal((2, heads, size, channels))
    return inputs, query, key


def test_attention_equals_a_loop_over_keys_and_queries():
    inputs, query, key = arrays()
    received = softmax_attention(inputs, query, key)
    expected = np.empty((2, 3, 5, 5))
    for example in range(2):
        for head in range(3):
            for t in range(5):
                q = query[head] @ inputs[example, t]
                logits = [q @ (key[head] @ inputs[example, s]) / np.sqrt(4) for s in range(5)]
                expected[example, head, :, t] = np.exp(logits) / np.sum(np.exp(logits))
    # A logit is a sum of 4·6·6 products, each up to that size; its rounding is the relative one
    # of the exponential.
    size = np.abs(query).max() * np.abs(key).max() * np.abs(inputs).max() ** 2
    assert_equal_to_rounding(received, expected, operations=4 * 4 * 36, condition=size)


def test_columns_sum_to_one_over_keys_and_rows_do_not():
    received = softmax_attention(*arrays())
    assert_equal_to_rounding(received.sum(axis=2), np.ones((2, 3, 5)), operations=10)
    assert np.abs(received.sum(axis=3) - 1).max() > 0.1


def test_without_weights_attention_is_uniform():
    inputs, query, key = arrays()
    received = softmax_attention(inputs, 0 * query, key)
    assert_equal_to_rounding(received, np.full((2, 3, 5, 5), 0.2), operations=4)


def test_huge_logits_choose_the_largest():
    inputs, query, key = arrays(scale=1e8)
    received = softmax_attention(inputs, query, key)
    assert set(np.unique(received)) == {0.0, 1.0}
    assert np.array_equal(received.sum(axis=2), np.ones((2, 3, 5)))
