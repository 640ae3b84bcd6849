"""All weight on the key with the largest logit: softmax without temperature."""

from typing import ClassVar, Literal

from sampler.attention.forms.form import Array, Form, logits


class HardMaximum(Form):
    """A_ij = 1 for the j with the largest q_i·k_j, shared equally among equals; 0 otherwise."""

    kind: Literal["hard_maximum"] = "hard_maximum"
    untrainable: ClassVar[str | None] = (
        "has no derivative by queries and keys, which therefore would not learn"
    )

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = queries.__array_namespace__()
        values = logits(queries, keys)
        largest = xp.astype(values == xp.max(values, axis=-1, keepdims=True), values.dtype)
        return largest / xp.sum(largest, axis=-1, keepdims=True)
