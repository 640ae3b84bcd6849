"""Attention-BN and Attention-SH as support-vector regressions.

Each is the regression of `support_vectors` over other points than those that the head was given:

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

Source: arXiv 2406.13781; pooling and weight of the mean as reconstructed from its algebra.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class HeadPoints:
    """What a head makes of its points: keys k̂ = (P k − βμ)/σ, and queries (q − βμ)/σ.

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
