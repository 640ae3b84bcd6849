"""Softmax attention and its variants SH and BN as support-vector regressions."""

import math

import numpy as np
import pytest

from sampler.attention.variants import (
    AttentionVariant,
    BatchNormalised,
    ScaledHeads,
    Softmax,
)
from tests.assertions import assert_equal_to_rounding
from theory import (
    HeadPoints,
    attention_kernel,
    regression_of_attention,
)
from theory.attention_regression import normalisers

TOKENS, CHANNELS, TUBE, EPSILON = 16, 4, 0.3, 1e-5
AVERAGES = np.kron(np.eye(TOKENS // 2), [0.5, 0.5])


def assert_no_duality_gap(kernel, labels, tube, bound, coefficients):
    """Primal cost and dual gain of the same β agree only at the solution of both."""
    fit = kernel @ coefficients
    square = coefficients @ fit
    loss = np.maximum(np.abs(labels - fit) - tube, 0.0)
    loss = bound * loss.sum()
    gain = labels @ coefficients - tube * np.abs(coefficients).sum() - square / 2.0
    # A label error within rounding costs bound × rounding; the same error meets β in the dual.
    count, sizes = len(labels), np.abs(kernel) @ np.abs(coefficients) + np.abs(labels) + tube
    assert_equal_to_rounding(
        square / 2.0 + loss, gain, operations=4 * count, scale=bound * sizes.sum()
    )


# The variant of a recipe, and the points of the regression behind it.
CASES = {
    "softmax": (Softmax(), lambda keys: HeadPoints.of(keys, None, 0.0, False, 0.0)),
    "SH": (ScaledHeads(scale=2), lambda keys: HeadPoints.of(keys, AVERAGES)),
    "BN": (BatchNormalised(beta=0.7), lambda keys: HeadPoints.of(keys, None, 0.7, True, EPSILON)),
    "BN+SH": (
        ScaledHeads(scale=2, beta=0.7),
        lambda keys: HeadPoints.of(keys, AVERAGES, 0.7, True, EPSILON),
    ),
}
parametrised = pytest.mark.parametrize("name", CASES)


def attended(variant: AttentionVariant, queries, keys, values):
    """Ωᵀ V of one head and example, with the variant of the recipes."""
    return variant.matrices(queries[None, None], keys[None, None])[0, 0].T @ values


@parametrised
def test_the_variant_is_the_regressor_at_any_query(name, rng):
    """Coefficients over their normalisers, spread over the tokens, are values of the variant."""
    variant, points_of = CASES[name]
    keys, queries = rng.standard_normal((2, TOKENS, CHANNELS))
    points = points_of(keys)
    coefficients = rng.standard_normal((len(points.keys), 2))
    coefficients[::3] = 0.0  # keys inside the tube
    values = coefficients / normalisers(points.keys)[:, None]
    received = attended(variant, queries, keys, points.spread(values))
    # The regressor from the definition, sum by sum, over the points that the head sees.
    for query, row in zip(points.queries(queries), received, strict=True):
        similar = [math.exp(query @ key / math.sqrt(CHANNELS)) for key in points.keys]
        sums = [
            sum(math.exp(key @ other / math.sqrt(CHANNELS)) for other in points.keys)
            for key in points.keys
        ]
        expected = sum(
            beta * s / (sum(similar) * h)
            for beta, s, h in zip(coefficients, similar, sums, strict=True)
        )
        assert_equal_to_rounding(row, expected, operations=1000, scale=np.abs(values).max())


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
        assert_no_duality_gap(kernel, label, TUBE, bound, beta)
    # Its regressor, at any query, is what the variant makes of all values.
    expected = attended(variant, queries, keys, values)
    received = attention_kernel(points.queries(queries), points.keys) @ coefficients
    assert_equal_to_rounding(received, expected, operations=1000, scale=np.abs(pooled).max())
