"""Attended inputs ξ^π(x): the tokens of an example mixed along an attention path."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Readout = Literal["last", "first", "mean"]


def token_readout(
    tokens: int, readout: Readout, lengths: Int[Array | np.ndarray, "*example"] | None = None
) -> Float[Array | np.ndarray, "*example token"]:
    """The vector t* that reads one value off the tokens: their last, their first, or their mean.

    Only the first `lengths` tokens of an example count, where these are given: those behind them
    are padding. Raises ValueError for another readout.
    """
    if readout not in ("last", "first", "mean"):
        raise ValueError(f"readout = {readout!r}: must be 'last', 'first' or 'mean'")
    numbers = np if lengths is None else lengths.__array_namespace__()
    places, end = np.arange(tokens), tokens
    if lengths is not None:
        places, end = places.reshape((1,) * lengths.ndim + (tokens,)), lengths[..., None]
    if readout == "mean":
        return numbers.where(places < end, 1.0 / end, 0.0)
    return numbers.where(places == (end - 1 if readout == "last" else 0 * end), 1.0, 0.0)


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


def attended_inputs(
    inputs: Float[Array | np.ndarray, "example token channel"],
    attention: tuple[Float[Array | np.ndarray, "example _head token token"], ...],
    readout: Readout,
    lengths: Int[Array | np.ndarray, " example"] | None = None,
) -> Float[Array | np.ndarray, "example path channel"]:
    """Attended inputs ξ^π(x) of every example; paths in flat order, h_1 slowest. JAX or NumPy.

    `lengths` are the numbers of tokens of sequences with padding behind them, whose keys have
    weight 0 at every query before. As t* is 0 there as well, ξ^π is that of the sequence by itself:
    Ω t* has no entry on a key of padding, whatever its queries attend to.
    """
    examples, tokens, _ = inputs.shape
    weights = token_readout(tokens, readout, lengths).astype(inputs.dtype).reshape(-1, 1, tokens)
    for omega in reversed(attention):  # as `attend_example`, all examples together
        weights = weights[:, None] @ omega.swapaxes(2, 3)  # [example, head, path above, key]
        weights = weights.reshape(examples, -1, tokens)
    return weights @ inputs


def pair_matrices(
    attention: Float[Array | np.ndarray, "example head key query"],
) -> Float[Array | np.ndarray, "example path key query"]:
    """Path matrices Ω^{l,h'}_st Ω^{l,h}_st of two layers of weights that mix tokens once.

    The lower layer has Ω^{l,h'}, the upper one Ω^{l,h}, multiplied by entry; h' is slowest, as in
    the flat order of paths. In `attended_inputs` they replace the matrices of both layers.
    """
    products = attention[:, :, None] * attention[:, None, :]
    return products.reshape(attention.shape[0], -1, *attention.shape[2:])
