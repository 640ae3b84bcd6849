"""The trained network: token by token, in the theory's terms, and its frozen attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.network import network_outputs
from sampler.transformer.model import (
    TransformerShape,
    draw_parameters,
    frozen_attention,
    theory_weights,
)
from sampler.transformer.network import row_softmax, token_layers, transformer_outputs
from tests.assertions import assert_equal_to_rounding
from theory import Architecture, attended_inputs

# The last has more paths (3·3·3·2) than tokens: its lower layers go token by token.
SHAPES = {
    "one layer": TransformerShape((3,), (5, 4), 3, 6),
    "two layers": TransformerShape((2, 3), (5, 4, 7), 3, 6),
    "more paths than tokens": TransformerShape((2, 3, 3, 3), (5, 4, 7, 3, 6), 2, 6),
}
TOKENS = 7


def problem(name):
    """Parameters and inputs in float64, so that rounding alone is left to tell results apart."""
    shape = SHAPES[name]
    drawn = draw_parameters(shape, 3, 0)
    # Larger keys and queries, or every softmax would be almost uniform.
    large = {k: 4 * v if k[:3] in ("W_Q", "W_K") else v for k, v in drawn.items()}
    parameters = {k: v.astype(np.float64) for k, v in large.items()}
    inputs = np.random.default_rng(1).standard_normal((4, TOKENS, shape.channels))
    return shape, parameters, inputs


def token_by_token(shape, parameters, inputs):
    """The network as it is defined, with a loop over everything."""
    outputs = []
    for x in inputs:
        z = [parameters["W_in"] @ token for token in x]
        for layer, heads in enumerate(shape.heads, start=1):
            above = []
            for t in range(len(x)):
                total = np.zeros(shape.widths[layer])
                for head in range(heads):
                    q = parameters[f"W_Q_{layer}"][head] @ x[t]
                    keys = [parameters[f"W_K_{layer}"][head] @ token for token in x]
                    weights = np.exp([q @ k / np.sqrt(shape.key_size) for k in keys])
                    weights /= weights.sum()
                    mixed = sum(w * token for w, token in zip(weights, z, strict=True))
                    total += parameters[f"W_V_{layer}"][head] @ mixed
                above.append(total / np.sqrt(heads))
            z = above
        outputs.append(parameters["readout"] @ np.mean(z, axis=0))
    return np.array(outputs)


def on_device(arrays):
    return {name: jnp.asarray(values) for name, values in arrays.items()}


@pytest.mark.parametrize("name", SHAPES)
def test_prediction_is_the_network_token_by_token(name):
    shape, parameters, inputs = problem(name)
    expected = token_by_token(shape, parameters, inputs)
    received = transformer_outputs(on_device(parameters), jnp.asarray(inputs))
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert token_layers(shape.heads, TOKENS) == (2 if name.startswith("more") else 0)


@pytest.mark.parametrize("name", SHAPES)
def test_the_theorys_network_with_these_weights_is_the_trained_one(name):
    """Attention frozen, tokens averaged, V_0 = √D W_in, V_l = √N_l W_V, a = √N_a readout."""
    shape, parameters, inputs = problem(name)
    variances = (1.0,) * (shape.layers + 2)
    architecture = Architecture(shape.heads, shape.widths, variances, shape.channels)
    weights = theory_weights(parameters, shape)
    assert {k: v.shape for k, v in weights.items()} == architecture.weight_shapes
    frozen = frozen_attention(parameters, inputs)
    attended = attended_inputs(jnp.asarray(inputs), tuple(map(jnp.asarray, frozen)), "mean")
    received = network_outputs(on_device(weights), attended, architecture)[:, 0]
    expected = transformer_outputs(on_device(parameters), jnp.asarray(inputs))
    scale = np.abs(np.asarray(expected)).max()
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * scale)


def test_single_precision_stays_single():
    shape, _, inputs = problem("two layers")
    parameters = on_device(draw_parameters(shape, 0, 0))
    received = jax.jit(transformer_outputs)(parameters, jnp.asarray(inputs, jnp.float32))
    assert received.dtype == jnp.float32
    slope = jax.grad(lambda p: transformer_outputs(p, jnp.asarray(inputs, jnp.float32)).sum())
    gradient = jax.jit(slope)(parameters)
    assert {values.dtype for values in gradient.values()} == {jnp.dtype(jnp.float32)}


def test_parameters_are_uniform_within_their_fan_in():
    shape = TransformerShape((4, 4), (64, 32, 16), 8, 64)
    drawn = draw_parameters(shape, 0, 0)
    assert {k: v.shape for k, v in drawn.items()} == shape.parameter_shapes
    assert shape.parameter_count == sum(values.size for values in drawn.values())
    for name, values in drawn.items():
        limit = 1 / np.sqrt(values.shape[-1])
        assert np.abs(values).max() <= np.float32(limit)
        # The variance of a uniform number is limit²/3, that of its square 4 limit⁴/45.
        error = limit**2 * np.sqrt(4 / 45 / values.size)
        assert abs(np.mean(np.square(values, dtype=float)) - limit**2 / 3) < 4.5 * error, name
    again, other = draw_parameters(shape, 0, 0), draw_parameters(shape, 1, 0)
    assert all(np.array_equal(drawn[name], again[name]) for name in drawn)
    assert not np.array_equal(drawn["W_in"], other["W_in"])


def test_softmax_has_the_derivative_of_softmax(rng):
    logits, weights = (jnp.asarray(rng.standard_normal((3, 4, 5))) for _ in range(2))
    received = jax.grad(lambda x: jnp.sum(weights * row_softmax(x) ** 2))(logits)
    expected = jax.grad(lambda x: jnp.sum(weights * jax.nn.softmax(x, axis=-1) ** 2))(logits)
    assert_equal_to_rounding(received, expected, operations=50)
