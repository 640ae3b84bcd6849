"""The forward pass of the trained network, and its loss."""

import math
from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sampler.transformer.softmax import softmax

Parameters = Mapping[str, Array]


def predict(
    parameters: Parameters, inputs: Float[Array, "example token channel"]
) -> Float[Array, " example"]:
    """f(x_0) of every example: linear attention layers, mean over tokens, linear readout.

        z^1 = W_in x_0,   z^{l+1} = Σ_h W_V^{l,h} z^l Ω^{l,h} / √H_l,   f = readout · mean_t z^{L+1}

    The mean over tokens goes first, down through the attention of the upper layers; their values
    then meet one row per path instead of one per token and head.
    """
    layers = sum(name.startswith("W_V_") for name in parameters)
    values = [parameters[f"W_V_{layer}"] for layer in range(1, layers + 1)]
    weights = [
        attention(inputs, parameters[f"W_Q_{layer}"], parameters[f"W_K_{layer}"])
        for layer in range(1, layers + 1)
    ]
    lower = token_layers(tuple(len(of_layer) for of_layer in values), inputs.shape[1])
    pooled = pool_tokens(weights[lower:])
    if lower == 0:
        hidden = apply(pooled @ inputs, parameters["W_in"].T)
    else:
        hidden = apply(inputs, parameters["W_in"].T)
        for layer in range(lower):
            hidden = token_layer(hidden, weights[layer], values[layer])
        hidden = pooled @ hidden
    for of_layer in values[lower:]:
        hidden = sum_heads(hidden, of_layer)
    return hidden[:, 0] @ parameters["readout"]


def token_layers(heads: tuple[int, ...], tokens: int) -> int:
    """How many layers, from below, have more paths above them than tokens: those go by token."""
    return sum(math.prod(heads[layer:]) > tokens for layer in range(1, len(heads) + 1))


def pool_tokens(
    weights: list[Float[Array, "example query _head key"]],
) -> Float[Array, "example _path key"]:
    """The mean over tokens carried down through these layers, a row for each (h_L, …, h_l).

    The head of the lowest layer varies fastest: so no axis ever changes its place.
    """
    pooled = weights[-1].mean(axis=1)
    for of_layer in reversed(weights[:-1]):
        examples, queries, _, keys = of_layer.shape
        carried = pooled @ of_layer.reshape(examples, queries, -1)
        pooled = carried.reshape(examples, -1, keys)
    return pooled


def token_layer(
    hidden: Float[Array, "example token below"],
    weights: Float[Array, "example token head token"],
    values: Float[Array, "head above below"],
) -> Float[Array, "example token above"]:
    """One layer, token by token: Σ_h W_V^h z Ω^h / √H."""
    examples, tokens, heads, _ = weights.shape
    attended = weights.reshape(examples, tokens * heads, tokens) @ hidden
    return sum_heads(attended, values)


def sum_heads(
    rows: Float[Array, "example _row below"], values: Float[Array, "head above below"]
) -> Float[Array, "example _fewer_rows above"]:
    """Σ_h W_V^h z_h / √H, where the rows of z are heads of tokens or of paths, heads fastest."""
    heads, above, below = values.shape
    beside = values.transpose(0, 2, 1).reshape(heads * below, above)
    return apply(rows.reshape(len(rows), -1, heads * below), beside) / heads**0.5


def apply(
    rows: Float[Array, "example row below"], matrix: Float[Array, "below above"]
) -> Float[Array, "example row above"]:
    """The matrix applied to every row."""
    # As one product of two matrices: differentiated with its three axes it is transposed first.
    product = rows.reshape(-1, rows.shape[-1]) @ matrix
    return product.reshape(*rows.shape[:2], -1)


def attention(
    inputs: Float[Array, "example token channel"],
    query_weights: Float[Array, "head key_channel channel"],
    key_weights: Float[Array, "head key_channel channel"],
) -> Float[Array, "example query head key"]:
    """Ω as rows of queries: softmax over keys of q_t·k_s/√G = x_tᵀ W_Qᵀ W_K x_s/√G.

    W_Qᵀ W_K is joined first, so that a head multiplies the inputs once; they need no gradient.
    """
    heads, size, channels = query_weights.shape
    examples, tokens, _ = inputs.shape
    joined = jnp.einsum("hgi,hgj->ihj", query_weights, key_weights) / size**0.5
    projected = apply(inputs, joined.reshape(channels, -1)).reshape(examples, -1, channels)
    logits = projected @ inputs.transpose(0, 2, 1)
    return softmax(logits).reshape(examples, tokens, heads, tokens)


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
) -> Float[Array, ""]:
    """Mean over examples of (f − y)²."""
    return jnp.mean((predict(parameters, inputs) - targets) ** 2)
