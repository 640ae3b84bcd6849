"""The forward pass and the overlaps, against the network written out token by token."""

from itertools import cycle

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.network import network_outputs, overlaps
from tests.assertions import assert_equal_to_rounding
from tests.problems import (
    ARCHITECTURES,
    READOUTS,
    random_network_data,
    random_weights,
    token_by_token,
)
from theory import AttentionPaths


def as_jax(weights, dtype=jnp.float64):
    return {name: jnp.asarray(values, dtype) for name, values in weights.items()}


@pytest.mark.parametrize(("name", "readout"), list(zip(ARCHITECTURES, cycle(READOUTS))))
def test_prediction_is_the_network_token_by_token(name, readout, rng):
    architecture = ARCHITECTURES[name]
    data = random_network_data(architecture, rng, readout=readout)
    weights = random_weights(architecture, rng)
    expected = token_by_token(architecture, data, weights)
    received = network_outputs(as_jax(weights), data.attended, architecture)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_overlaps_are_products_of_the_readout_carried_down_every_path(name, rng):
    arch = ARCHITECTURES[name]
    weights = random_weights(arch, rng)
    received = overlaps(as_jax(weights), arch)
    assert len(received) == arch.layers + 1
    for layer in range(1, arch.layers + 2):
        heads_above = arch.heads[layer - 1 :]
        rows = []
        for path in AttentionPaths(heads_above).indices if heads_above else [()]:
            for readout in weights["a"]:
                row = readout
                for above in range(arch.layers, layer - 1, -1):
                    values = weights[f"V_{above}"][path[above - layer]]
                    row = row @ values / np.sqrt(arch.widths[above])
                rows.append(row)
        rows = np.array(rows)
        expected = rows @ rows.T / rows.shape[1]
        # every entry sums over one path's products of matrices no larger than the widest layer
        assert_equal_to_rounding(
            received[layer - 1], expected, operations=2 * sum(arch.widths), what=f"U_{layer}"
        )
