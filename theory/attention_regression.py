"""Softmax attention as support-vector regression.

Labels y at the keys are regressed with a tube of half-width ε: errors inside it cost nothing,
errors beyond it C per unit, min_w ½|w|² + C Σ_i max(|y_i − f(k_i)| − ε, 0) with f = w·features and
one regression per channel. With the kernel G_ij = s(k_i, k_j)/(h(k_i) h(k_j)), s the exponential of
q·k/√D and h(x) = Σ_j s(x, k_j), the solution is

    f(x) = Σ_j β_j s(x, k_j)/(h(x) h(k_j)) = Σ_j A(x, k_j) v_j,    v_j = β_j/h(k_j),

the attention of query x over the keys with values v: for every x, with no bias term, whatever the
labels. β minimises ½βᵀGβ − yᵀβ + ε|β|₁ over |β_i| ≤ C; with r = y − Gβ that is

    β_i = 0            |r_i| ≤ ε             inside the tube or on its edge
    0 < |β_i| < C      r_i = ε sign β_i      on the edge
    |β_i| = C          r_i sign β_i ≥ ε      outside or on the edge

A key whose labels lie strictly inside the tube in every channel has value 0 and can be removed from
the sum over values, though not from h; the keys with any β ≠ 0 are the support vectors. Conversely,
any values V of distinct keys solve a regression: that of the labels y = Gβ + ε sign β with β = V h
and any C ≥ max|β|.

Attention-SH and Attention-BN are the same regression over the points that a head of theirs sees
(`HeadPoints`): pooled keys P k, and points less β times their mean, over their deviation. Any
values V of the tokens with P V = v give the same outputs through the variant's matrix Ω = Pᵀ S,
since Ωᵀ V = Sᵀ P V. Without scaling, exp((q − βμ)·(k_j − βμ)/√D) is, up to a factor of the query
alone, exp(−βμ·k_j/√D) exp(q·k_j/√D): softmax attention in which a key counts less the further it
lies along the mean.

The letters of this module are its own, as in the source, but for A and Ω.

Source: arXiv 2406.13781; there with a bias b, which adds b to every value, since rows of A sum to
1. Pooling and weight of the mean are reconstructed from its algebra.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


def attention_matrix(
    queries: Float[np.ndarray, "query channel"], keys: Float[np.ndarray, "key channel"]
) -> Float[np.ndarray, "query key"]:
    """Attention A_ij = s(q_i, k_j)/Σ_j' s(q_i, k_j'); every row sums to 1."""
    logits = queries @ keys.T / np.sqrt(keys.shape[1])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def normalisers(keys: Float[np.ndarray, "key channel"]) -> Float[np.ndarray, " key"]:
    """Sums of similarities h(k_i) = Σ_j s(k_i, k_j).

    Raises ValueError where float64 cannot hold it.
    """
    logits = keys @ keys.T / np.sqrt(keys.shape[1])
    largest, limit = float(logits.max()), np.log(np.finfo(float).max / len(keys))
    if not largest <= limit:
        raise ValueError(
            f"keys: largest k·k'/√D = {largest:.4g}; must be at most {limit:.4g}, where exp still "
            "fits float64; scale the keys down"
        )
    return np.exp(logits).sum(axis=1)


def attention_kernel(
    queries: Float[np.ndarray, "query channel"], keys: Float[np.ndarray, "key channel"]
) -> Float[np.ndarray, "query key"]:
    """Kernel s(q_i, k_j)/(h(q_i) h(k_j)), with h(x) = Σ_j s(x, k_j) over these keys.

    At the keys themselves it is G: symmetric and positive semi-definite, definite unless two keys
    are equal.
    """
    return attention_matrix(queries, keys) / normalisers(keys)


def regression_of_attention(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    tube: float,
) -> tuple[Float[np.ndarray, "key value_channel"], Float[np.ndarray, "key value_channel"]]:
    """Coefficients β = V h and labels y = Gβ + ε sign β of a regression solved by these values.

    They solve it for every C ≥ max|β|.
    """
    coefficients = values * normalisers(keys)[:, None]
    fit = attention_kernel(keys, keys) @ coefficients
    return coefficients, fit + tube * np.sign(coefficients)


@dataclass(frozen=True)
class HeadPoints:
    """Points as a head of a variant sees them: keys k̂ = (P k − βμ)/σ, and queries (q − βμ)/σ.

    With them the solution is f(x) = Σ_g β_g s(x̂, k̂_g)/(h(x̂) h(k̂_g)) = Σ_g A(x̂, k̂_g) v_g.

    keys     k̂
    centre   βμ, 0 where the mean is not taken off
    scale    σ, 1 where it is not divided by
    pooling  P; its rows sum to 1
    """

    keys: Float[np.ndarray, "pooled channel"]
    centre: Float[np.ndarray, " channel"]
    scale: Float[np.ndarray, " channel"]
    pooling: Float[np.ndarray, "pooled key"]

    @classmethod
    def of(
        cls,
        keys: Float[np.ndarray, "key channel"],
        pooling: Float[np.ndarray, "pooled key"] | None = None,
        share_of_mean: float = 0.0,
        scaling: bool = False,
        epsilon: float = 0.0,
    ) -> "HeadPoints":
        """Points of Attention-SH (with a pooling P), of Attention-BN, or of both, BN+SH.

        μ and variance are those of the (pooled) keys, channel by channel; β is `share_of_mean`, and
        σ = √(variance + ε) with scaling, 1 without.
        """
        pooling = np.eye(len(keys)) if pooling is None else pooling
        pooled = pooling @ keys
        centre = share_of_mean * pooled.mean(axis=0)
        scale = np.sqrt(pooled.var(axis=0) + epsilon) if scaling else np.ones_like(centre)
        return cls((pooled - centre) / scale, centre, scale, pooling)

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
