"""Attention-BN and Attention-SH as regressions, against the variants that recipes use."""

import math

import numpy as np
import pytest

from sampler.attention.variants import (
    AttentionVariant,
    BatchNormalised,
    ScaledHeads,
    Softmax,
    pooling_matrix,
)
from tests.assertions import assert_equal_to_rounding
from theory.studies.softmax_forms import attention_kernel, attention_matrix, normalisers
from theory.studies.support_vectors import (
    regression_of_attention,
    scaled_down_points,
    standardised_points,
    support_vector_attention,
)
from theory.studies.tube_regression import rounding_of_fit, violation

TOKENS, CHANNELS, TUBE, EPSILON = 16, 3, 0.3, 1e-5
AVERAGES = pooling_matrix("average", TOKENS, 2)

# The variant of a recipe, and the points of the regression behind it.
CASES = {
    "SH": (ScaledHeads(scale=2), lambda keys: scaled_down_points(keys, AVERAGES)),
    "SH, stride": (
        ScaledHeads(scale=3, pooling="stride"),
        lambda keys: scaled_down_points(keys, pooling_matrix("stride", TOKENS, 3)),
    ),
    "SH, block": (
        ScaledHeads(scale=2, pooling="block", grid=(4, 4)),
        lambda keys: scaled_down_points(keys, pooling_matrix("block", TOKENS, 2, (4, 4))),
    ),
    "BN": (BatchNormalised(beta=0.7), lambda keys: standardised_points(keys, 0.7, True, EPSILON)),
    "BN, no scaling": (
        BatchNormalised(beta=0.7, scaling=False),
        lambda keys: standardised_points(keys, 0.7, False, EPSILON),
    ),
    "BN+SH": (
        ScaledHeads(scale=2, beta=0.7),
        lambda keys: standardised_points(keys, 0.7, True, EPSILON, AVERAGES),
    ),
}
parametrised = pytest.mark.parametrize("name", CASES)


def attended(variant: AttentionVariant, queries, keys, values):
    """Ωᵀ V of one head and example, with the variant of the recipes."""
    return variant.matrices(queries[None, None], keys[None, None])[0, 0].T @ values


def solved(points, labels):
    """The regression over what the head sees, with so large a bound that it is rarely met."""
    bound = 3.0 * float(np.median(normalisers(points.keys)))
    return support_vector_attention(points.keys, labels, TUBE, bound)


@parametrised
def test_the_variant_is_the_regressor_at_any_query(name, rng):
    """Solved, then spread over the tokens, the coefficients are values of the variant."""
    variant, points_of = CASES[name]
    keys, queries = rng.standard_normal((2, TOKENS, CHANNELS))
    points = points_of(keys)
    found = solved(points, rng.standard_normal((len(points.keys), 2)))
    assert len(found.support_vectors) > 0
    assert not np.all(found.coefficients), "no key lies inside the tube: nothing is sparse here"
    values = points.spread(found.values)
    received = attended(variant, queries, keys, values)
    # The regressor from the definition, sum by sum, over the points that the head sees.
    for query, row in zip(points.queries(queries), received, strict=True):
        similar = [math.exp(query @ key / math.sqrt(CHANNELS)) for key in points.keys]
        sums = [
            sum(math.exp(key @ other / math.sqrt(CHANNELS)) for other in points.keys)
            for key in points.keys
        ]
        expected = sum(
            beta * s / (sum(similar) * h)
            for beta, s, h in zip(found.coefficients, similar, sums, strict=True)
        )
        assert_equal_to_rounding(row, expected, operations=1000, scale=np.abs(found.values).max())


@parametrised
def test_any_values_solve_a_regression_over_what_the_head_sees(name, rng):
    variant, points_of = CASES[name]
    keys, queries = rng.standard_normal((2, TOKENS, CHANNELS))
    values = rng.standard_normal((TOKENS, 2))
    points = points_of(keys)
    pooled = points.pooling @ values
    coefficients, labels = regression_of_attention(points.keys, pooled, TUBE)
    kernel = attention_kernel(points.keys, points.keys)
    bound = 2.0 * float(np.abs(coefficients).max())
    for beta, label in zip(coefficients.T, labels.T, strict=True):
        allowed = rounding_of_fit(kernel, label, TUBE, beta)
        assert violation(kernel, label, TUBE, bound, beta) <= allowed
    # Its regressor, at any query, is what the variant makes of all values.
    expected = attended(variant, queries, keys, values)
    received = attention_kernel(points.queries(queries), points.keys) @ coefficients
    assert_equal_to_rounding(received, expected, operations=1000, scale=np.abs(pooled).max())


def test_the_spread_values_are_the_smallest_that_pool_to_the_given(rng):
    points = scaled_down_points(rng.standard_normal((TOKENS, CHANNELS)), AVERAGES)
    given = rng.standard_normal((TOKENS // 2, 2))
    spread = points.spread(given)
    assert_equal_to_rounding(AVERAGES @ spread, given, operations=100)
    # Averages: every token of a group gets the value of the group.
    assert_equal_to_rounding(spread, np.repeat(given, 2, axis=0), operations=100)
    # What pooling does not see is orthogonal to them.
    unseen = rng.standard_normal((TOKENS, 2))
    unseen -= points.spread(AVERAGES @ unseen)
    assert_equal_to_rounding(AVERAGES @ unseen, 0.0, operations=100, scale=1.0)
    assert_equal_to_rounding(np.sum(spread * unseen), 0.0, operations=1000, scale=1.0)


def test_equal_keys_in_each_group_make_scaled_heads_softmax(rng):
    """Limit: pooling equal keys loses nothing, and neither does the regression over them."""
    keys = np.repeat(rng.standard_normal((TOKENS // 2, CHANNELS)), 2, axis=0)
    queries, values = rng.standard_normal((TOKENS, CHANNELS)), rng.standard_normal((TOKENS, 2))
    softmax = attended(Softmax(), queries, keys, values)
    assert_equal_to_rounding(
        attended(ScaledHeads(scale=2), queries, keys, values), softmax, operations=1000
    )
    points = scaled_down_points(keys, AVERAGES)
    coefficients, _ = regression_of_attention(points.keys, AVERAGES @ values, TUBE)
    received = attention_kernel(queries, points.keys) @ coefficients
    assert_equal_to_rounding(received, softmax, operations=1000)
    # With keys that differ within the groups it is another function.
    moved = keys + 0.5 * rng.standard_normal(keys.shape)
    softmax, pooled = (
        attended(variant, queries, moved, values) for variant in (Softmax(), ScaledHeads(scale=2))
    )
    assert np.abs(softmax - pooled).max() > 1e-2


def test_standard_keys_make_batch_normalisation_softmax(rng):
    """Limit: keys of mean 0 and variance 1 − ε are left as they are, for every β."""
    keys, queries = rng.standard_normal((2, TOKENS, CHANNELS))
    keys = (keys - keys.mean(axis=0)) / keys.std(axis=0) * math.sqrt(1.0 - EPSILON)
    for share in (0.0, 0.4, 1.0):
        points = standardised_points(keys, share, True, EPSILON)
        assert_equal_to_rounding(points.keys, keys, operations=100)
        received = attention_matrix(points.queries(queries), points.keys)
        assert_equal_to_rounding(received, attention_matrix(queries, keys), operations=1000)


def test_without_scaling_keys_count_less_along_their_mean(rng):
    """A_j ∝ exp(−β μ·k_j/√G) exp(q·k_j/√G)."""
    keys, queries = rng.standard_normal((2, TOKENS, CHANNELS))
    keys += 0.8  # else there is hardly a mean
    share, mean = 0.7, keys.mean(axis=0)
    received = BatchNormalised(beta=share, scaling=False).matrices(
        queries[None, None], keys[None, None]
    )
    size = math.sqrt(CHANNELS)
    for i, query in enumerate(queries):
        weights = [math.exp(-share * mean @ k / size) * math.exp(query @ k / size) for k in keys]
        expected = np.array(weights) / sum(weights)
        assert_equal_to_rounding(received[0, 0, :, i], expected, operations=1000)
