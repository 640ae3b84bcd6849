"""Queries, keys and matrices of heads by the form of their logits: drawn, trained or sampled.

Logits of key s and query t, with weights of each head:

    full       x_sᵀ W x_t,                W_ij = c_i c_j Z_ij             Z [channel, channel]
    low_rank   (W_K x_s)·(W_Q x_t)/√G,    W_Q = c_0 Z_0, W_K = c_1 Z_1     Z [2, G, channel]
    positions  c_0 Z_s of the key alone                                   Z [token]

Z is standard normal a priori where heads are sampled; of others it is W itself, with the scale 1.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import layer_matrices
from sampler.attention.variants import Array, AttentionVariant

LogitForm = Literal["full", "low_rank", "positions"]
# Z [head, …] of all heads of a layer; of low rank also W_Q and W_K [head, G, channel] as a pair.
LogitWeights = Array | tuple[Array, Array]
# W^h x_t of every head [example, head, token, size]. Data are told apart to the last digit, so that
# each kind of heads keeps its own order of summation.
Projection = Callable[[Array, Array], Array]
# Examples whose queries and keys are held at a time.
PIECE = 250


def contracted(
    inputs: Float[Array, "example token channel"], weights: Float[Array, "head size channel"]
) -> Float[Array, "example head token size"]:
    """W^h x_t of every head, summed over channels as learned heads have it."""
    return inputs.__array_namespace__().einsum("hgi,eti->ehtg", weights, inputs)


def projected(
    inputs: Float[Array, "example token channel"], weights: Float[Array, "head size channel"]
) -> Float[Array, "example head token size"]:
    """The same but for rounding, in one product of two matrices: faster for many examples."""
    heads, size, channels = weights.shape
    rows = inputs.reshape(-1, channels) @ weights.reshape(-1, channels).T
    return rows.reshape(*inputs.shape[:2], heads, size).swapaxes(1, 2)


def queries_and_keys(
    form: LogitForm,
    scale: Array,
    weights: LogitWeights,
    inputs: Array,
    read: slice,
    project: Projection = contracted,
) -> tuple[Array, Array]:
    """Queries of the tokens that are read and keys of all, whose products over √G are logits.

    [example, head, token, size] each, of NumPy or JAX as their arguments. Logits of positions alone
    are the same for all examples, and made for one.

    scale   c, [channel] or of one or two numbers
    inputs  [example, token, channel]
    """
    xp = inputs.__array_namespace__()
    if form == "positions":
        keys = scale[0] * weights[None, :, :, None]
        return xp.ones_like(keys[:, :, read]), keys
    if form == "low_rank":
        pair = weights if isinstance(weights, tuple) else (weights[:, 0], weights[:, 1])
        queries = scale[0] * project(inputs[:, read], pair[0])
        return queries, scale[1] * project(inputs, pair[1])
    assert not isinstance(weights, tuple)
    heads, _, channels = weights.shape
    queries = project(inputs[:, read], channels**0.5 * scale[:, None] * scale * weights)
    return queries, xp.broadcast_to(inputs[:, None], (len(inputs), heads, *inputs.shape[1:]))


def head_matrices(
    form: LogitForm,
    weights: LogitWeights,
    inputs: Float[Array, "example token channel"],
    variants: tuple[AttentionVariant, ...],
    scale: Array | None = None,
    project: Projection = projected,
) -> Float[Array, "example head key query"]:
    """Ω of heads with these weights, one variant for each; scale 1 unless it is given.

    NumPy arrays are processed a few examples at a time, to bound memory.
    """
    if scale is None:
        ones = inputs.__array_namespace__().ones
        scale = ones(inputs.shape[-1] if form == "full" else 2, dtype=inputs.dtype)

    def make(some: Array) -> Array:
        return layer_matrices(
            variants, *queries_and_keys(form, scale, weights, some, slice(None), project)
        )

    if form == "positions":
        matrices = make(inputs)[0]
        if isinstance(matrices, np.ndarray):
            matrices = np.ascontiguousarray(matrices)
        xp = inputs.__array_namespace__()
        return xp.broadcast_to(matrices, (len(inputs), *matrices.shape))
    if not isinstance(inputs, np.ndarray):
        return make(inputs)
    pieces = range(0, len(inputs), PIECE)
    return np.concatenate([make(inputs[start : start + PIECE]) for start in pieces])
