"""How much each attention head matters, read off the order parameter U_1."""

import numpy as np
from jaxtyping import Array, Float

from theory.paths import AttentionPaths


def head_scores(
    overlap: Float[Array, "row row"] | Float[np.ndarray, "row row"], paths: AttentionPaths
) -> Float[np.ndarray, "layer head"]:
    """Share of |U_1| carried by the paths through each head, relative to the largest share.

    s(l, h) = Σ |U_1^{ππ'}| over entries whose row path or column path uses head h of layer l,
    divided by the largest over all heads of all layers; NaN where a layer has fewer heads. With
    several outputs the blocks of one path pair are added up. Source: arXiv 2405.15926, head score.
    """
    size = np.asarray(overlap)
    outputs = size.shape[0] // paths.count
    size = np.abs(size).reshape(paths.count, outputs, paths.count, outputs).sum(axis=(1, 3))
    scores = np.full((len(paths.heads), max(paths.heads)), np.nan)
    for layer, heads in enumerate(paths.heads):
        for head in range(heads):
            uses = paths.uses(layer, head)
            scores[layer, head] = size[uses[:, None] | uses[None, :]].sum()
    return scores / np.nanmax(scores)
