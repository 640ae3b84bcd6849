"""Attention-BN: queries and keys standardised with the statistics of the keys.

Source: arXiv 2406.13781; β and the scaling as reconstructed from its algebra.
"""

from typing import Literal

from sampler.attention.forms.form import Array, Finite, Form, Positive, logits, softmax


class BatchNormalised(Form):
    """A_i = softmax_j( ((q_i − βμ)/s)·((k_j − βμ)/s)/√G ), μ and s over the keys of a sequence.

    beta     β, how much of the mean is taken off: 0 none, 1 all
    scaling  whether channels are divided by s = √(variance + ε)
    epsilon  ε
    """

    kind: Literal["batch_normalised"] = "batch_normalised"
    beta: Finite = 1.0
    scaling: bool = True
    epsilon: Positive = 1e-5

    def matrices(self, queries: Array, keys: Array) -> Array:
        return softmax(logits(*standardised(queries, keys, self.beta, self.scaling, self.epsilon)))


def standardised(queries: Array, keys: Array, beta: float, scaling: bool, epsilon: float):
    """(q − βμ)/s and (k − βμ)/s with mean μ and deviation s over the keys, channel by channel."""
    xp = queries.__array_namespace__()
    mean = xp.mean(keys, axis=-2, keepdims=True)
    scale = 1.0
    if scaling:
        scale = xp.sqrt(xp.mean((keys - mean) ** 2, axis=-2, keepdims=True) + epsilon)
    return (queries - beta * mean) / scale, (keys - beta * mean) / scale
