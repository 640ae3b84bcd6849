"""The trained network: token by token, in the theory's terms, and its frozen attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.attention.layers import layer_matrices, variants_by_head
from sampler.attention.variants import (
    BatchNormalised,
    FirstOrder,
    HeadNormalised,
    Linear,
    ScaledHeads,
    Softmax,
)
from sampler.streams import Stream
from sampler.token_network import TokenNetwork
from sampler.transformer import forward_pass as module
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import (
    Transformer,
    draw_parameters,
    frozen_attention,
    theory_weights,
)
from tests.problems import NetworkData
from tests.token_networks import loops

TOKENS = 8


def network_of(heads, widths, key_size, channels, variants=None, **kinds) -> Transformer:
    by_head = variants_by_head(variants or Softmax(), heads)
    settings = {"values": "linear", "outputs": None} | kinds
    hypernetworks = settings.pop("hypernetworks", (False,) * len(heads))
    sizes = heads, widths, key_size, channels
    return Transformer(*sizes, variants=by_head, hypernetworks=hypernetworks, **settings)


def two_layers(*variants, **kinds) -> Transformer:
    return network_of((2, 3), (5, 4, 7), 3, 6, variants or None, **kinds)


MIXED = (
    (ScaledHeads(scale=4), Softmax()),
    (HeadNormalised(), BatchNormalised(), HeadNormalised()),
)
NETWORKS = {
    "one layer": network_of((3,), (5, 4), 3, 6, outputs=2),
    "causal": two_layers(Softmax(mask="causal"), FirstOrder()),
    "mixed": two_layers(*MIXED),
    "deep": network_of(
        (3, 3, 3, 3),
        (5, 4, 7, 3, 6),
        2,
        6,
        (
            (Softmax(), ScaledHeads(scale=2), Softmax()),
            Linear(),
            (Linear(), ScaledHeads(scale=4, beta=1.0), ScaledHeads(scale=1)),
            Softmax(),
        ),
    ),
}


def problem(name):
    """Parameters and inputs in float64, with keys and queries large enough to be of weight."""
    network = NETWORKS[name]
    drawn = draw_parameters(network, 3, Stream.PARAMETERS)
    large = {k: 4 * v if k[:3] in ("W_Q", "W_K") else v for k, v in drawn.items()}
    inputs = np.random.default_rng(1).standard_normal((4, TOKENS, network.channels))
    return network, {k: v.astype(np.float64) for k, v in large.items()}, inputs


def on_device(arrays, dtype=jnp.float64):
    return {name: jnp.asarray(values, dtype) for name, values in arrays.items()}


def attention_of(network, parameters, x):
    """Ω of every layer for one example, from queries and keys token by token."""
    for layer, variants in enumerate(network.variants, start=1):
        queries, keys = (
            np.array([[weights @ token for token in x] for weights in parameters[f"W_{k}_{layer}"]])
            for k in "QK"
        )
        yield layer_matrices(variants, queries[None], keys[None])[0]


def by_loops(network, parameters, inputs, attention):
    """Outputs token by token, of loops that divide by the roots of all widths."""
    weights = {"V_0": network.channels**0.5 * parameters["W_in"]}
    for layer, width in enumerate(network.widths[:-1], start=1):
        weights[f"V_{layer}"] = width**0.5 * parameters[f"W_V_{layer}"]
    weights["a"] = network.widths[-1] ** 0.5 * np.atleast_2d(parameters["readout"])
    kinds = network.hypernetworks, network.values, "none", "mean"
    data = NetworkData(inputs, attention, "mean")
    return weights, loops(TokenNetwork(network.architecture, *kinds), data, weights)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_those_of_a_loop_over_tokens(name, monkeypatch):
    """By paths, where there are few, and by tokens; and weights and attention are the theory's."""
    network, parameters, inputs = problem(name)
    each = [tuple(attention_of(network, parameters, x)) for x in inputs]
    attention = tuple(map(np.stack, zip(*each, strict=True)))
    weights, expected = by_loops(network, parameters, inputs, attention)
    arguments = on_device(parameters), jnp.asarray(inputs), network
    bound = {"rtol": 0, "atol": 1e-12 * np.abs(expected).max()}
    received = jax.jit(transformer_outputs, static_argnums=2)(*arguments)
    np.testing.assert_allclose(received.reshape(expected.shape), expected, **bound)
    monkeypatch.setattr(module, "MOST_PATHS", 0)
    received = transformer_outputs(*arguments)
    np.testing.assert_allclose(received.reshape(expected.shape), expected, **bound)
    assert received.shape == (len(inputs), *parameters["readout"].shape[:-1])
    found = theory_weights(parameters, network)
    assert {k: v.shape for k, v in found.items()} == network.architecture.weight_shapes
    for key, values in weights.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-14)
    for omega, expected in zip(
        frozen_attention(parameters, inputs, network.variants), attention, strict=True
    ):
        np.testing.assert_allclose(omega, expected, rtol=0, atol=1e-13)


def test_a_hypernetwork_is_that_of_a_loop_over_pairs_of_tokens():
    """The second of two layers, which share nothing but the inputs."""
    kinds = {"hypernetworks": (False, True), "values": "relu", "outputs": 2}
    network = network_of((2, 3), (5, 4, 7, 3), 3, 6, (Softmax(), HeadNormalised()), **kinds)
    parameters = draw_parameters(network, 4, Stream.PARAMETERS)
    parameters = {name: values.astype(np.float64) for name, values in parameters.items()}
    inputs = np.random.default_rng(2).standard_normal((3, TOKENS, 6))
    frozen = frozen_attention(parameters, inputs, network.variants)
    _, expected = by_loops(network, parameters, inputs, frozen)
    received = transformer_outputs(on_device(parameters), jnp.asarray(inputs), network)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert not network.in_theory


def test_an_extra_head_attends_in_the_place_of_a_trained_one(rng):
    """Heads 3 and 4 of a layer of three as heads 0 and 1 would, had they those weights."""
    network, parameters, inputs = problem("mixed")
    alone = frozen_attention(parameters, inputs, network.variants)
    extra = rng.standard_normal((2, 2, network.key_size, network.channels))
    longer = dict(parameters)
    for kind, weights in zip("QK", extra, strict=True):
        longer[f"W_{kind}_2"] = np.concatenate([parameters[f"W_{kind}_2"], weights])
    received = frozen_attention(longer, inputs, network.variants)
    assert np.array_equal(received[1][:, :3], alone[1])
    for head in range(2):
        replaced = dict(parameters)
        for kind, weights in zip("QK", extra, strict=True):
            replaced[f"W_{kind}_2"] = parameters[f"W_{kind}_2"].copy()
            replaced[f"W_{kind}_2"][head] = weights[head]
        expected = frozen_attention(replaced, inputs, network.variants)[1][:, head]
        np.testing.assert_allclose(received[1][:, 3 + head], expected, rtol=0, atol=1e-13)


def test_parameters_are_uniform_within_their_fan_in():
    network = network_of((4, 4), (64, 32, 16), 8, 64)
    drawn = draw_parameters(network, 0, Stream.PARAMETERS)
    assert {k: v.shape for k, v in drawn.items()} == network.parameter_shapes
    assert network.parameter_count == sum(values.size for values in drawn.values())
    for name, values in drawn.items():
        limit = 1 / np.sqrt(values.shape[-1])
        assert np.abs(values).max() <= np.float32(limit)
        # The variance of a uniform number is limit²/3, that of its square 4 limit⁴/45.
        error = limit**2 * np.sqrt(4 / 45 / values.size)
        assert abs(np.mean(np.square(values, dtype=float)) - limit**2 / 3) < 4.5 * error, name
    other = draw_parameters(network, 1, Stream.PARAMETERS)
    assert not np.array_equal(drawn["W_in"], other["W_in"])
