"""Sequences of unequal length in arrays of one size: which tokens are padding, and without it.

Queries that are tokens give padding no weight, and no readout reads padding. So Ω^1 ··· Ω^L t* has
no entry on it, and ξ^π is that of the sequence by itself, whatever padding attends to.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from sampler.errors import InputError

# Softmax gives a masked key 0, or less than one rounding of a weight in single precision.
PADDING_WEIGHT = float(np.finfo(np.float32).eps)
# True where there is a token, false where there is padding.
Real = Bool[np.ndarray, "example token"]
# What was recorded or brought, of whatever shape: x_0 [example, token, channel] and of every layer
# Ω [example, head, key, query], if it is usable.
Recorded = Shaped[np.ndarray, "..."]


def within(lengths: Int[np.ndarray, " example"], tokens: int) -> Real:
    """True for the first tokens, as many as each example has."""
    return np.arange(tokens) < lengths[:, None]


def read_weights(real: Real, readout: str) -> Float[np.ndarray, "example token"]:
    """The vector t* of each example: its first token, its last, or the mean of its tokens."""
    if readout == "mean":
        return real / real.sum(axis=1, keepdims=True)
    tokens = real.shape[1]
    if readout == "first":
        return np.eye(tokens)[real.argmax(axis=1)]
    return np.eye(tokens)[tokens - 1 - real[:, ::-1].argmax(axis=1)]


def tokens_in_order(
    inputs: Float[np.ndarray, "example token channel"],
    attention: tuple[Float[np.ndarray, "example _head key query"], ...],
    order: Int[np.ndarray, "example moved"],
) -> tuple[Float[np.ndarray, "example moved channel"], tuple[Recorded, ...]]:
    keys, queries = order[:, None, :, None], order[:, None, None, :]
    moved = tuple(
        np.take_along_axis(np.take_along_axis(matrices, keys, axis=2), queries, axis=3)
        for matrices in attention
    )
    return np.take_along_axis(inputs, order[..., None], axis=1), moved


def refuse_infinite(field: str, array: np.ndarray) -> None:
    """Raise InputError, with the first place, if an entry is infinite or not a number."""
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(index) for index in np.argwhere(~finite)[0])
        remedy = (
            "every entry must be finite; a query from which −∞ hides every key has no attention, "
            "and spoils all tokens of the next layer: hide with −10⁴, or pad behind the tokens"
        )
        raise InputError(f"{field}{list(place)}", float(array[place]), remedy)


def refuse_attended_padding(
    field: str,
    matrices: Float[np.ndarray, "example _head token token"],
    real: Real,
    first: int = 0,
) -> None:
    """Raise InputError if a query that is a token gives weight to a key of padding.

    `first` is the number of the first of these examples.
    """
    for example, row in enumerate(real):
        seen = np.abs(matrices[example][:, ~row][..., row])
        if seen.size and seen.max() > PADDING_WEIGHT:
            remedy = (
                f"is a weight that a token gives to padding, above {PADDING_WEIGHT:.1g}; hide "
                "padding from the attention of every layer, or count it among the tokens"
            )
            raise InputError(f"{field}[{first + example}]", float(seen.max()), remedy)


def without_padding(
    inputs: Recorded, attention: Sequence[Recorded], real: Real, first: int = 0
) -> tuple[list[Recorded], Int[np.ndarray, " example"]]:
    """Move the tokens of each example, in their order, before its padding, which becomes 0.

    Returns inputs and matrices in one list, and the number of tokens of each sequence. Raises
    InputError if a token attends to padding; `first` is the number of the first of these examples.
    """
    lengths = real.sum(axis=1)
    for layer, matrices in enumerate(attention, start=1):
        refuse_attended_padding(f"attention of layer {layer}", matrices, real, first)
    order = np.argsort(~real, axis=1, kind="stable")[:, : lengths.max()]
    inputs, attention = tokens_in_order(inputs, tuple(attention), order)
    inside = within(lengths, order.shape[1])
    both = inside[:, None, :, None] & inside[:, None, None, :]
    inputs = np.where(inside[..., None], inputs, np.float32(0))
    return [inputs, *(np.where(both, matrices, np.float32(0)) for matrices in attention)], lengths


def padded_together(parts: Sequence[Recorded]) -> Recorded:
    """Join arrays of some examples each, with 0 behind those smaller than the largest."""
    largest = np.max([part.shape[1:] for part in parts], axis=0).astype(int)
    whole = np.zeros((sum(map(len, parts)), *largest), parts[0].dtype)
    start = 0
    for part in parts:
        end = start + len(part)
        whole[(slice(start, end), *map(slice, part.shape[1:]))] = part
        start = end
    return whole
