"""Query and key weights W_Q and W_K of the heads of time series.

The channels are C features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0: D in all, and as many key channels, so that heads of all kinds go through any form.
"""

import numpy as np

HEAD_KINDS = ("lag", "uniform", "random")


def query_and_key_weights(
    kind: str,
    features: int,
    positions: int,
    lag: int,
    inverse_temperature: float,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """W_Q and W_K of one head, each [key channel, channel], for logits (W_K x_s)·(W_Q x_t)/√D.

    lag      attends `lag` steps back if the second half of the features follows the first, else BOS
    uniform  all logits are equal
    random   Gaussian entries of variance 1/D, W_Q multiplied by the inverse temperature

    Only a random head draws from the generator. Raises ValueError for any other kind.
    """
    channels = features + positions
    if kind == "random":
        query, key = generator.standard_normal((2, channels, channels)) / np.sqrt(channels)
        return inverse_temperature * query, key
    if kind == "lag":
        logit_weights = lag_weights(features, positions, lag)
    elif kind == "uniform":
        logit_weights = np.zeros((channels, channels))
    else:
        raise ValueError(f"head kind {kind!r}: use one of {', '.join(HEAD_KINDS)}")
    # Keys are the inputs themselves, as in `bilinear_form`.
    return inverse_temperature * np.sqrt(channels) * logit_weights, np.eye(channels)


def lag_weights(features: int, positions: int, lag: int) -> np.ndarray:
    """W/β of the logits x_sᵀ W x_t of a lag head, [channel, channel], keys first.

    Features: (1/C) Σ_c (x_s^c x_t^{c+C/2} − x_s^{c+C/2} x_t^c), the area that channel pairs sweep
    from s to t, of mean ±1 at a quarter of a period. Positions: +1 for the token `lag` steps back,
    1.5 for BOS. The logit there is then 2 or 0 on average; of an odd number of features the last
    one is left out.
    """
    weights = np.zeros((features + positions, features + positions))
    one = np.arange(features // 2)
    other = one + features // 2
    weights[one, other] = 1.0 / features
    weights[other, one] = -1.0 / features
    later = np.arange(lag + 1, positions)
    weights[features + later - lag, features + later] = 1.0
    weights[features, features + 1 :] = 1.5
    return weights
