"""Which keys a query may see."""

from enum import StrEnum

import numpy as np
from jaxtyping import Bool


class Mask(StrEnum):
    """Query i sees key j: always, j ≤ i, |i − j| ≤ w, or 0 ≤ i − j ≤ w."""

    COMPLETE = "complete"
    CAUSAL = "causal"
    WINDOW = "window"
    ONE_SIDED_WINDOW = "one_sided_window"


_WINDOWED = (Mask.WINDOW, Mask.ONE_SIDED_WINDOW)


def mask_matrix(
    mask: Mask, tokens: int, window: int | None = None
) -> Bool[np.ndarray, "query key"]:
    """True at [i, j] where query i may see key j, in a sequence of `tokens` tokens.

    Raises ValueError where `tokens` is not positive, `window` is negative, a windowed mask has no
    `window`, or another mask has one.
    """
    if tokens < 1:
        raise ValueError(f"tokens = {tokens}: must be at least 1")
    if mask in _WINDOWED:
        if window is None or window < 0:
            raise ValueError(
                f"window = {window}: must be 0 or more for mask {str(mask)!r}; "
                "0 lets every token see itself only"
            )
    elif window is not None:
        raise ValueError(
            f"window = {window}: mask {str(mask)!r} has no window; leave it out or choose one of "
            + ", ".join(repr(str(one)) for one in _WINDOWED)
        )
    # How far each key lies behind the query: i − j.
    behind = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    if mask is Mask.COMPLETE:
        return np.ones((tokens, tokens), dtype=bool)
    if mask is Mask.CAUSAL:
        return behind >= 0
    if mask is Mask.WINDOW:
        return np.abs(behind) <= window
    return (behind >= 0) & (behind <= window)


def require_visible_keys(mask: Bool[np.ndarray, "query key"]) -> None:
    """Raise ValueError where a query may see no key: attention over nothing is undefined."""
    blind = np.flatnonzero(~mask.any(axis=1))
    if blind.size:
        raise ValueError(
            f"mask: query {blind[0]} sees 0 of {mask.shape[1]} keys ({blind.size} such queries); "
            "every query must see at least 1 key, for example itself"
        )
