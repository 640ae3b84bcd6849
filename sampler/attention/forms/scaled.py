"""Scaled attention: softmax attention with part of its symmetric smoothing taken off."""

from typing import Literal

from sampler.attention.forms.form import Array, Finite, Form, logits, softmax


class Scaled(Form):
    """A (1 − s A_sym) with A = softmax(Q Kᵀ/√G) and A_sym = softmax(K Kᵀ/√G).

    share  s: 0 is softmax; rows sum to 1 − s
    """

    kind: Literal["scaled"] = "scaled"
    share: Finite = 0.5

    def matrices(self, queries: Array, keys: Array) -> Array:
        attention = softmax(logits(queries, keys))
        symmetric = softmax(logits(keys, keys))
        return attention - self.share * attention @ symmetric
