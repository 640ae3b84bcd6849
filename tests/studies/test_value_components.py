"""Attention as projections on kernel principal components, against components of real features."""

import numpy as np
import pytest

from runs.studies.attention_regression.mathematics import taylor_features
from runs.studies.value_components.mathematics import (
    component_alignment,
    component_coefficients,
    component_values,
    keys_and_values,
)
from tests.assertions import assert_equal_to_rounding
from theory import attention_kernel, attention_matrix, centred_kernel

TOKENS, CHANNELS, COMPONENTS = 9, 2, 4
# Enough for the features of the exponential to be exact to rounding with such keys.
ORDER = 30


@pytest.fixture
def queries_and_keys(rng):
    return rng.standard_normal((2, TOKENS, CHANNELS))


def images(points, keys):
    """φ(x)/h(x) as vectors: monomials up to a degree beyond which they are below rounding."""
    of_points, of_keys = taylor_features(points, ORDER), taylor_features(keys, ORDER)
    return of_points / (of_points @ of_keys.sum(axis=0))[:, None]


def test_attention_with_these_values_projects_on_principal_components(queries_and_keys):
    """Principal components by a singular value decomposition of explicit features."""
    queries, keys = queries_and_keys
    of_keys = images(keys, keys)
    centred = of_keys - of_keys.mean(axis=0)
    _, sizes, components = np.linalg.svd(centred, full_matrices=False)
    expected = images(queries, keys) @ components[:COMPONENTS].T
    values = component_values(keys, COMPONENTS)
    received = attention_matrix(queries, keys) @ values
    signs = np.sign(np.sum(received * expected, axis=0))
    # Eigenvectors are known to rounding of K̃ over the gaps between its eigenvalues.
    eigenvalues = sizes[: COMPONENTS + 1] ** 2
    condition = eigenvalues[0] / -np.diff(eigenvalues).max() * eigenvalues[0] / eigenvalues[-1]
    assert condition < 1e6
    assert_equal_to_rounding(received, signs * expected, operations=1000, condition=condition)


def test_other_values_are_no_components(queries_and_keys, rng):
    _, keys = queries_and_keys
    values = rng.standard_normal((TOKENS, 50))
    coefficients = component_coefficients(keys, values)
    assert_equal_to_rounding(coefficients.sum(axis=0), 0.0, operations=100, scale=1e3)
    alignment = component_alignment(keys, values)
    assert np.all((alignment > 0) & (alignment < 1))
    # From the definition, channel by channel.
    kernel = centred_kernel(attention_kernel(keys, keys))
    for a, received in zip(coefficients.T, alignment, strict=True):
        expected = a @ kernel @ a / np.sqrt((a @ a) * (a @ kernel @ kernel @ a))
        assert_equal_to_rounding(received, expected, operations=1000)


def test_keys_and_values_are_those_of_a_forward_pass_by_loops(rng):
    shapes = {
        "W_in": (4, 3),
        **{f"W_{kind}_{layer}": (2, 5, 3) for kind in "KQ" for layer in (1, 2)},
    }
    model = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    model |= {f"W_V_{layer}": rng.standard_normal((2, 4, 4)) for layer in (1, 2)}
    inputs = rng.standard_normal((2, 6, 3))
    received = keys_and_values(model, inputs, 2)
    for example, tokens in enumerate(inputs):
        hidden = [model["W_in"] @ token for token in tokens]
        for layer, (keys, values) in enumerate(received, start=1):
            moved = [np.zeros(4) for _ in tokens]
            for head in range(2):
                W_K, W_Q, W_V = (model[f"W_{kind}_{layer}"][head] for kind in "KQV")
                np.testing.assert_allclose(keys[example, head], [W_K @ one for one in tokens])
                np.testing.assert_allclose(values[example, head], [W_V @ one for one in hidden])
                for t, query in enumerate(tokens):
                    logits = [(W_K @ key) @ (W_Q @ query) / np.sqrt(5.0) for key in tokens]
                    weights = np.exp(logits) / np.exp(logits).sum()
                    for weight, one in zip(weights, hidden, strict=True):
                        moved[t] += weight * (W_V @ one) / np.sqrt(2.0)
            hidden = moved
