"""From the images of an episode to the tokens of the network."""

import numpy as np
from jaxtyping import Float, Float32, Int

from sampler.recipes.episode_tokens import GRID, PATCH, PATCHES

# Keeps blank patches, which have no variance, at zero.
EPSILON = 1e-5


def normalised_patches(
    images: Float32[np.ndarray, "drawing row column"], copies: int = 1
) -> Float[np.ndarray, "drawing patch channel"]:
    """Patches in row-major order, each with mean 0 and variance 1: LayerNorm without a scale.

    (patch − mean)/√(variance + 10⁻⁵); `copies` repeats every patch along its channels, as images
    with so many equal colours have it.
    """
    split = images.astype(np.float64).reshape(-1, GRID, PATCH, GRID, PATCH)
    patches = split.transpose(0, 1, 3, 2, 4).reshape(-1, PATCHES, PATCH * PATCH)
    centred = patches - patches.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(centred.var(axis=-1, keepdims=True) + EPSILON)
    return np.tile(scaled, copies)


def position_table(tokens: int, channels: int) -> Float[np.ndarray, "token channel"]:
    """Sinusoidal positions, standardised as a whole: mean 0 and variance 1 over all entries.

    sin(t/10000^(2i/D)) at channel 2i, the cosine at channel 2i + 1.
    """
    frequency = 10000.0 ** (-np.arange(0, channels, 2) / channels)
    angle = np.arange(tokens)[:, None] * frequency
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(tokens, -1)[:, :channels]
    return (table - table.mean()) / table.std()


def episode_inputs(
    patches: Float[np.ndarray, "drawing patch channel"],
    drawings: Int[np.ndarray, "example image"],
    labels: Int[np.ndarray, "example image"],
    embedding: Float[np.ndarray, "label channel"],
) -> Float[np.ndarray, "example token channel"]:
    """x_0 = patch + position + embedding of the image's label; supports first, then the query."""
    labelled = patches[drawings] + embedding[labels][:, :, None, :]
    inputs = labelled.reshape(len(drawings), -1, patches.shape[-1])
    return inputs + position_table(inputs.shape[1], inputs.shape[2])
