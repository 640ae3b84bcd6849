"""Attention as a normalised similarity of queries and keys, and the kernel behind it."""

from enum import StrEnum

import numpy as np
from jaxtyping import Bool, Float

from theory.masks import require_visible_keys


class Similarity(StrEnum):
    """How alike a query and a key are: s(q, k) = exp(q·k/√D), or s(q, k) = φ(q)·φ(k).

    φ = elu + 1, channel by channel (arXiv 2006.16236).

    Both are positive semi-definite kernels, and every sum of similarities is positive.
    """

    SOFTMAX = "softmax"
    LINEAR = "linear"


def attention_matrix(
    queries: Float[np.ndarray, "query channel"],
    keys: Float[np.ndarray, "key channel"],
    similarity: Similarity = Similarity.SOFTMAX,
    mask: Bool[np.ndarray, "query key"] | None = None,
) -> Float[np.ndarray, "query key"]:
    """A_ij = m_ij s(q_i, k_j) / Σ_j' m_ij' s(q_i, k_j'); every row sums to 1.

    m is 1 where query i may see key j. Raises ValueError where a query sees no key.
    """
    if mask is None:
        mask = np.ones((len(queries), len(keys)), dtype=bool)
    require_visible_keys(mask)
    if similarity is Similarity.LINEAR:
        weights = np.where(mask, positive_features(queries) @ positive_features(keys).T, 0.0)
    else:
        logits = np.where(mask, queries @ keys.T / np.sqrt(keys.shape[1]), -np.inf)
        # Less the largest logit that is seen: nothing overflows, and the factor cancels.
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def normalisers(
    keys: Float[np.ndarray, "key channel"], similarity: Similarity = Similarity.SOFTMAX
) -> Float[np.ndarray, " key"]:
    """h(k_i) = Σ_j s(k_i, k_j).

    Raises ValueError where float64 cannot hold it.
    """
    if similarity is Similarity.LINEAR:
        features = positive_features(keys)
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
    """K(q_i, k_j) = s(q_i, k_j) / (h(q_i) h(k_j)), with h(x) = Σ_j s(x, k_j) over these keys.

    At the keys themselves it is G: symmetric and positive semi-definite; definite for softmax
    unless two keys are equal, of rank D at most for linear attention. Source: arXiv 2406.13781.
    """
    return attention_matrix(queries, keys, similarity) / normalisers(keys, similarity)


def positive_features(
    points: Float[np.ndarray, "point channel"],
) -> Float[np.ndarray, "point channel"]:
    """φ(x) = elu(x) + 1: x + 1 for positive x, exp x for the others."""
    # `where` computes both: the exponential it does not use must not overflow.
    return np.where(points > 0, points + 1.0, np.exp(np.minimum(points, 0.0)))
