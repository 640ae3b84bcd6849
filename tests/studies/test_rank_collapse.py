"""Rank collapse at its limits, against matrices whose decay is known, and the order of masks."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from runs.studies.rank_collapse.mathematics import (
    MASKS,
    collapse_of_random_attention,
    distance_from_collapse,
    distances_of_layers,
    equilibrium,
    layer_norm,
    random_orthogonal_matrix,
    rank_of,
    rate_of_uniform_averages,
)
from sampler.attention.variants import Softmax
from tests.assertions import assert_equal_to_rounding

TOKENS, CHANNELS, LAYERS = 8, 5, 6


def mask_matrix(mask, tokens, window=None):
    """[query, key]: which keys each query sees."""
    return Softmax(mask=mask, window=window).visible(tokens).T


def test_masks_of_the_study_are_those_of_the_variants():
    kinds = (("none", None), ("causal", None), ("window", 4), ("one_sided_window", 4))
    for (kind, window), mask in zip(kinds, MASKS.values(), strict=True):
        np.testing.assert_array_equal(mask, mask_matrix(kind, len(mask), window))


def masked_attention(queries, keys, mask):
    logits = queries @ keys.T / np.sqrt(keys.shape[1])
    return softmax(np.where(mask, logits, -np.inf), axis=1)


def test_distance_is_the_norm_of_the_deviations(rng):
    tokens = rng.standard_normal((TOKENS, CHANNELS))
    mean = sum(tokens) / TOKENS
    expected = sum(((row - mean) ** 2).sum() for row in tokens) ** 0.5
    assert_equal_to_rounding(distance_from_collapse(tokens), expected, operations=tokens.size)


def test_lazy_averaging_decays_geometrically(rng):
    """A = (1 − a) 1 + a 11ᵀ/T multiplies every deviation by 1 − a."""
    tokens = rng.standard_normal((TOKENS, CHANNELS)) + 100.0
    share = 0.9
    matrix = (1.0 - share) * np.eye(TOKENS) + share / TOKENS
    received = distances_of_layers([lambda _: matrix] * 12, tokens)
    expected = distance_from_collapse(tokens) * (1.0 - share) ** np.arange(13)
    # Relative to each value, not to the largest: twelve orders down it must still be right. One
    # layer adds T terms that cancel to a tenth, and the tokens themselves are rounded at 100.
    lost = TOKENS / (1.0 - share)
    operations = 12 * lost + 100.0 * TOKENS
    assert_equal_to_rounding(received / expected, 1.0, operations=operations)


@pytest.mark.parametrize("normalise", [False, True])
def test_the_more_a_query_sees_the_faster_the_collapse(normalise):
    """By a factor of ten at least in 12 layers, in which a window of 4 reaches over 48 tokens."""
    left = []
    for kind, window in (("none", None), ("causal", None), ("window", 4)):
        rng = np.random.default_rng(0)
        given = mask_matrix(kind, 48, window), rng.standard_normal((48, 16)), 12, 16, rng
        left.append(collapse_of_random_attention(*given, normalise)[-1])
    assert 100.0 * left[0] < 10.0 * left[1] < left[2]


@pytest.mark.parametrize("orthogonal", [False, True])
def test_deep_down_a_layer_is_the_uniform_average_over_visible_keys(orthogonal, rng):
    """Tokens that are nearly equal lose the second eigenvalue of that matrix in every layer.

    Without LayerNorm a rotation of all tokens leaves every deviation as long as it was.
    """
    mask = mask_matrix("one_sided_window", 10, 3)
    tokens = rng.standard_normal((10, 6))
    received = collapse_of_random_attention(mask, tokens, 300, 6, rng, orthogonal_values=orthogonal)
    lost = (np.log(received[250]) - np.log(received[300])) / 50
    assert lost == pytest.approx(rate_of_uniform_averages(mask), abs=1e-6)


def test_rates_of_uniform_averages_that_are_known():
    """Query i of a causal mask sees i keys: eigenvalues 1/i. Complete: one layer is enough."""
    causal = rate_of_uniform_averages(mask_matrix("causal", TOKENS))
    assert_equal_to_rounding(causal, np.log(2.0), operations=TOKENS**2)
    assert rate_of_uniform_averages(mask_matrix("none", TOKENS)) == np.inf
    assert rate_of_uniform_averages(np.eye(TOKENS, dtype=bool)) == 0.0


def averages(kind: str, window: int | None = None) -> np.ndarray:
    mask = mask_matrix(kind, TOKENS, window)
    return mask / mask.sum(axis=1, keepdims=True)


# Steps of tokens 2 to 8 at whose equilibrium small changes die out, by rank.
STABLE = {1: (0, 0, 0, 0, 0, 0, 0), 4: (-1, 0, 1, 0, -1, 0, 0)}


def alternating(rank: int) -> tuple[int, ...]:
    return tuple((-1) ** token if token < rank else 0 for token in range(1, TOKENS))


@pytest.mark.parametrize(
    ("attention", "rank"), [("one-sided window", TOKENS), ("softmax", 1), ("softmax", 3)]
)
def test_one_value_matrix_has_equilibria_of_every_rank(attention, rank, rng):
    matrix = averages("one_sided_window", 4)
    if attention == "softmax":
        queries, keys = 0.3 * rng.standard_normal((2, TOKENS, 3))
        matrix = masked_attention(queries, keys, mask_matrix("causal", TOKENS))
    found = equilibrium(matrix, alternating(rank), TOKENS)
    assert found.rank == rank == np.linalg.matrix_rank(found.tokens)
    after = layer_norm(matrix @ found.tokens @ found.values)
    # Dividing by a standard deviation magnifies rounding by the size of W over it.
    deviation = (matrix @ found.tokens @ found.values).std(axis=1).min()
    condition = np.linalg.norm(found.values, 2) / deviation
    operations = TOKENS * found.tokens.shape[1]
    assert_equal_to_rounding(after, found.tokens, operations=operations, condition=condition)
    assert found.error == np.abs(after - found.tokens).max()
    np.testing.assert_array_equal(found.values, equilibrium(matrix, STABLE[1], TOKENS).values)


@pytest.mark.parametrize("rank", [1, 4])
def test_every_rank_up_to_full_is_kept_through_400_layers(rank, rng):
    """Four directions: what is added to tokens dies out, at the rate of the spectral radius."""
    found = equilibrium(averages("causal"), STABLE[rank], 4)
    assert found.growth < 0.9
    noise = 1e-6 * rng.standard_normal(found.tokens.shape)
    received = found.after(found.tokens + noise, 400)
    assert rank_of(layer_norm(found.tokens + noise)) == 4
    assert rank_of(received) == rank
    np.testing.assert_allclose(received, found.tokens, atol=1e-12)
    # Identity or rotations in place of W: all tokens become the same.
    for values in (np.eye(5), random_orthogonal_matrix(5, rng)):
        other = replace(found, values=values)
        collapsed = other.after(found.tokens + noise, 400)
        assert distance_from_collapse(collapsed) < 1e-12
        assert rank_of(collapsed) == 1


@pytest.mark.parametrize("steps", [STABLE[4], alternating(3)])
def test_growth_is_the_spectral_radius_of_the_derivative(steps):
    """Central differences of one layer in every element; eigenvalues lose about half the digits."""
    found = equilibrium(averages("causal"), steps, 4)
    size, step = found.tokens.size, 1e-5
    columns = []
    for change in step * np.eye(size):
        by = change.reshape(found.tokens.shape)
        difference = found.after(found.tokens + by, 1) - found.after(found.tokens - by, 1)
        columns.append(difference.ravel() / (2.0 * step))
    expected = np.abs(np.linalg.eigvals(np.stack(columns, axis=1))).max()
    assert found.growth == pytest.approx(expected, rel=1e-3)
