"""Softmax attention as support-vector regression.

The ε-insensitive regression of `tube_regression`, of one label per key and channel, with the kernel
G_ij = s(k_i, k_j) / (h(k_i) h(k_j)) of `attention_kernel`, has the solution

    f(x) = Σ_j β_j s(x, k_j) / (h(x) h(k_j)) = Σ_j A(x, k_j) v_j,    v_j = β_j / h(k_j),

the attention of query x over the keys with values v: for every x, with no bias term, whatever the
labels. Channels are independent regressions. A key whose labels lie strictly inside the tube in
every channel has value 0 and can be removed from the sum over values, though not from h; the keys
with any β ≠ 0 are the support vectors.

Conversely, any values V are the solution of a regression: take β = V h and the labels
y = Gβ + ε sign β with any C > max|β|. For softmax and distinct keys it is the only solution; where
G is singular other β give the same f.

Source: arXiv 2406.13781; there with a bias b, which adds b to every value, since rows of A sum
to 1.

A query that sees the keys S attends exactly as the regressor over S alone does: with
h_S(x) = Σ_{j∈S} s(x, k_j), the values are v_j = β_j^S / h_S(k_j). One set of values, shared by all
queries, is therefore as many regressions as there are sets of visible keys:

    β_j^S = v_j h_S(k_j),    y^S = G^S β^S + ε sign β^S,    G^S_ij = s(k_i, k_j)/(h_S(k_i) h_S(k_j))

The signs are those of v in every one of them, so a key is a support vector of all the regressions
that contain it or of none; sizes of β and labels differ from set to set. It follows that no single
list of labels yields a masked attention in general: the same labels regressed on two sets give a
key two values.

One regression for all queries needs the kernel m_ij s(k_i, k_j)/(h_i h_j), h_i over what query i
sees, to be symmetric and positive semi-definite. For all keys alike that is so if and only if the
mask splits the tokens into groups that see all of their own and nothing else: equal keys make the
kernel the mask up to positive factors, and a symmetric 0-1 matrix with i ~ j ~ k but not i ~ k has
a 3 × 3 minor of determinant −1; of groups, on the other hand, the kernel is made block by block.
Padding is such a mask, causal and windowed masks are not. (This project's own derivation.)

**Variants.** Attention-SH and Attention-BN are the same regression over other points than those
that the head was given:

    Attention-SH    over the pooled keys P k, as many labels as there are groups of keys
    Attention-BN    with features of standardised points, x → (x − βμ)/σ for queries and keys
    BN+SH           both: pooled keys, then μ and σ over the pooled keys

With x̂ and k̂_g for the points as the head sees them, the solution is

    f(x) = Σ_g β_g s(x̂, k̂_g)/(h(x̂) h(k̂_g)) = Σ_g A(x̂, k̂_g) v_g,    v_g = β_g/h(k̂_g),

softmax attention over the points seen. Any values V of the tokens with P V = v give the same
outputs through the variant's matrix Ω = Pᵀ S, since Ωᵀ V = Sᵀ P V; Pᵀ (P Pᵀ)⁻¹ v is the smallest
of them. Conversely, any V gives values P V of the groups, and they solve a regression.

What the standardisation changes: without scaling, exp((q − βμ)·(k_j − βμ)/√G) is, up to a factor
of the query alone, a_j exp(q·k_j/√G) with a_j = exp(−βμ·k_j/√G). Attention-BN without scaling is
softmax attention in which key j counts a_j times, less the further it lies along the mean.
(arXiv 2406.13781; pooling and weight of the mean as reconstructed from its algebra.)
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from theory.studies.softmax_forms import (
    Similarity,
    attention_kernel,
    attention_matrix,
    normalisers,
    require_visible_keys,
)
from theory.studies.tube_regression import solve_tube_regression


@dataclass(frozen=True)
class SupportVectorAttention:
    """Attention whose values solve a regression.

    `residual` is the largest violation of the optimality conditions, `rounding` what rounding can
    add to y − f(k) whenever it is computed, both in units of the labels.
    """

    keys: Float[np.ndarray, "key channel"]
    labels: Float[np.ndarray, "key value_channel"]
    coefficients: Float[np.ndarray, "key value_channel"]
    tube: float
    similarity: Similarity
    residual: float
    rounding: float

    @property
    def values(self) -> Float[np.ndarray, "key value_channel"]:
        """Values v_j = β_j / h(k_j)."""
        return self.coefficients / normalisers(self.keys, self.similarity)[:, None]

    @property
    def support_vectors(self) -> tuple[int, ...]:
        """The keys with β_j ≠ 0 in any channel."""
        return tuple(int(key) for key in np.flatnonzero(self.coefficients.any(axis=1)))

    def regressor(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Regressor f(x) = Σ_j β_j s(x, k_j) / (h(x) h(k_j))."""
        return attention_kernel(queries, self.keys, self.similarity) @ self.coefficients

    def attend(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Attention Σ_j A(x, k_j) v_j, which equals the regressor."""
        return attention_matrix(queries, self.keys, self.similarity) @ self.values


def support_vector_attention(
    keys: Float[np.ndarray, "key channel"],
    labels: Float[np.ndarray, "key value_channel"],
    tube: float,
    bound: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> SupportVectorAttention:
    """The attention that regresses labels at the keys: min ½βᵀGβ − yᵀβ + ε|β|₁ over |β| ≤ C.

    Raises ValueError for keys too large for float64, a negative tube or a bound that is not
    positive, and RuntimeError where the optimality conditions are not met to rounding.
    """
    kernel = attention_kernel(keys, keys, similarity)
    channels = [solve_tube_regression(kernel, column, tube, bound) for column in labels.T]
    return SupportVectorAttention(
        keys=keys,
        labels=labels,
        coefficients=np.stack([channel.coefficients for channel in channels], axis=1),
        tube=tube,
        similarity=similarity,
        residual=max(channel.residual for channel in channels),
        rounding=max(channel.rounding for channel in channels),
    )


def regression_of_attention(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    tube: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> tuple[Float[np.ndarray, "key value_channel"], Float[np.ndarray, "key value_channel"]]:
    """Coefficients β = V h and labels y = Gβ + ε sign β of a regression solved by these values.

    They solve it for every C ≥ max|β|.
    """
    coefficients = values * normalisers(keys, similarity)[:, None]
    fit = attention_kernel(keys, keys, similarity) @ coefficients
    return coefficients, fit + tube * np.sign(coefficients)


@dataclass(frozen=True)
class VisibleRegression:
    """The regression behind the queries that see one set of keys, named by their indices."""

    visible: tuple[int, ...]
    queries: tuple[int, ...]
    coefficients: Float[np.ndarray, "_visible value_channel"]
    labels: Float[np.ndarray, "_visible value_channel"]


def masked_regressions(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    mask: Bool[np.ndarray, "query key"],
    tube: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> tuple[VisibleRegression, ...]:
    """One regression per set of visible keys, in the order in which queries first see them.

    Raises ValueError where a query sees no key.
    """
    require_visible_keys(mask)
    queries: dict[tuple[int, ...], list[int]] = {}
    for query, row in enumerate(mask):
        visible = tuple(int(key) for key in np.flatnonzero(row))
        queries.setdefault(visible, []).append(query)
    return tuple(
        VisibleRegression(
            visible,
            tuple(seeing),
            *regression_of_attention(keys[list(visible)], values[list(visible)], tube, similarity),
        )
        for visible, seeing in queries.items()
    )


def is_one_regression(mask: Bool[np.ndarray, "token token"]) -> bool:
    """Whether the mask splits the tokens into groups: one regression then holds for all queries.

    Each token must see itself, and tokens that see one another must see the same keys.
    """
    seen = mask[:, None, :] == mask[None, :, :]
    return bool(np.all(np.diag(mask)) and np.all(mask == mask.T) and np.all(seen.all(-1) | ~mask))


@dataclass(frozen=True)
class HeadPoints:
    """Points as a head of a variant sees them: keys k̂ = (P k − βμ)/σ, and queries (q − βμ)/σ.

    keys     k̂
    centre   βμ, 0 where the mean is not taken off
    scale    σ, 1 where it is not divided by
    pooling  P; its rows sum to 1
    """

    keys: Float[np.ndarray, "pooled channel"]
    centre: Float[np.ndarray, " channel"]
    scale: Float[np.ndarray, " channel"]
    pooling: Float[np.ndarray, "pooled key"]

    def queries(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query channel"]:
        """Queries as the head sees them, (q − βμ)/σ."""
        return (queries - self.centre) / self.scale

    def spread(
        self, values: Float[np.ndarray, "pooled value_channel"]
    ) -> Float[np.ndarray, "key value_channel"]:
        """The smallest V of all tokens with P V = v, V = Pᵀ (P Pᵀ)⁻¹ v."""
        return self.pooling.T @ np.linalg.solve(self.pooling @ self.pooling.T, values)


def scaled_down_points(
    keys: Float[np.ndarray, "key channel"], pooling: Float[np.ndarray, "pooled key"]
) -> HeadPoints:
    """The points of Attention-SH: keys P k, queries as they are."""
    channels = keys.shape[1]
    return HeadPoints(pooling @ keys, np.zeros(channels), np.ones(channels), pooling)


def standardised_points(
    keys: Float[np.ndarray, "key channel"],
    share_of_mean: float,
    scaling: bool,
    epsilon: float,
    pooling: Float[np.ndarray, "pooled key"] | None = None,
) -> HeadPoints:
    """The points of Attention-BN, or with a pooling P those of BN+SH.

    μ and variance are those of the (pooled) keys, channel by channel; β is `share_of_mean`, and
    σ = √(variance + ε) with scaling, 1 without.
    """
    pooling = np.eye(len(keys)) if pooling is None else pooling
    seen = pooling @ keys
    centre = share_of_mean * seen.mean(axis=0)
    scale = np.sqrt(seen.var(axis=0) + epsilon) if scaling else np.ones(keys.shape[1])
    return HeadPoints((seen - centre) / scale, centre, scale, pooling)
