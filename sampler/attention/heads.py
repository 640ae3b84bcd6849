"""Attention matrices of heads given by bilinear forms or by queries and keys."""

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import layer_matrices
from sampler.attention.variants import Form


def bilinear_attention(inputs: np.ndarray, logit_weights: np.ndarray) -> np.ndarray:
    """Attention matrices of heads with bilinear logits.

        Ω^h_{st} = exp(x_sᵀ W^h x_t) / Σ_{s'} exp(x_{s'}ᵀ W^h x_t)

    inputs         [example, token, channel]
    logit_weights  [head, channel, channel]
    returns        [example, head, key, query]; every column, over keys, sums to 1
    """
    queries = np.swapaxes(inputs, 1, 2)
    return np.stack(
        [softmax_over_keys((inputs @ weights) @ queries) for weights in logit_weights], axis=1
    )


def bilinear_form(
    inputs: np.ndarray, logit_weights: np.ndarray, forms: tuple[Form, ...]
) -> np.ndarray:
    """Matrices of heads whose logits x_sᵀ W^h x_t go through a form, one for each head.

    Keys k_s = x_s and queries q_t = √D W^h x_t, so that k_s·q_t/√D is the logit. Axes as above.
    """
    queries = np.einsum("hij,xtj->xhti", logit_weights, inputs) * np.sqrt(inputs.shape[-1])
    keys = np.broadcast_to(inputs[:, None], queries.shape)
    return np.ascontiguousarray(np.swapaxes(layer_matrices(forms, queries, keys), -1, -2))


def softmax_over_keys(logits: np.ndarray) -> np.ndarray:
    """Softmax along the last axis but one, of logits [..., key, query]."""
    # Without its largest entry a column of logits cannot overflow, and the result is the same.
    weights = np.exp(logits - logits.max(axis=-2, keepdims=True))
    return weights / weights.sum(axis=-2, keepdims=True)


def factored_form(
    inputs: Float[np.ndarray, "example token channel"],
    query_weights: Float[np.ndarray, "head key_channel channel"],
    key_weights: Float[np.ndarray, "head key_channel channel"],
    forms: tuple[Form, ...],
) -> Float[np.ndarray, "example head key query"]:
    """Matrices of heads with weights W_Q and W_K that go through a form, one for each head.

    Queries W_Q^h x_t and keys W_K^h x_s, so that k_s·q_t/√G is the logit.
    """
    queries, keys = (
        inputs[:, None] @ np.swapaxes(weights, 1, 2) for weights in (query_weights, key_weights)
    )
    return np.ascontiguousarray(np.swapaxes(layer_matrices(forms, queries, keys), -1, -2))


def softmax_attention(
    inputs: Float[np.ndarray, "example token channel"],
    query_weights: Float[np.ndarray, "head key_channel channel"],
    key_weights: Float[np.ndarray, "head key_channel channel"],
) -> Float[np.ndarray, "example head key query"]:
    """Attention matrices of heads with weights W_Q and W_K, whose rows are the G key channels.

        Ω^h_{st} = exp(k_s·q_t/√G) / Σ_{s'} exp(k_{s'}·q_t/√G),   k = W_K^h x,   q = W_Q^h x

    Every column, over keys, sums to 1; its transpose is the matrix A whose rows are queries.
    """
    scale = np.sqrt(query_weights.shape[1])
    matrices = np.empty((len(inputs), len(query_weights), *(2 * inputs.shape[1:2])))
    # Head by head: the matrices of all examples at once are the largest arrays of a task.
    for head, (query, key) in enumerate(zip(query_weights, key_weights, strict=True)):
        queries = inputs @ (query.T / scale)
        matrices[:, head] = softmax_over_keys((inputs @ key.T) @ np.swapaxes(queries, 1, 2))
    return matrices
