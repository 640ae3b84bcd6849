"""Matrices of layers: softmax by loops, heads of a layer, and the published four-path arrays."""

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.attention.logits import head_matrices
from sampler.attention.variants import Softmax, softmax
from sampler.data.markov_chain import head_weights
from tests.assertions import assert_equal_to_rounding

EPSILON = np.finfo(float).eps


def test_huge_logits_neither_overflow_nor_lose_the_largest():
    logits = np.array([[1e308, -1e308], [1e308, 700.0], [-1e308, 701.0]])
    expected = np.array([[0.5, 0.0], [0.5, 1 / (1 + np.e)], [0.0, np.e / (1 + np.e)]])
    with np.errstate(over="ignore"):  # −1e308 − 1e308 is −inf, whose exponential is 0
        received = softmax(logits)
    assert np.all(np.abs(received - expected) <= 4 * EPSILON)


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize("form", ["low_rank", "full", "positions"])
def test_softmax_attention_equals_a_loop(form, library, rng):
    """Of drawn and trained heads, in NumPy, and of sampled ones, in JAX: one function."""
    inputs = rng.standard_normal((2, 5, 6))
    if form == "full":
        given = weights = rng.standard_normal((3, 6, 6))
    elif form == "low_rank":
        query, key = given = rng.standard_normal((2, 3, 4, 6))
        weights = [k.T @ q / np.sqrt(4) for q, k in zip(query, key, strict=True)]
    else:  # the logits of keys are those of an input of its own, whatever the query
        given = rng.standard_normal((3, 5))
    arrays = tuple(map(library.asarray, given)) if form == "low_rank" else library.asarray(given)
    made = head_matrices(form, arrays, library.asarray(inputs), (Softmax(),) * 3)
    assert isinstance(made, type(library.asarray(inputs)))
    received = np.asarray(made)
    if form == "positions":
        expected = np.exp(given) / np.exp(given).sum(axis=1, keepdims=True)
        expected = np.broadcast_to(expected[None, :, :, None], (2, 3, 5, 5))
        assert_equal_to_rounding(received, expected, operations=4 * 36, condition=1.0)
        return
    size = 0.0
    expected = np.empty((2, 3, 5, 5))
    for example in range(2):
        for head in range(3):
            for t in range(5):
                moved = weights[head] @ inputs[example, t]
                logits = [inputs[example, s] @ moved for s in range(5)]
                expected[example, head, :, t] = np.exp(logits) / np.sum(np.exp(logits))
                terms = np.abs(inputs[example]) @ np.abs(weights[head])
                size = max(size, (terms @ np.abs(inputs[example, t])).max())
    # The rounding of a logit is the relative one of its exponential.
    assert_equal_to_rounding(received, expected, operations=4 * 36, condition=size)


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
    first, second = head_matrices("full", np.stack([good, uniform]), inputs, (Softmax(),) * 2)[0]
    received = second[:, -1] @ first.T @ inputs[0]  # last-token readout
    # A logit is a sum of about 231² products. Rounding moves it by at most 2·231 ε times the sum
    # of their sizes, and the attention, relatively, by twice that.
    size = np.abs(inputs[0])
    bound = 2 * 2 * 231 * EPSILON * np.max(size @ np.abs(good) @ size.T) * np.max(size)
    difference = np.max(np.abs(received - reference["attended_inputs_train"][0, 0]))
    assert difference <= min(bound, 1e-10)
