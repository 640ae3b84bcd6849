"""Forms of softmax attention: finite features, a maximiser, and kernel principal components.

**Features.** The exponential is a power series, and each power of an inner product is one of
monomials, so that to order n

    e_n(q·k/√D) = Σ_{m≤n} (q·k/√D)^m/m! = φ_n(q)·φ_n(k),
    φ_n(x) = ( Π_c x_c^{m_c} / √(Π_c m_c! · D^{m/2}) )  for all m_1 + … + m_D = m ≤ n,

(n + D choose n) features. This is the primal form of the regression of `support_vectors`, in which
the weights have one row per feature: with g = Σ_j φ(k_j) and W = Σ_j φ(k_j) v_jᵀ

    f(x) = φ(x)·W/(φ(x)·g),

and no pair of tokens is ever compared. Taylor's remainder bounds what is cut off of w_j = exp l_j,
together at most a share ρ of all weights,

    |e_n(l) − exp l| ≤ |l|^{n+1}/(n+1)! · max(1, exp l),
    ρ = Σ_j |l_j|^{n+1}/(n+1)! · max(1, exp l_j) / Σ_j exp l_j.

With W = Σ w_j, the sum W̃ of the truncated weights is at least (1 − ρ)W, and that of their sizes at
most (1 + ρ)W; a row changes by

    Σ_j |w̃_j/W̃ − w_j/W| ≤ Σ_j |w̃_j − w_j|/W + Σ_j |w̃_j| |1/W̃ − 1/W| ≤ 2ρ/(1 − ρ).

The error falls as a factorial of the order. For even n e_n is positive, and so are the weights.

**Maximiser.** A row of softmax is what similarity and entropy together choose:

    softmax(l) = argmax_p Σ_j p_j l_j − Σ_j p_j ln p_j   over p_j ≥ 0, Σ_j p_j = 1,

with the maximum ln Σ_j exp l_j; any other p stays below it by Σ_j p_j ln(p_j/softmax(l)_j). With
l/τ for l, τ → 0 leaves the similarity alone: the hard maximum.

**Projection.** With features φ of the exponential, φ(q)·φ(k) = s(q, k), a point has the image
φ(x)/h(x), and the kernel of the keys' images is the G of `attention_kernel`. Their principal
components belong to eigenvectors e_d of the centred kernel

    K̃ = (1 − 1/T) G (1 − 1/T),    K̃ e_d = λ_d e_d,    u_d = Σ_j e_dj φ̃_j/√λ_d,  |u_d| = 1,

φ̃_j being the image of key j less their mean. Since Σ_j e_dj = 0, a query's image projects to

    u_d·φ(q)/h(q) = Σ_j G(q, k_j) e_dj/√λ_d = Σ_j A(q, k_j) v_jd,    v_jd = e_dj/(√λ_d h(k_j)):

softmax attention whose value channels are eigenvectors of K̃, divided by h, projects queries on
principal components. For values of any other origin a_j = h(k_j) (v_j − c), with the c that makes
Σ_j a_j = 0, are such coefficients; c adds the same to every output. How near a is to an eigenvector
says its cosine with K̃ a, which is 1 for eigenvectors alone.

Source: arXiv 2406.13781 for the features as primal form; the bound is this project's own. The
maximiser is Gibbs' variational principle. arXiv 2406.13762 for the projection, whose claim is that
training makes the values such.
"""

import math
from enum import StrEnum
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import entr, logsumexp

from theory.observables import centred_kernel


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


def taylor_features(
    points: Float[np.ndarray, "point channel"], order: int
) -> Float[np.ndarray, "point feature"]:
    """Features φ_n(x) with φ_n(q)·φ_n(k) = Σ_{m≤n} (q·k/√D)^m/m!, lowest degrees first.

    Raises ValueError for a negative order.
    """
    refuse_negative(order)
    channels = points.shape[1]
    features = []
    for degree in range(order + 1):
        for chosen in combinations_with_replacement(range(channels), degree):
            repeats = math.prod(math.factorial(chosen.count(one)) for one in set(chosen))
            size = math.sqrt(repeats * channels ** (degree / 2))
            features.append(np.prod(points[:, list(chosen)], axis=1) / size)
    return np.stack(features, axis=1)


def truncated_attention(
    queries: Float[np.ndarray, "query channel"],
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    order: int,
) -> Float[np.ndarray, "query value_channel"]:
    """Attention with e_n in the place of exp, φ(q)·W/(φ(q)·g), in time linear in tokens."""
    of_queries, of_keys = taylor_features(queries, order), taylor_features(keys, order)
    return of_queries @ (of_keys.T @ values) / (of_queries @ of_keys.sum(axis=0))[:, None]


def truncation_bound(
    queries: Float[np.ndarray, "query channel"], keys: Float[np.ndarray, "key channel"], order: int
) -> Float[np.ndarray, " query"]:
    """Bound 2ρ/(1 − ρ), per query, on the distance Σ_j |Ã_ij − A_ij| of its weights from softmax.

    Infinite where ρ ≥ 1. Raises ValueError for a negative order.
    """
    refuse_negative(order)
    logits = queries @ keys.T / math.sqrt(keys.shape[1])
    remainder = np.abs(logits) ** (order + 1) / math.factorial(order + 1)
    lost = np.sum(remainder * np.exp(np.maximum(logits, 0.0)), axis=1)
    share = lost / np.exp(logits).sum(axis=1)
    return np.divide(2.0 * share, 1.0 - share, out=np.full(len(share), np.inf), where=share < 1.0)


def refuse_negative(order: int) -> None:
    """Raise ValueError for an order below 0."""
    if order < 0:
        raise ValueError(f"order = {order}: must be 0 or more; 0 is uniform attention")


def similarity_and_entropy(
    weights: Float[np.ndarray, "query key"], logits: Float[np.ndarray, "query key"]
) -> Float[np.ndarray, " query"]:
    """Similarity and entropy Σ_j p_j l_j − Σ_j p_j ln p_j of every row p of weights."""
    return np.sum(weights * logits + entr(weights), axis=1)


def most_similarity_and_entropy(
    logits: Float[np.ndarray, "query key"],
) -> Float[np.ndarray, " query"]:
    """The maximum ln Σ_j exp l_j of `similarity_and_entropy` over the simplex."""
    return logsumexp(logits, axis=1)


def component_values(
    keys: Float[np.ndarray, "key channel"], components: int
) -> Float[np.ndarray, "key component"]:
    """Values v_jd = e_dj/(√λ_d h(k_j)) with which attention projects on the first components.

    Raises ValueError for keys too large for float64, and for components that the keys do not have.
    """
    eigenvalues, vectors = np.linalg.eigh(centred_kernel(attention_kernel(keys, keys)))
    rounding = len(keys) * np.finfo(float).eps * eigenvalues[-1]
    there = int(np.sum(eigenvalues > rounding))
    if not 1 <= components <= there:
        raise ValueError(f"components = {components}: must be 1 to {there}, which these keys have")
    largest = slice(-1, -components - 1, -1)
    return vectors[:, largest] / np.sqrt(eigenvalues[largest]) / normalisers(keys)[:, None]


def component_coefficients(
    keys: Float[np.ndarray, "key channel"], values: Float[np.ndarray, "key value_channel"]
) -> Float[np.ndarray, "key value_channel"]:
    """Coefficients a_j = h(k_j) (v_j − c) of the keys' images, which sum to 0 over keys."""
    sums = normalisers(keys)[:, None]
    return sums * (values - np.sum(sums * values, axis=0) / sums.sum())


def component_alignment(
    keys: Float[np.ndarray, "key channel"], values: Float[np.ndarray, "key value_channel"]
) -> Float[np.ndarray, " value_channel"]:
    """Cosine between a and K̃ a of every channel: from 0 to 1, and 1 for a single component.

    No channel may have the same value at all keys.
    """
    coefficients = component_coefficients(keys, values)
    moved = centred_kernel(attention_kernel(keys, keys)) @ coefficients
    sizes = np.linalg.norm(coefficients, axis=0) * np.linalg.norm(moved, axis=0)
    return np.sum(coefficients * moved, axis=0) / sizes


def captured_variance(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    components: int,
) -> float:
    """Share of what principal components capture that as many directions of the values do.

    tr(Qᵀ K̃ Q)/(λ_1 + … + λ_r), with Q the r leading left-singular vectors of a: 1 where they span
    the first r components, in whatever basis.
    """
    kernel = centred_kernel(attention_kernel(keys, keys))
    directions = np.linalg.svd(component_coefficients(keys, values))[0][:, :components]
    most = np.linalg.eigvalsh(kernel)[-components:].sum()
    return float(np.trace(directions.T @ kernel @ directions) / most)
