"""Sequences of unequal length in arrays of one size: which tokens are padding, and without it.

Queries that are tokens give padding no weight, and no readout reads padding. So Ω^1 ··· Ω^L t* has
no entry on it, and ξ^π is that of the sequence by itself, whatever padding attends to.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from sampler.errors import InputError, Verbatim

# Softmax gives a masked key 0, or less than one rounding of a weight in single precision.
PADDING_WEIGHT = float(np.finfo(np.float32).eps)
MASK = "attention_mask"
# True where there is a token, false where there is padding.
Real = Bool[np.ndarray, "example token"]
# What was recorded or brought, of whatever shape: x_0 [example, token, channel] and of every layer
# Ω [example, head, key, query], if it is usable.
Recorded = Shaped[np.ndarray, "..."]


def within(lengths: Int[np.ndarray, " example"], tokens: int) -> Real:
    """True for the first tokens, of which each example has so many."""
    return np.arange(tokens) < lengths[:, None]


def tokens_in_order(
    inputs: Float[np.ndarray, "example token channel"],
    attention: tuple[Float[np.ndarray, "example _head key query"], ...],
    order: Int[np.ndarray, "example moved"],
) -> tuple[Float[np.ndarray, "example moved channel"], tuple[Recorded, ...]]:
    """Inputs and attention matrices with the tokens of each example in another order."""
    keys, queries = order[:, None, :, None], order[:, None, None, :]
    moved = tuple(
        np.take_along_axis(np.take_along_axis(matrices, keys, axis=2), queries, axis=3)
        for matrices in attention
    )
    return np.take_along_axis(inputs, order[..., None], axis=1), moved


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


def stated_tokens(batch: Any) -> Bool[np.ndarray, "_example _token"] | None:
    """Read the `attention_mask` among named inputs: false for padding; None without a mask."""
    if not isinstance(batch, Mapping) or MASK not in batch:
        return None
    mask = batch[MASK].detach().cpu().numpy()
    if mask.ndim != 2 or not np.isin(mask, (0, 1)).all():
        remedy = "must be [example, token], 1 for a token and 0 for padding"
        raise InputError(MASK, Verbatim(f"(shape {mask.shape})"), remedy)
    return mask.astype(bool)


def agreeing_tokens(
    stated: np.ndarray | None, used: Sequence[np.ndarray | None]
) -> np.ndarray | None:
    """Return [example, token], false for padding: as attention layers were told, or else as stated.

    used  what each layer was told in this forward pass, None where nothing
    """
    if all(one is None for one in used):
        return stated
    told = [one for one in used if one is not None]
    if len(told) < len(used) or any(not np.array_equal(one, told[0]) for one in told):
        remedy = "every layer of attention must hide the same padding"
        raise InputError("padding", Verbatim("(differs from layer to layer)"), remedy)
    return told[0]


def without_padding(
    inputs: Recorded, attention: Sequence[Recorded], real: Bool[np.ndarray, "..."] | None
) -> tuple[list[Recorded], Int[np.ndarray, " example"]]:
    """Move the tokens of each example, in their order, before its padding, which becomes 0.

    Returns inputs and matrices in one list, and the number of tokens of each sequence. Raises
    InputError if a token attends to padding, or nothing attends to what is called a token.
    """
    examples, tokens = inputs.shape[:2]
    shapes = {matrices.shape[2:] for matrices in attention}
    if real is None:
        refuse_unseen(attention)
        return [inputs, *attention], np.full(examples, tokens)
    if real.shape != (examples, tokens) or shapes != {(tokens, tokens)}:
        remedy = f"must be {(examples, tokens)}, [example, token], as the first layer sees them"
        raise InputError(f"{MASK}, padding", real.shape, remedy)
    lengths = real.sum(axis=1)
    if not lengths.all():
        place = int(np.argmin(lengths))
        remedy = "every sequence needs one token at least; leave this example out"
        raise InputError(f"{MASK}, tokens of example {place}", 0, remedy)
    for layer, matrices in enumerate(attention, start=1):
        refuse_attended_padding(f"attention of layer {layer}", matrices, real)
    order = np.argsort(~real, axis=1, kind="stable")[:, : lengths.max()]
    inputs, attention = tokens_in_order(inputs, tuple(attention), order)
    inside = within(lengths, order.shape[1])
    both = inside[:, None, :, None] & inside[:, None, None, :]
    inputs = np.where(inside[..., None], inputs, np.float32(0))
    return [inputs, *(np.where(both, one, np.float32(0)) for one in attention)], lengths


def refuse_unseen(attention: Sequence[Recorded]) -> None:
    """Raise InputError for a token that no query of any layer sees: likely padding, unsaid."""
    seen = [np.abs(one).sum(axis=(1, 3)) for one in attention if one.ndim == 4]
    if not seen or len({one.shape for one in seen}) > 1:
        return  # refused, with its shape, when all is recorded
    unseen = np.argwhere(sum(seen) == 0)
    if len(unseen):
        example, token = map(int, unseen[0])
        remedy = (
            f"no token gives it any weight; give named inputs with `{MASK}` [example, token], 0 "
            "for padding, or 1 everywhere if it is a token"
        )
        raise InputError(f"attention to token {token} of example {example}", 0.0, remedy)


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
