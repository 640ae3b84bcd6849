"""Softmax attention whose logits are bilinear in the inputs."""

import numpy as np

from sampler.attention.forms.form import Form
from sampler.attention.forms.layer import layer_matrices


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
