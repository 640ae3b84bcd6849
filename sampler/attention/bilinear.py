"""Softmax attention whose logits are bilinear in the inputs."""

import numpy as np


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


def softmax_over_keys(logits: np.ndarray) -> np.ndarray:
    """Softmax along the last axis but one, of logits [..., key, query]."""
    # Without its largest entry a column of logits cannot overflow, and the result is the same.
    weights = np.exp(logits - logits.max(axis=-2, keepdims=True))
    return weights / weights.sum(axis=-2, keepdims=True)
