"""The transformer that is trained: its attention and forward pass."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.attention.heads import HeadGroup, by_head, head_groups, layer_matrices
from sampler.attention.variants import AttentionVariant, Softmax, transposed
from sampler.settings.recipe import TrainingRecipe
from sampler.token_network import TokenNetwork, predict_tokens
from sampler.transformer.model import TrainedModel, TransformerShape, theory_weights


def token_network(recipe: TrainingRecipe, shape: TransformerShape) -> TokenNetwork | None:
    """The network of a training whose tokens are followed one by one; None for a plain one.

    A plain one averages its tokens, and is linear in what its heads attend to, each head with one
    layer of values.
    """
    settings, readout = recipe.training, recipe.task.readout
    if settings.values == "linear" and readout == "mean" and not any(settings.hypernetworks):
        return None
    hypernetworks = settings.hypernetworks
    return TokenNetwork(shape.architecture, hypernetworks, settings.values, "none", readout)


def network_of(model: TrainedModel) -> TokenNetwork | None:
    """The `token_network` of a trained model."""
    return token_network(model.recipe, model.shape)


@jax.custom_vjp
def row_softmax(logits: Float[Array, "*axes key"]) -> Float[Array, "*axes key"]:
    """exp(l_s)/Σ_{s'} exp(l_{s'}) along the last axis, with a derivative of its own.

    That of the attention variants, like JAX's own, is differentiated by way of the exponentials:
    with it a training step takes 1.5 times as long.
    """
    return jax.nn.softmax(logits, axis=-1)


def _forward(logits):
    weights = row_softmax(logits)
    return weights, weights


def _backward(weights, change):
    return (weights * (change - (weights * change).sum(axis=-1, keepdims=True)),)


row_softmax.defvjp(_forward, _backward)


@dataclass(frozen=True)
class SoftmaxAttention:
    """Softmax over all keys in every head."""

    weights: Float[Array, "example query head key"]

    def mean_over_queries(self) -> Float[Array, "example head key"]:
        """Rows of Ωᵀ of every head, averaged over queries."""
        return self.weights.mean(axis=1)

    def carried(
        self, rows: Float[Array, "example row query"]
    ) -> Float[Array, "example _row_of_head key"]:
        """Rows times Ωᵀ of every head; heads vary fastest."""
        examples, queries, _, keys = self.weights.shape
        carried = rows @ self.weights.reshape(examples, queries, -1)
        return carried.reshape(examples, -1, keys)

    def attended(
        self, hidden: Float[Array, "example token below"]
    ) -> Float[Array, "example _token_of_head below"]:
        """Ωᵀ of every head times the tokens; heads vary fastest."""
        examples, tokens, heads, _ = self.weights.shape
        return self.weights.reshape(examples, tokens * heads, tokens) @ hidden


@dataclass(frozen=True)
class VariantAttention:
    """Heads of any variant. Where keys are pooled, Ω = Pᵀ S is never multiplied out."""

    groups: tuple[HeadGroup, ...]

    def mean_over_queries(self) -> Float[Array, "example head key"]:
        """Rows of Ωᵀ of every head, averaged over queries."""
        return by_head(
            self.groups,
            [group.unpooled(transposed(group.weights).mean(axis=2)) for group in self.groups],
        )

    def carried(
        self, rows: Float[Array, "example row query"]
    ) -> Float[Array, "example _row_of_head key"]:
        """Rows times Ωᵀ of every head; heads vary fastest."""
        found = [group.unpooled(rows[:, None] @ transposed(group.weights)) for group in self.groups]
        return self._beside(found)

    def attended(
        self, hidden: Float[Array, "example token below"]
    ) -> Float[Array, "example _token_of_head below"]:
        """Ωᵀ of every head times the tokens; heads vary fastest."""
        tokens = hidden[:, None]
        found = [transposed(group.weights) @ group.variant.pooled(tokens) for group in self.groups]
        return self._beside(found)

    def _beside(self, found: list[Float[Array, "example _head row last"]]) -> Array:
        rows = by_head(self.groups, found).swapaxes(1, 2)
        return rows.reshape(len(rows), -1, rows.shape[-1])


LayerAttention = SoftmaxAttention | VariantAttention


def attend(
    inputs: Float[Array, "example token channel"],
    query_weights: Float[Array, "head key_channel channel"],
    key_weights: Float[Array, "head key_channel channel"],
    variants: tuple[AttentionVariant, ...] = (),
) -> LayerAttention:
    """The attention of a layer with one variant for each head, all softmax without them."""
    if all(variant == Softmax() for variant in variants):
        # W_Qᵀ W_K is joined first: a head multiplies the inputs once, and they need no gradient.
        heads, size, channels = query_weights.shape
        examples, tokens, _ = inputs.shape
        joined = jnp.einsum("hgi,hgj->ihj", query_weights, key_weights) / size**0.5
        projected = apply(inputs, joined.reshape(channels, -1)).reshape(examples, -1, channels)
        logits = projected @ inputs.transpose(0, 2, 1)
        return SoftmaxAttention(row_softmax(logits).reshape(examples, tokens, heads, tokens))
    queries, keys = (project(inputs, weights) for weights in (query_weights, key_weights))
    return VariantAttention(head_groups(variants, queries, keys))


def project(
    inputs: Float[Array, "example token channel"], weights: Float[Array, "head key_channel channel"]
) -> Float[Array, "example head token key_channel"]:
    """Queries or keys of every head."""
    heads, size, channels = weights.shape
    found = apply(inputs, weights.reshape(-1, channels).T)
    return found.reshape(*inputs.shape[:2], heads, size).swapaxes(1, 2)


def apply(
    rows: Float[Array, "example row below"], matrix: Float[Array, "below above"]
) -> Float[Array, "example row above"]:
    # As one product of two matrices: differentiated with its three axes it is transposed first.
    product = rows.reshape(-1, rows.shape[-1]) @ matrix
    return product.reshape(*rows.shape[:2], -1)


Parameters = Mapping[str, Array]


def transformer_outputs(
    parameters: Parameters,
    inputs: Float[Array, "example token channel"],
    variants: tuple[tuple[AttentionVariant, ...], ...] = (),
    network: TokenNetwork | None = None,
) -> Float[Array, " example *output"]:
    """f(x_0) of every example: linear attention layers, mean over tokens, linear readout.

        z^1 = W_in x_0,   z^{l+1} = Σ_h W_V^{l,h} z^l Ω^{l,h} / √H_l,   f = readout · mean_t z^{L+1}

    `variants` has that of every head, layer by layer; without it all are softmax. The readout is
    [N_a], or [output, N_a] where there are several outputs. Of a `network` tokens are followed one
    by one.

    The mean over tokens goes first, down through the attention of the upper layers; their values
    then meet one row per path instead of one per token and head.
    """
    if network is not None:
        return followed_outputs(parameters, inputs, variants, network)
    layers = sum(name.startswith("W_V_") for name in parameters)
    values = [parameters[f"W_V_{layer}"] for layer in range(1, layers + 1)]
    attention = [
        attend(inputs, parameters[f"W_Q_{layer}"], parameters[f"W_K_{layer}"], of_layer)
        for layer, of_layer in zip(range(1, layers + 1), variants or ((),) * layers, strict=True)
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
    return hidden[:, 0] @ parameters["readout"].T


def followed_outputs(
    parameters: Parameters,
    inputs: Float[Array, "example token channel"],
    variants: tuple[tuple[AttentionVariant, ...], ...],
    network: TokenNetwork,
) -> Float[Array, " example *output"]:
    """f(x_0) of every example, by the forward pass of networks outside the theory."""
    attention = tuple(
        layer_matrices(
            of_layer, *(project(inputs, parameters[f"W_{kind}_{layer}"]) for kind in "QK")
        )
        for layer, of_layer in enumerate(variants, start=1)
    )
    weights = theory_weights(parameters, network.architecture, inputs.dtype)
    outputs = predict_tokens(weights, inputs, attention, network)
    return outputs.reshape(len(outputs), *parameters["readout"].shape[:-1])


def token_layers(heads: tuple[int, ...], tokens: int) -> int:
    """Count the layers, from below, with more paths above them than tokens: those go by token."""
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


def squared_error(
    parameters: Parameters,
    inputs: Float[Array, "example token channel"],
    targets: Float[Array, " example *output"],
    variants: tuple[tuple[AttentionVariant, ...], ...] = (),
    network: TokenNetwork | None = None,
) -> Float[Array, ""]:
    """Mean over examples and outputs of (f − y)²."""
    outputs = transformer_outputs(parameters, inputs, variants, network)
    return jnp.mean((outputs - targets) ** 2)
