"""Networks against loops over their definition: by paths, by tokens, with all kinds of blocks."""

from dataclasses import dataclass, replace
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sampler.token_network as module
from sampler.data.examples import Examples
from sampler.network import network_outputs, overlaps
from sampler.settings.network_sections import Mlp
from sampler.token_network import predict_split, token_arrays
from tests.assertions import assert_equal_to_rounding
from tests.problems import (
    ARCHITECTURES,
    FEW,
    READOUTS,
    NetworkData,
    random_network_data,
    random_weights,
    token_by_token,
)
from tests.token_networks import (
    PAIRED,
    Learned,
    data_of,
    drawn_weights,
    loops,
    network_of,
    problem_of_splits,
    split_of,
)
from theory import Architecture, AttentionPaths, attended_inputs, pair_matrices


def on_device(weights):
    return {name: jnp.asarray(values) for name, values in weights.items()}


def assert_equal(received, expected):
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


# --- sums over paths


@pytest.mark.parametrize(("name", "readout"), list(zip(FEW, READOUTS, strict=True)))
def test_prediction_is_the_network_token_by_token(name, readout, rng):
    architecture = ARCHITECTURES[name]
    data = random_network_data(architecture, rng, readout=readout)
    weights = random_weights(architecture, rng)
    expected = token_by_token(architecture, data, weights)
    assert_equal(network_outputs(on_device(weights), data.attended, architecture), expected)


@pytest.mark.parametrize("name", PAIRED)
def test_a_linear_hypernetwork_is_the_sum_over_hadamard_paths(name, rng):
    """Σ over pairs of heads of products of attention entries: two layers, one mixing of tokens."""
    arch, hypernetworks = PAIRED[name]
    network = network_of(arch, hypernetworks, readout="mean")
    data, weights = data_of(network, rng), random_weights(arch, rng)
    attention = tuple(
        pair_matrices(jnp.asarray(omega)) if is_pair else jnp.asarray(omega)
        for omega, is_pair in zip(data.attention, hypernetworks, strict=True)
    )
    attended = attended_inputs(jnp.asarray(data.inputs), attention, "mean")
    received = network_outputs(on_device(weights), attended, arch)
    assert_equal(received, loops(network, data, weights))


@pytest.mark.parametrize("name", FEW)
def test_overlaps_are_products_of_the_readout_carried_down_every_path(name, rng):
    arch = ARCHITECTURES[name]
    weights = random_weights(arch, rng)
    received = overlaps(on_device(weights), arch)
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


# --- token by token


# Widths between branches are equal, as residuals need them; inside a pair it is another.
SHAPES = PAIRED | {
    "one layer": (Architecture((2,), (5, 5), (0.9, 1.5, 0.6), 4, outputs=2), (False,)),
    "two layers": (Architecture((2, 3), (5, 5, 5), (0.9, 1.5, 0.6, 1.3), 4), (False, False)),
    "pair, layer": (
        Architecture((2, 2, 1), (5, 4, 5, 5), (0.9, 1.5, 0.6, 1.3, 0.8), 4),
        (True, False),
    ),
}


@dataclass(frozen=True)
class Case:
    """A network, of whose heads some may be learned."""

    shape: str
    values: str
    norm: str
    readout: str
    residual: bool = False
    mlp: str | None = None
    learned: Learned | None = None


CASES = [
    Case("one layer", "gelu", "none", "last"),
    Case("layer, pair, layer", "relu", "none", "mean"),
    Case("one pair", "linear", "after", "last"),
    Case("layer, pair, layer", "erf", "before", "first"),
    Case("two layers", "gelu", "none", "first", residual=True),
    Case("pair, layer", "relu", "none", "last", mlp="gelu"),
    Case("two layers", "erf", "after", "mean", residual=True, mlp="erf"),
    Case("two layers", "relu", "before", "last", residual=True, mlp="relu",
         learned=Learned("low_rank", ((False, False), (True, False, True)), True)),
    Case("one layer", "relu", "none", "mean", residual=True,
         learned=Learned("full", ((True, False),), True, (1.3,))),
    Case("pair, layer", "linear", "after", "first", mlp="relu",
         learned=Learned("low_rank", ((True, True), (True,)), False)),
]  # fmt: skip


def network_and_heads(case: Case, tokens: int = 3):
    arch, pairs = SHAPES[case.shape]
    mlp = Mlp(width=3, activation=case.mlp) if case.mlp else None
    network = network_of(
        arch, pairs, case.values, case.norm, case.readout, residual=case.residual, mlp=mlp
    )
    if case.learned is None:
        return network, None
    heads = case.learned.heads(network, tokens)
    return replace(network, logits=heads.sites, stream=case.learned.stream), heads


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_block_equals_loops_over_the_definition(case, rng):
    network, heads = network_and_heads(case)
    data, weights = data_of(network, rng, examples=2, tokens=3), drawn_weights(network, rng)
    received = predict_split(on_device(weights), split_of(data, heads), network)
    assert_equal(received, loops(network, data, weights, case.learned))


@pytest.mark.parametrize(("readout", "held"), [("last", 2**28), ("first", 1)])
def test_a_padded_sequence_is_that_of_its_tokens_alone(readout, held, rng, monkeypatch):
    """Whatever stands in the padding, and whatever that attends to; together or one by one."""
    monkeypatch.setattr(module, "EXAMPLES_BYTES", held)
    network = network_of(SHAPES["one layer"][0], values="relu", readout=readout)
    data, weights = data_of(network, rng), drawn_weights(network, rng)
    lengths = np.array([4, 1, 3])
    real = np.arange(4) < lengths[:, None]
    seen = real[:, None, :, None] | ~real[:, None, None, :]
    matrices = tuple(one * seen for one in data.attention)
    split = Examples(data.inputs, None, matrices, lengths)
    received = predict_split(on_device(weights), token_arrays(split, readout), network)
    for row, length in enumerate(lengths):
        inputs = data.inputs[[row], :length]
        alone = tuple(one[[row], :, :length, :length] for one in matrices)
        expected = loops(network, NetworkData(inputs, alone, readout), weights)
        assert_equal(received[row], expected[0])


@pytest.mark.slow
def test_the_posterior_is_that_of_the_loops(rng):
    """ln p(y, weights), term by term."""
    learned = Learned("low_rank", ((True, True),), True)
    case = Case("one layer", "linear", "before", "last", True, "gelu", learned)
    network, heads = network_and_heads(case)
    data = data_of(network, rng, 4, 3)
    labels, split = jnp.asarray(rng.standard_normal((4, 2))), split_of(data, heads)
    problem = problem_of_splits(network, split, labels, 0.3, split)
    space = problem.space("weights", keep=tuple(network.weight_shapes))
    weights = drawn_weights(network, rng)
    position = on_device(weights)
    expected = scipy.stats.norm.logpdf(
        labels, loops(network, data, weights, learned), sqrt(0.3)
    ).sum()
    deviations = space.unflatten(space.prior_gaussian.scale)
    for name, values in weights.items():
        layer = network.weight_layers.get(name)
        deviation = 1.0 if layer is None else sqrt(network.variances[layer])
        expected += scipy.stats.norm.logpdf(values, 0, deviation).sum()
        np.testing.assert_allclose(deviations[name], deviation, rtol=1e-14)
    log_density = jax.jit(space.log_density)
    assert_equal_to_rounding(float(log_density(position)), expected, operations=2000)
    assert {*network.weight_shapes} <= {*space.observe(jax.random.key(0), position)}
