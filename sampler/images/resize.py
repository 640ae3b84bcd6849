"""Antialiased resizing of images by a triangular filter."""

import numpy as np
from jaxtyping import Float, Float32


def resizing_matrix(source: int, target: int) -> Float[np.ndarray, "target source"]:
    """Weights of source pixels in each target pixel; rows sum to 1.

    A triangle around the centre of the target pixel, whose half-width is the larger of the two
    pixel sizes: linear interpolation when enlarging, an average over what is covered otherwise.
    """
    scale = source / target
    centres = (np.arange(target) + 0.5) * scale - 0.5
    distance = np.abs(np.arange(source) - centres[:, None]) / max(scale, 1.0)
    weights = np.maximum(0.0, 1.0 - distance)
    return weights / weights.sum(axis=1, keepdims=True)


def resize(
    images: Float[np.ndarray, "drawing row column"], side: int
) -> Float32[np.ndarray, "drawing side side"]:
    """Square images of `side` pixels a side."""
    rows = resizing_matrix(images.shape[1], side)
    columns = resizing_matrix(images.shape[2], side)
    return (rows @ images @ columns.T).astype(np.float32)
