"""Logit weights W of the heads of the hidden Markov task.

The channels are features, then one-hot positions with the beginning-of-sequence token (BOS) at
position 0. W is made of blocks (features, positions) and multiplied by the inverse temperature β.
"""

import numpy as np

HEAD_KINDS = ("good", "uniform", "random")


def state_difference(features: int) -> np.ndarray:
    """The direction that reads a hidden state, [feature].

    q = (v₊ − v₋) / (|v₊ − v₋|²/2), so that q·v₊ = 1 and q·v₋ = −1.
    """
    half = features // 2
    difference = np.sqrt(2.0) * np.concatenate([np.ones(half), -np.ones(half)])
    return difference / (difference @ difference / 2.0)


def head_weights(
    kind: str,
    features: int,
    positions: int,
    inverse_temperature: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Logit weights W of one head, [channel, channel], rows for keys and columns for queries.

    good      attends to the previous token if its state is the same, to BOS otherwise
    uniform   all logits are equal
    random    Gaussian: features of variance 1/features², positions 1, cross blocks 1/features

    Only a random head draws from the generator. Raises ValueError for any other kind.
    """
    if kind == "good":
        weights = good_weights(features, positions)
    elif kind == "uniform":
        weights = np.zeros((features + positions, features + positions))
    elif kind == "random":
        weights = random_weights(features, positions, generator)
    else:
        raise ValueError(f"head kind {kind!r}: use one of {', '.join(HEAD_KINDS)}")
    return inverse_temperature * weights


def good_weights(features: int, positions: int) -> np.ndarray:
    """W/β of the good head.

    Features q qᵀ: +1 for two tokens of the same state, −1 otherwise, 0 with BOS. Positions: +1
    for the previous token, 1.5 for BOS. The logit of the previous token is then 2 or 0, of BOS
    1.5, and of any other token at most 1 (up to noise).
    """
    weights = np.zeros((features + positions, features + positions))
    direction = state_difference(features)
    weights[:features, :features] = np.outer(direction, direction)
    previous = np.arange(1, positions - 1)
    weights[features + previous, features + previous + 1] = 1.0
    weights[features, features + 1 :] = 1.5
    return weights


def random_weights(features: int, positions: int, generator: np.random.Generator) -> np.ndarray:
    """W/β of a random head: Gaussian entries, each block with its own scale."""
    scale = np.concatenate([np.full(features, 1.0 / np.sqrt(features)), np.ones(positions)])
    # A standard Gaussian entry times the scales of its row and its column: 1/features within
    # the features, 1 within the positions, 1/√features across.
    return generator.standard_normal((scale.size, scale.size)) * np.outer(scale, scale)
