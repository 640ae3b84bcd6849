"""Attention as a normalised kernel, and the masks that it may have."""

from enum import StrEnum

import numpy as np
from jaxtyping import Bool, Float


class Mask(StrEnum):
    """Masks: query i sees key j always, for j ≤ i, |i − j| ≤ w, or 0 ≤ i − j ≤ w."""

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


class Similarity(StrEnum):
    """Similarity of a query and a key, s(q, k) = exp(q·k/√D) or s(q, k) = φ(q)·φ(k).

    φ = elu + 1, channel by channel (arXiv 2006.16236). Both are positive semi-definite kernels,
    and every sum of similarities is positive.
    """

    SOFTMAX = "softmax"
    LINEAR = "linear"


def attention_matrix(
    queries: Float[np.ndarray, "query channel"],
    keys: Float[np.ndarray, "key channel"],
    similarity: Similarity = Similarity.SOFTMAX,
    mask: Bool[np.ndarray, "query key"] | None = None,
) -> Float[np.ndarray, "query key"]:
    """Attention A_ij = m_ij s(q_i, k_j) / Σ_j' m_ij' s(q_i, k_j'); every row sums to 1.

    m is 1 where query i may see key j. Raises ValueError where a query sees no key.
    """
    if mask is None:
        mask = np.ones((len(queries), len(keys)), dtype=bool)
    require_visible_keys(mask)
    if similarity is Similarity.LINEAR:
        weights = np.where(mask, linear_features(queries) @ linear_features(keys).T, 0.0)
    else:
        logits = np.where(mask, queries @ keys.T / np.sqrt(keys.shape[1]), -np.inf)
        # Less the largest logit that is seen: nothing overflows, and the factor cancels.
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def normalisers(
    keys: Float[np.ndarray, "key channel"], similarity: Similarity = Similarity.SOFTMAX
) -> Float[np.ndarray, " key"]:
    """Sums of similarities h(k_i) = Σ_j s(k_i, k_j).

    Raises ValueError where float64 cannot hold it.
    """
    if similarity is Similarity.LINEAR:
        features = linear_features(keys)
        return features @ features.sum(axis=0)
    logits = keys @ keys.T / np.sqrt(keys.shape[1])
    largest, limit = float(logits.max()), np.log(np.finfo(float).max / len(keys))
    if not largest <= limit:
        raise ValueError(
            f"keys: largest k·k'/√D = {largest:.4g}; must be at most {limit:.4g}, where exp still "
            "fits float64; scale the keys down"
        )
    return np.exp(logits).sum(axis=1)


def attention_kernel(
    queries: Float[np.ndarray, "query channel"],
    keys: Float[np.ndarray, "key channel"],
    similarity: Similarity = Similarity.SOFTMAX,
) -> Float[np.ndarray, "query key"]:
    """Kernel s(q_i, k_j) / (h(q_i) h(k_j)), with h(x) = Σ_j s(x, k_j) over these keys.

    At the keys themselves it is G: symmetric and positive semi-definite; definite for softmax
    unless two keys are equal, of rank D at most for linear attention. Source: arXiv 2406.13781.
    """
    return attention_matrix(queries, keys, similarity) / normalisers(keys, similarity)


def linear_features(
    points: Float[np.ndarray, "point channel"],
) -> Float[np.ndarray, "point channel"]:
    """Features of linear attention, φ(x) = elu(x) + 1: x + 1 for positive x, else exp x."""
    # `where` computes both: the exponential it does not use must not overflow.
    return np.where(points > 0, points + 1.0, np.exp(np.minimum(points, 0.0)))
