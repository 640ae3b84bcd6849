"""Attention of heads: bilinear logits, keys and queries, and the published four-path arrays."""

import numpy as np

from sampler.attention.heads import bilinear_attention, softmax_attention
from sampler.attention.variants import softmax
from sampler.data.markov_chain import head_weights
from tests.assertions import assert_equal_to_rounding

EPSILON = np.finfo(float).eps


def test_bilinear_attention_equals_a_loop_over_keys_and_queries():
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


def test_huge_logits_neither_overflow_nor_lose_the_largest():
    logits = np.array([[1e308, -1e308], [1e308, 700.0], [-1e308, 701.0]])
    expected = np.array([[0.5, 0.0], [0.5, 1 / (1 + np.e)], [0.0, np.e / (1 + np.e)]])
    with np.errstate(over="ignore"):  # −1e308 − 1e308 is −inf, whose exponential is 0
        received = softmax(logits)
    assert np.all(np.abs(received - expected) <= 4 * EPSILON)


def arrays(heads=3, size=4, tokens=5, channels=6, scale=1.0):
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((2, tokens, channels))
    query, key = scale * generator.standard_normal((2, heads, size, channels))
    return inputs, query, key


def test_attention_of_keys_and_queries_equals_a_loop():
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


def test_the_good_head_has_the_published_weights():
    """The entries of the published matrix at β = 10, of 200 features and 31 positions.

    Features of one half have +5e-4 among themselves and −5e-4 with the other half. A position
    attends to the one before it with 10, to the first with 15.
    """
    expected = np.zeros((231, 231))
    half = np.repeat([1.0, -1.0], 100)
    expected[:200, :200] = 5e-4 * half[:, None] * half
    for query in range(1, 31):
        expected[200, 200 + query] = 15.0
        if query > 1:
            expected[200 + query - 1, 200 + query] = 10.0
    received = head_weights("good", 200, 31, 10.0, np.random.default_rng(0))
    assert np.all(np.abs(received - expected) <= 8 * EPSILON * np.abs(expected))


def test_the_uniform_head_has_the_published_attention():
    """There, every two positions have weight 10, which is the same as none."""
    generator = np.random.default_rng(0)
    published = np.zeros((231, 231))
    published[200:, 200:] = 10.0
    received = head_weights("uniform", 200, 31, 10.0, generator)
    features = generator.standard_normal((10, 31, 200))
    inputs = np.concatenate([features, np.broadcast_to(np.eye(31), (10, 31, 31))], axis=2)
    attention = bilinear_attention(inputs, np.stack([received, published]))
    assert np.array_equal(attention[:, 0], attention[:, 1])


def test_random_heads_have_the_published_scales(reference):
    for expected in reference["random_head_scales"]:
        received = head_weights("random", 200, 31, 10.0, np.random.default_rng(0))
        for i, rows in enumerate((slice(0, 200), slice(200, 231))):
            for j, columns in enumerate((slice(0, 200), slice(200, 231))):
                block = received[rows, columns]
                # Relative standard error of a standard deviation: 1/√(2n), here for two of them.
                error = np.sqrt(2 / (2 * block.size))
                assert abs(block.std() / expected[i, j] - 1) < 5 * error


def test_attended_inputs_of_the_good_path_are_the_published_ones(reference):
    inputs = np.concatenate([reference["first_input_features"], np.eye(31)], axis=1)[None]
    generator = np.random.default_rng(0)
    good, uniform = (head_weights(kind, 200, 31, 10.0, generator) for kind in ("good", "uniform"))
    first, second = bilinear_attention(inputs, np.stack([good, uniform]))[0]
    received = second[:, -1] @ first.T @ inputs[0]  # last-token readout
    # A logit is a sum of about 231² products. Rounding moves it by at most 2·231 ε times the sum
    # of their sizes, and the attention, relatively, by twice that.
    size = np.abs(inputs[0])
    bound = 2 * 2 * 231 * EPSILON * np.max(size @ np.abs(good) @ size.T) * np.max(size)
    difference = np.max(np.abs(received - reference["attended_inputs_train"][0, 0]))
    assert difference <= min(bound, 1e-10)
