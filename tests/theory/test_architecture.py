"""Sizes, attention paths and attended inputs of an architecture."""

import itertools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import (
    ARCHITECTURES,
    FEW,
    READOUTS,
    random_network_data,
    random_weights,
    token_by_token,
)
from theory import Architecture, AttentionPaths, attended_inputs

GOOD = {
    "heads": (2, 3),
    "widths": (5, 6, 7),
    "variances": (1.0, 2.0, 3.0, 4.0),
    "channels": 4,
    "outputs": 2,
}


def test_sizes_follow_the_definitions():
    arch = Architecture(**GOOD)
    assert (arch.layers, arch.path_count) == (2, 6)
    assert arch.order_parameter_sizes == (12, 6, 2)
    assert arch.coordinate_count == 12 * 13 // 2 + 6 * 7 // 2 + 3
    assert arch.order_parameter_variances == (2.0, 3.0, 4.0)
    expected = {"V_0": (5, 4), "V_1": (2, 6, 5), "V_2": (3, 7, 6), "a": (2, 7)}
    assert arch.weight_shapes == expected
    assert arch.weight_count == 20 + 60 + 126 + 14
    # Order parameters are regular where each layer has as many units as they have rows.
    for widths, regular in (((12, 6, 2), True), ((11, 6, 2), False), ((12, 6, 1), False)):
        assert replace(arch, widths=widths).is_regular is regular


@pytest.mark.parametrize("heads", [(3,), (3, 1, 2)])
def test_flat_order_counts_like_an_odometer(heads):
    paths = AttentionPaths(heads)
    expected = list(itertools.product(*(range(count) for count in heads)))
    assert paths.count == len(expected)
    assert [tuple(path) for path in paths.indices] == expected


# --- attended inputs, and the sum over paths that makes them sufficient


def sum_over_paths(architecture, attended, weights):
    """f(x) from attended inputs, one explicit product of weights per path."""
    arch, total = architecture, 0.0
    for position, path in enumerate(AttentionPaths(arch.heads).indices):
        carried = weights["a"]
        for layer in reversed(range(arch.layers)):
            values = weights[f"V_{layer + 1}"][path[layer]]
            carried = carried @ values / np.sqrt(arch.widths[layer + 1])
        total = total + np.asarray(attended)[:, position] @ weights["V_0"].T @ carried.T
    return total / np.sqrt(arch.path_count * arch.widths[0] * arch.channels)


@pytest.mark.parametrize(("name", "readout"), list(zip(FEW, READOUTS, strict=True)))
def test_sum_over_paths_is_the_forward_pass(name, readout, rng):
    architecture = ARCHITECTURES[name]
    data = random_network_data(architecture, rng, readout=readout)
    weights = random_weights(architecture, rng)
    expected = token_by_token(architecture, data, weights)
    received = sum_over_paths(architecture, data.attended, weights)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_attended_inputs_are_products_of_attention_matrices(rng):
    architecture = ARCHITECTURES["three layers"]
    data = random_network_data(architecture, rng, tokens=5, readout="mean")
    received = data.attended
    expected = np.empty(received.shape)
    for example, tokens in enumerate(data.inputs):
        for position, path in enumerate(AttentionPaths(architecture.heads).indices):
            product = tokens.T
            for layer, head in enumerate(path):
                product = product @ data.attention[layer][example, head]
            expected[example, position] = product @ READOUTS["mean"](5)
    # three sums over 5 tokens and the readout's own
    assert_equal_to_rounding(received, expected, operations=20, scale=np.abs(data.inputs).max())


@pytest.mark.parametrize("readout", READOUTS)
def test_padding_behind_a_sequence_changes_nothing(readout, rng):
    """Whatever the tokens of padding are and attend to, as long as no token attends to them."""
    data = random_network_data(ARCHITECTURES["two layers"], rng, tokens=3, readout=readout)
    lengths = jnp.asarray([3, 2, 1] * data.inputs.shape[0])[: data.inputs.shape[0]]
    real = np.arange(5) < np.asarray(lengths)[:, None]
    padded = rng.standard_normal((len(lengths), 5, data.inputs.shape[2]))
    padded[:, :3] = np.where(real[:, :3, None], data.inputs, padded[:, :3])
    attention, alone = [], []
    for matrices in data.attention:
        noise = rng.standard_normal((*matrices.shape[:2], 5, 5))
        noise[:, :, :3, :3] = matrices
        attention.append(np.where(real[:, None, None, :] & ~real[:, None, :, None], 0.0, noise))
    received = attended_inputs(
        jnp.asarray(padded), tuple(map(jnp.asarray, attention)), readout, lengths
    )
    for row, length in enumerate(np.asarray(lengths)):
        part = slice(0, length)
        own = tuple(jnp.asarray(one[row : row + 1, :, part, part]) for one in attention)
        alone.append(attended_inputs(jnp.asarray(padded[row : row + 1, part]), own, readout)[0])
    scale = np.abs(padded).max() * max(np.abs(one).max() for one in attention) ** 2
    assert_equal_to_rounding(received, np.stack(alone), operations=40, scale=scale)
