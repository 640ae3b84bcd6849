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
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float
from scipy.special import entr, logsumexp

from theory.observables import centred_kernel
from theory.studies.attention_kernel import attention_kernel, normalisers


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
