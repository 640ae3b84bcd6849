"""Attention whose queries and keys are linear in the inputs, in any form."""

import numpy as np
from jaxtyping import Float

from sampler.attention.forms.form import Form
from sampler.attention.forms.layer import layer_matrices


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
