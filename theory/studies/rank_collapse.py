"""Rank collapse of tokens with depth.

    μ(X) = ‖X − 1 x̄ᵀ‖_F,    x̄ the mean over tokens,

measures how far the tokens X are from being equal (Wu et al., arXiv 2405.18781). Without LayerNorm
the deviation Y = X − 1 x̄ᵀ is carried from layer to layer by itself, as rows of A sum to 1 and
A (Y + 1 x̄ᵀ) = A Y + 1 x̄ᵀ: each μ is then known to the rounding of the μ before it. LayerNorm mixes
the two, and μ is known to the rounding of X only.

Under a mask μ ends up losing a factor per layer: nearly equal tokens have nearly equal weights,
and the factor is the second eigenvalue of the uniform average over visible keys. The complete mask
loses ever larger factors, for equal queries give equal rows of A and leave no deviation at all.
"""

from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Bool, Float

from theory.studies.attention_kernel import attention_matrix, require_visible_keys


def distance_from_collapse(tokens: Float[np.ndarray, "token channel"]) -> float:
    """Distance of the tokens from their mean, μ(X) = ‖X − 1 x̄ᵀ‖_F."""
    return float(np.linalg.norm(tokens - tokens.mean(axis=0)))


def layer_norm(
    tokens: Float[np.ndarray, "token channel"],
) -> Float[np.ndarray, "token channel"]:
    """Every token less its mean over channels, divided by its standard deviation over channels.

    Raises ValueError for a token whose channels are all equal.
    """
    centred = tokens - tokens.mean(axis=1, keepdims=True)
    deviations = centred.std(axis=1, keepdims=True)
    if not np.all(deviations > 0):
        token = int(np.argmin(deviations[:, 0]))
        raise ValueError(
            f"tokens: token {token} has standard deviation 0 over its {tokens.shape[1]} channels; "
            "LayerNorm needs more than 0: leave out LayerNorm, or give it 2 channels that differ"
        )
    return centred / deviations


def collapse_of_fixed_attention(
    matrices: Float[np.ndarray, "layer query key"],
    tokens: Float[np.ndarray, "key channel"],
    normalise: bool = False,
) -> Float[np.ndarray, " depth"]:
    """Distances μ(X_0) … μ(X_L) of X_l = A_l X_{l−1}, or of X_l = LayerNorm(A_l X_{l−1}).

    Raises ValueError where a matrix is not row-stochastic.
    """
    _require_row_stochastic(matrices)
    return _distances(((lambda _, one=one: one) for one in matrices), tokens, normalise)


def collapse_of_random_attention(
    mask: Bool[np.ndarray, "token token"],
    tokens: Float[np.ndarray, "token channel"],
    layers: int,
    key_channels: int,
    rng: np.random.Generator,
    normalise: bool = False,
) -> Float[np.ndarray, " depth"]:
    """The same with A_l = softmax(Q Kᵀ/√G, masked), computed from X_{l−1} by random weights.

    Q = X W_Q and K = X W_K with independent Gaussian entries of variance 1/D, new in every layer;
    values are the tokens themselves. Raises ValueError where a query sees no key.
    """
    require_visible_keys(mask)
    channels = tokens.shape[1]

    def attend(current: np.ndarray) -> np.ndarray:
        shape = (2, channels, key_channels)
        query_weights, key_weights = rng.standard_normal(shape) / np.sqrt(channels)
        return attention_matrix(current @ query_weights, current @ key_weights, mask=mask)

    return _distances((attend for _ in range(layers)), tokens, normalise)


def rate_of_uniform_averages(mask: Bool[np.ndarray, "token token"]) -> float:
    """Loss of ln μ per layer, −ln |λ₂|, where every query averages its visible keys uniformly.

    λ₂ is the second largest eigenvalue of that average. Infinite where it is 0 to rounding: one
    layer then makes all tokens equal. Raises ValueError where a query sees no key.
    """
    require_visible_keys(mask)
    sizes = np.sort(np.abs(np.linalg.eigvals(mask / mask.sum(axis=1, keepdims=True))))
    return float(-np.log(sizes[-2])) if sizes[-2] > 1e-12 else np.inf


def _distances(
    attentions: Iterable[Callable[[np.ndarray], np.ndarray]], tokens: np.ndarray, normalise: bool
) -> np.ndarray:
    mean = tokens.mean(axis=0)
    deviation = tokens - mean
    distances = [np.linalg.norm(deviation)]
    for attention in attentions:
        matrix = attention(deviation + mean)
        deviation = matrix @ deviation
        if normalise:
            deviation, mean = layer_norm(deviation + mean), np.zeros_like(mean)
        shift = deviation.mean(axis=0)
        deviation, mean = deviation - shift, mean + shift
        distances.append(np.linalg.norm(deviation))
    return np.array(distances)


def _require_row_stochastic(matrices: np.ndarray) -> None:
    smallest = float(matrices.min())
    if not smallest >= 0:
        raise ValueError(
            f"matrices: smallest entry {smallest:.3g}; must be 0 or more: attention with negative "
            "entries is no average"
        )
    off = float(np.abs(matrices.sum(axis=2) - 1.0).max())
    limit = matrices.shape[2] * float(np.finfo(float).eps)
    if not off <= limit:
        raise ValueError(
            f"matrices: a row sums to 1 only within {off:.3g}; must be within {limit:.3g}: rows "
            "are queries; divide each by its sum in float64"
        )
