"""Softmax attention whose logits are products of learned keys and queries."""

import numpy as np
from jaxtyping import Float

from sampler.attention.bilinear import softmax_over_keys


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
