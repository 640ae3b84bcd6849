"""The attention of one layer in the forward pass of training, in the order that costs least."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.attention.forms.form import Form
from sampler.attention.forms.layer import HeadGroup, by_head, head_groups
from sampler.attention.forms.softmax import Softmax
from sampler.transformer.softmax import softmax


@dataclass(frozen=True)
class SoftmaxAttention:
    """Softmax over all keys in every head."""

    weights: Float[Array, "example query head key"]

    def mean_over_queries(self) -> Float[Array, "example head key"]:
        return self.weights.mean(axis=1)

    def carried(
        self, rows: Float[Array, "example row query"]
    ) -> Float[Array, "example _row_of_head key"]:
        """Rows times A of every head; heads vary fastest."""
        examples, queries, _, keys = self.weights.shape
        carried = rows @ self.weights.reshape(examples, queries, -1)
        return carried.reshape(examples, -1, keys)

    def attended(
        self, hidden: Float[Array, "example token below"]
    ) -> Float[Array, "example _token_of_head below"]:
        """A of every head times the tokens; heads vary fastest."""
        examples, tokens, heads, _ = self.weights.shape
        return self.weights.reshape(examples, tokens * heads, tokens) @ hidden


@dataclass(frozen=True)
class FormedAttention:
    """Heads of any form. Where keys are pooled, A = S P is never multiplied out."""

    groups: tuple[HeadGroup, ...]

    def mean_over_queries(self) -> Float[Array, "example head key"]:
        return by_head(
            self.groups, [group.unpooled(group.weights.mean(axis=2)) for group in self.groups]
        )

    def carried(
        self, rows: Float[Array, "example row query"]
    ) -> Float[Array, "example _row_of_head key"]:
        """Rows times A of every head; heads vary fastest."""
        found = [group.unpooled(rows[:, None] @ group.weights) for group in self.groups]
        return self._beside(found)

    def attended(
        self, hidden: Float[Array, "example token below"]
    ) -> Float[Array, "example _token_of_head below"]:
        """A of every head times the tokens; heads vary fastest."""
        tokens = hidden[:, None]
        found = [group.weights @ group.form.pooled(tokens) for group in self.groups]
        return self._beside(found)

    def _beside(self, found: list[Float[Array, "example _head row last"]]) -> Array:
        rows = by_head(self.groups, found).swapaxes(1, 2)
        return rows.reshape(len(rows), -1, rows.shape[-1])


LayerAttention = SoftmaxAttention | FormedAttention


def attend(
    inputs: Float[Array, "example token channel"],
    query_weights: Float[Array, "head key_channel channel"],
    key_weights: Float[Array, "head key_channel channel"],
    forms: tuple[Form, ...] = (),
) -> LayerAttention:
    """The attention of a layer with one form for each head, all softmax without them."""
    if all(form == Softmax() for form in forms):
        return SoftmaxAttention(softmax_weights(inputs, query_weights, key_weights))
    queries, keys = (project(inputs, weights) for weights in (query_weights, key_weights))
    return FormedAttention(head_groups(forms, queries, keys))


def project(
    inputs: Float[Array, "example token channel"],
    weights: Float[Array, "head key_channel channel"],
) -> Float[Array, "example head token key_channel"]:
    """Queries or keys of every head."""
    heads, size, channels = weights.shape
    found = apply(inputs, weights.reshape(-1, channels).T)
    return found.reshape(*inputs.shape[:2], heads, size).swapaxes(1, 2)


def softmax_weights(
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


def apply(
    rows: Float[Array, "example row below"], matrix: Float[Array, "below above"]
) -> Float[Array, "example row above"]:
    """The matrix applied to every row."""
    # As one product of two matrices: differentiated with its three axes it is transposed first.
    product = rows.reshape(-1, rows.shape[-1]) @ matrix
    return product.reshape(*rows.shape[:2], -1)
