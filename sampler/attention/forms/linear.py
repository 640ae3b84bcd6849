"""Normalised linear attention: products of positive features instead of exponentials."""

from typing import Literal

from sampler.attention.forms.form import Array, Form, transposed


class Linear(Form):
    """A_ij = φ(q_i)·φ(k_j)/Σ_j' φ(q_i)·φ(k_j') with φ(x) = elu(x) + 1, channel by channel."""

    kind: Literal["linear"] = "linear"

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = queries.__array_namespace__()
        weights = positive_features(queries) @ transposed(positive_features(keys))
        return weights / xp.sum(weights, axis=-1, keepdims=True)


def positive_features(values: Array) -> Array:
    """φ(x) = 1 + x for x > 0 and exp(x) below."""
    xp = values.__array_namespace__()
    zero = xp.zeros_like(values)
    # Only what is taken may be large: a discarded exp(x) would make the gradient undefined.
    return xp.maximum(values, zero) + xp.exp(xp.minimum(values, zero))
