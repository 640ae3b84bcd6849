"""Padding in attention matrices: sequences of unequal length in arrays of one size."""

import numpy as np

from sampler.errors import InputError

# Softmax gives a masked key 0, or less than one rounding of a weight in single precision.
PADDING_WEIGHT = float(np.finfo(np.float32).eps)


def within(lengths: np.ndarray, tokens: int) -> np.ndarray:
    """[example, token], true for the first tokens, of which each example has so many."""
    return np.arange(tokens) < lengths[:, None]


def in_order(
    inputs: np.ndarray, attention: tuple[np.ndarray, ...], order: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Inputs and attention matrices with other tokens of each example, [example, token]."""
    keys, queries = order[:, None, :, None], order[:, None, None, :]
    moved = tuple(
        np.take_along_axis(np.take_along_axis(matrices, keys, axis=2), queries, axis=3)
        for matrices in attention
    )
    return np.take_along_axis(inputs, order[..., None], axis=1), moved


def refuse_attended_padding(
    field: str, matrices: np.ndarray, real: np.ndarray, first: int = 0
) -> None:
    """Raise InputError if a query that is a token gives weight to a key of padding.

    matrices  [example, head, key, query]
    real      [example, token], true where there is a token, false where there is padding
    """
    for example, row in enumerate(real):
        seen = np.abs(matrices[example][:, ~row][..., row])
        if seen.size and seen.max() > PADDING_WEIGHT:
            raise InputError(
                f"{field}[{first + example}]",
                float(seen.max()),
                f"is a weight that a token gives to padding, above {PADDING_WEIGHT:.1g}; hide "
                "padding from the attention of every layer, or count it among the tokens",
            )
