"""Softmax whose derivative is computed from its result."""

import jax
from jaxtyping import Array, Float


@jax.custom_vjp
def softmax(logits: Float[Array, "*axes key"]) -> Float[Array, "*axes key"]:
    """exp(l_s)/Σ_{s'} exp(l_{s'}) along the last axis.

    JAX's own is differentiated by way of the exponentials: with that a training step takes half as
    long again.
    """
    return jax.nn.softmax(logits, axis=-1)


def _forward(logits):
    weights = softmax(logits)
    return weights, weights


def _backward(weights, change):
    return (weights * (change - (weights * change).sum(axis=-1, keepdims=True)),)


softmax.defvjp(_forward, _backward)
