"""Query and key weights W_Q and W_K of the heads of small images, cut into square patches.

The channels are the pixels of the image, of which a token holds those of its own patch and zeros
elsewhere, then one-hot positions of the patches, row by row: D in all, and as many key channels, so
that heads of all kinds go through any form.
"""

import numpy as np
from jaxtyping import Float

HEAD_KINDS = ("similar", "near", "uniform", "random")


def query_and_key_weights(
    kind: str, side: int, patch: int, inverse_temperature: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """W_Q and W_K of one head, each [key channel, channel], for logits (W_K x_s)·(W_Q x_t)/√D.

    similar  mean over pixels of the product of both patches, times β
    near     minus the squared distance of both patches in units of the image's side, times β
    uniform  all logits are equal
    random   Gaussian entries of variance 1/D, W_Q multiplied by β

    Only a random head draws from the generator. Raises ValueError for any other kind.
    """
    pixels, positions = side**2, (side // patch) ** 2
    channels = pixels + positions
    if kind == "random":
        query, key = generator.standard_normal((2, channels, channels)) / np.sqrt(channels)
        return inverse_temperature * query, key
    logit_weights = np.zeros((channels, channels))
    if kind == "similar":
        fold = pixels_within_patch(side, patch)
        logit_weights[:pixels, :pixels] = fold.T @ fold / patch**2
    elif kind == "near":
        logit_weights[pixels:, pixels:] = -squared_distances(side, patch)
    elif kind != "uniform":
        raise ValueError(f"head kind {kind!r}: use one of {', '.join(HEAD_KINDS)}")
    # Keys are the inputs themselves: the logit is x_sᵀ W x_t.
    return inverse_temperature * np.sqrt(channels) * logit_weights, np.eye(channels)


def pixels_within_patch(side: int, patch: int) -> Float[np.ndarray, "place pixel"]:
    """1 where a pixel of the image has this place within its patch."""
    rows, columns = np.divmod(np.arange(side**2), side)
    place = (rows % patch) * patch + columns % patch
    return (np.arange(patch**2)[:, None] == place).astype(np.float64)


def squared_distances(side: int, patch: int) -> Float[np.ndarray, "position position"]:
    """Between the centres of patches, in units of the image's side."""
    grid = side // patch
    centres = np.stack(np.divmod(np.arange(grid**2), grid), axis=-1) * (patch / side)
    return np.sum((centres[:, None] - centres[None]) ** 2, axis=-1)
