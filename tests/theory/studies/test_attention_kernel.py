"""Attention as a normalised kernel, and its masks."""

import itertools
import math

import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from theory.studies.softmax_forms import (
    Mask,
    Similarity,
    attention_kernel,
    attention_matrix,
    mask_matrix,
    normalisers,
    require_visible_keys,
)


def similarity_by_loops(query, key, similarity):
    if similarity is Similarity.SOFTMAX:
        return math.exp(sum(q * k for q, k in zip(query, key, strict=True)) / math.sqrt(len(key)))

    def phi(x):
        return x + 1.0 if x > 0 else math.exp(x)

    return sum(phi(q) * phi(k) for q, k in zip(query, key, strict=True))


@pytest.mark.parametrize("similarity", Similarity)
def test_attention_and_kernel_are_the_loops(similarity, rng):
    queries, keys = rng.standard_normal((4, 3)), rng.standard_normal((6, 3))
    mask = rng.random((4, 6)) < 0.5
    mask[:, 2] = True
    attention = attention_matrix(queries, keys, similarity, mask)
    kernel = attention_kernel(queries, keys, similarity)
    h_keys = [sum(similarity_by_loops(k, other, similarity) for other in keys) for k in keys]
    assert_equal_to_rounding(normalisers(keys, similarity), h_keys, operations=20)
    for i, query in enumerate(queries):
        row = [similarity_by_loops(query, key, similarity) for key in keys]
        seen = [s * m for s, m in zip(row, mask[i], strict=True)]
        # An exponential magnifies the rounding of a logit by the logit, which is below 10 here.
        assert_equal_to_rounding(attention[i], np.array(seen) / sum(seen), operations=60)
        expected = [s / (sum(row) * h) for s, h in zip(row, h_keys, strict=True)]
        assert_equal_to_rounding(kernel[i], expected, operations=60)
        np.testing.assert_array_equal(attention[i][~mask[i]], 0.0)


@pytest.mark.parametrize("similarity", Similarity)
def test_the_kernel_of_the_keys_is_symmetric_and_positive(similarity, rng):
    keys = rng.standard_normal((7, 2))
    kernel = attention_kernel(keys, keys, similarity)
    assert_equal_to_rounding(kernel, kernel.T, operations=60)
    eigenvalues = np.linalg.eigvalsh(kernel)
    rank = {Similarity.SOFTMAX: 7, Similarity.LINEAR: 2}[similarity]
    zero = 7 * np.finfo(float).eps * eigenvalues[-1]
    assert np.sum(eigenvalues > zero) == rank
    assert eigenvalues[0] >= -zero


def test_masked_softmax_does_not_underflow_beside_a_large_hidden_logit():
    keys = np.array([[1.0], [2.0], [2000.0]])
    received = attention_matrix(keys, keys, mask=mask_matrix(Mask.CAUSAL, 3))
    expected = [[1.0, 0.0, 0.0], [1 / (1 + math.e**2), 1 / (1 + math.e**-2), 0.0], [0.0, 0.0, 1.0]]
    assert_equal_to_rounding(received, expected, operations=10)


def test_keys_too_large_for_float64_are_refused():
    with pytest.raises(ValueError, match=r"largest k·k'/√D = 900; must be at most 709"):
        normalisers(np.array([[30.0], [1.0]]))


SEES = {
    Mask.COMPLETE: lambda i, j, w: True,
    Mask.CAUSAL: lambda i, j, w: j <= i,
    Mask.WINDOW: lambda i, j, w: abs(i - j) <= w,
    Mask.ONE_SIDED_WINDOW: lambda i, j, w: 0 <= i - j <= w,
}


@pytest.mark.parametrize("tokens", [1, 2, 7])
@pytest.mark.parametrize("window", [0, 1, 3, 9])
@pytest.mark.parametrize("mask", Mask)
def test_every_entry(mask, tokens, window):
    windowed = mask in (Mask.WINDOW, Mask.ONE_SIDED_WINDOW)
    received = mask_matrix(mask, tokens, window if windowed else None)
    for i, j in itertools.product(range(tokens), repeat=2):
        assert received[i, j] == SEES[mask](i, j, window), (i, j)
    require_visible_keys(received)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Mask.COMPLETE, 0), r"tokens = 0: must be at least 1"),
        ((Mask.WINDOW, 3, -1), r"window = -1: must be 0 or more"),
        ((Mask.ONE_SIDED_WINDOW, 3), r"window = None: must be 0 or more"),
        ((Mask.CAUSAL, 3, 2), r"window = 2: mask 'causal' has no window"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        mask_matrix(*arguments)


def test_a_query_that_sees_nothing_is_refused():
    mask = mask_matrix(Mask.CAUSAL, 4)
    np.fill_diagonal(mask, False)
    with pytest.raises(ValueError, match=r"query 0 sees 0 of 4 keys \(1 such queries\)"):
        require_visible_keys(mask)
