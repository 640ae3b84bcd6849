"""Masks entry by entry, and what they refuse."""

import itertools

import numpy as np
import pytest

from theory.studies.attention_kernel import Mask, mask_matrix, require_visible_keys

SEES = {
    Mask.COMPLETE: lambda i, j, w: True,
    Mask.CAUSAL: lambda i, j, w: j <= i,
    Mask.WINDOW: lambda i, j, w: abs(i - j) <= w,
    Mask.ONE_SIDED_WINDOW: lambda i, j, w: 0 <= i - j <= w,
}


@pytest.mark.parametrize("tokens", [1, 2, 7])
@pytest.mark.parametrize("window", [0, 1, 3, 9])
@pytest.mark.parametrize("mask", Mask)
def test_every_entry(mask, tokens, window):
    windowed = mask in (Mask.WINDOW, Mask.ONE_SIDED_WINDOW)
    received = mask_matrix(mask, tokens, window if windowed else None)
    for i, j in itertools.product(range(tokens), repeat=2):
        assert received[i, j] == SEES[mask](i, j, window), (i, j)
    require_visible_keys(received)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Mask.COMPLETE, 0), r"tokens = 0: must be at least 1"),
        ((Mask.WINDOW, 3, -1), r"window = -1: must be 0 or more"),
        ((Mask.ONE_SIDED_WINDOW, 3), r"window = None: must be 0 or more"),
        ((Mask.CAUSAL, 3, 2), r"window = 2: mask 'causal' has no window"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        mask_matrix(*arguments)


def test_a_query_that_sees_nothing_is_refused():
    mask = mask_matrix(Mask.CAUSAL, 4)
    np.fill_diagonal(mask, False)
    with pytest.raises(ValueError, match=r"query 0 sees 0 of 4 keys \(1 such queries\)"):
        require_visible_keys(mask)
