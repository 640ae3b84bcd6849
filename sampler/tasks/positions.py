"""Sequences with the beginning-of-sequence token (BOS) and one-hot positions."""

import numpy as np


def with_positions(features: np.ndarray) -> np.ndarray:
    """Put BOS in front and append one-hot positions: [example, token + 1, channel]."""
    examples, tokens, channels = features.shape
    inputs = np.zeros((examples, tokens + 1, channels + tokens + 1))
    inputs[:, 1:, :channels] = features
    inputs[:, :, channels:] = np.eye(tokens + 1)
    return inputs
