"""The forward pass of the trained network, and its loss."""

import math
from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sampler.attention.forms.form import Form
from sampler.transformer.layer_attention import LayerAttention, apply, attend

Parameters = Mapping[str, Array]


def predict(
    parameters: Parameters,
    inputs: Float[Array, "example token channel"],
    forms: tuple[tuple[Form, ...], ...] = (),
) -> Float[Array, " example"]:
    """f(x_0) of every example: linear attention layers, mean over tokens, linear readout.

        z^1 = W_in x_0,   z^{l+1} = Σ_h W_V^{l,h} z^l Ω^{l,h} / √H_l,   f = readout · mean_t z^{L+1}

    `forms` has the form of attention of every head, layer by layer; without it all are softmax.

    The mean over tokens goes first, down through the attention of the upper layers; their values
    then meet one row per path instead of one per token and head.
    """
    layers = sum(name.startswith("W_V_") for name in parameters)
    values = [parameters[f"W_V_{layer}"] for layer in range(1, layers + 1)]
    attention = [
        attend(inputs, parameters[f"W_Q_{layer}"], parameters[f"W_K_{layer}"], of_layer)
        for layer, of_layer in zip(range(1, layers + 1), forms or ((),) * layers, strict=True)
    ]
    lower = token_layers(tuple(len(of_layer) for of_layer in values), inputs.shape[1])
    pooled = pool_tokens(attention[lower:])
    if lower == 0:
        hidden = apply(pooled @ inputs, parameters["W_in"].T)
    else:
        hidden = apply(inputs, parameters["W_in"].T)
        for layer in range(lower):
            hidden = sum_heads(attention[layer].attended(hidden), values[layer])
        hidden = pooled @ hidden
    for of_layer in values[lower:]:
        hidden = sum_heads(hidden, of_layer)
    return hidden[:, 0] @ parameters["readout"]


def token_layers(heads: tuple[int, ...], tokens: int) -> int:
    """How many layers, from below, have more paths above them than tokens: those go by token."""
    return sum(math.prod(heads[layer:]) > tokens for layer in range(1, len(heads) + 1))


def pool_tokens(layers: list[LayerAttention]) -> Float[Array, "example _path key"]:
    """The mean over tokens carried down through these layers, a row for each (h_L, …, h_l).

    The head of the lowest layer varies fastest: so no axis ever changes its place.
    """
    pooled = layers[-1].mean_over_queries()
    for layer in reversed(layers[:-1]):
        pooled = layer.carried(pooled)
    return pooled


def sum_heads(
    rows: Float[Array, "example _row below"], values: Float[Array, "head above below"]
) -> Float[Array, "example _fewer_rows above"]:
    """Σ_h W_V^h z_h / √H, where the rows of z are heads of tokens or of paths, heads fastest."""
    heads, above, below = values.shape
    beside = values.transpose(0, 2, 1).reshape(heads * below, above)
    return apply(rows.reshape(len(rows), -1, heads * below), beside) / heads**0.5


def gather_inputs(
    patches: Float[Array, "drawing patch channel"],
    positions: Float[Array, "token channel"],
    embedding: Float[Array, "label channel"],
    drawings: Int[Array, "example image"],
    labels: Int[Array, "example image"],
) -> Float[Array, "example token channel"]:
    """x_0 = patch + position + embedding of the image's label, as in `episode_inputs`."""
    labelled = patches[drawings] + embedding[labels][:, :, None, :]
    return labelled.reshape(len(drawings), *positions.shape) + positions


def squared_error(
    parameters: Parameters,
    inputs: Float[Array, "example token channel"],
    targets: Float[Array, " example"],
    forms: tuple[tuple[Form, ...], ...] = (),
) -> Float[Array, ""]:
    """Mean over examples of (f − y)²."""
    return jnp.mean((predict(parameters, inputs, forms) - targets) ** 2)
