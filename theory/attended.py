"""Attended inputs ξ^π(x): what an attention path makes of the tokens of an example."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Readout = Literal["last", "first", "mean"]


def token_readout(
    tokens: int, readout: Readout, length: Int[Array, ""] | None = None
) -> Float[Array, " token"]:
    """The vector t* that reads one value off the tokens: their last, their first, or their mean.

    Only the first `length` tokens count, where it is given: those behind them are padding.
    Raises ValueError for another readout.
    """
    if readout == "mean":
        if length is None:
            return jnp.full(tokens, 1.0 / tokens)
        return jnp.where(jnp.arange(tokens) < length, 1.0 / length, 0.0)
    if readout not in ("last", "first"):
        raise ValueError(f"readout = {readout!r}: must be 'last', 'first' or 'mean'")
    end = tokens if length is None else length
    return jnp.zeros(tokens).at[end - 1 if readout == "last" else 0].set(1.0)


def attend_example(
    inputs: Float[Array, "token channel"],
    attention: tuple[Float[Array, "_head token _query"], ...],
    readout: Float[Array, " _query"],
) -> Float[Array, "path channel"]:
    """Attended inputs of one example, ξ^π = x_0 Ω^{1,h_1} Ω^{2,h_2} ··· Ω^{L,h_L} t*.

    Contracted from the readout down, so that no token × token product is ever formed. Attention
    matrices are [head, key, query], of the last layer of the queries that t* reads.
    Source: arXiv 2405.15926, attended input.
    """
    token_weights = readout[None, :]  # [paths through the layers above, key]
    for omega in reversed(attention):
        token_weights = jnp.einsum("hkq,pq->hpk", omega, token_weights)
        token_weights = token_weights.reshape(-1, token_weights.shape[-1])
    return token_weights @ inputs


@partial(jax.jit, static_argnames="readout")
def attended_inputs(
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head token token"], ...],
    readout: Readout,
    lengths: Int[Array, " example"] | None = None,
) -> Float[Array, "example path channel"]:
    """Attended inputs ξ^π(x) of every example; paths in flat order, h_1 slowest.

    `lengths` are the numbers of tokens of sequences with padding behind them, whose keys have
    weight 0 at every query before. As t* is 0 there, too, ξ^π is that of the sequence by itself:
    Ω t* has no entry on a key of padding, whatever its queries attend to.
    """
    tokens = inputs.shape[1]
    if lengths is None:
        vector = token_readout(tokens, readout).astype(inputs.dtype)
        return jax.vmap(attend_example, in_axes=(0, 0, None))(inputs, attention, vector)
    vectors = jax.vmap(partial(token_readout, tokens, readout))(lengths).astype(inputs.dtype)
    return jax.vmap(attend_example)(inputs, attention, vectors)


def pair_matrices(
    attention: Float[Array, "example head key query"],
) -> Float[Array, "example path key query"]:
    """Path matrices Ω^{(h',h)} = Ω_{h'} ∘ Ω_h of two layers of weights that mix tokens once.

    The lower layer weighs with Ω_{h'}, the upper one with Ω_h, entry by entry; h' is slowest, as
    in the flat order of paths. In `attended_inputs` they stand for the matrices of both layers.
    """
    products = attention[:, :, None] * attention[:, None, :]
    return products.reshape(attention.shape[0], -1, *attention.shape[2:])
