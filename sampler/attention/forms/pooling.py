"""Pooling matrices P [pooled, token], whose rows sum to 1, and P x without the matrix."""

from typing import Any, Literal

import numpy as np
from jaxtyping import Float

Pooling = Literal["average", "stride", "block"]


def pooling_matrix(
    pooling: Pooling, tokens: int, scale: int, grid: tuple[int, int] | None = None
) -> Float[np.ndarray, "pooled token"]:
    """Averages over `scale` neighbours, every `scale`-th token, or averages over square blocks.

    `grid` gives rows and columns of the patches of one image; several images may follow each other.
    A last group that is not full is left out. Raises ValueError if a scale does not fit.
    """
    if not 1 <= scale <= tokens:
        raise ValueError(f"scale = {scale}: use 1 to {tokens}, the number of tokens")
    if pooling == "block":
        return block_matrix(tokens, scale, grid)
    pooled = tokens // scale
    groups = np.zeros((pooled, tokens))
    for group in range(pooled):
        if pooling == "stride":
            groups[group, group * scale] = 1.0
        else:
            groups[group, group * scale : (group + 1) * scale] = 1.0 / scale
    return groups


def block_matrix(
    tokens: int, scale: int, grid: tuple[int, int] | None
) -> Float[np.ndarray, "pooled token"]:
    """Averages over scale × scale blocks of the patch grid of each image."""
    if grid is None:
        raise ValueError('grid = None: pooling = "block" needs the rows and columns of patches')
    rows, columns = grid
    if tokens % (rows * columns):
        raise ValueError(f"grid = {list(grid)}: {tokens} tokens are no whole number of such grids")
    if scale > min(grid) or rows % scale or columns % scale:
        raise ValueError(f"scale = {scale}: must divide the rows and columns of grid {list(grid)}")
    one = np.kron(pooling_matrix("average", rows, scale), pooling_matrix("average", columns, scale))
    return np.kron(np.eye(tokens // (rows * columns)), one)


def pool(values: Any, pooling: Pooling, scale: int, grid: tuple[int, int] | None = None) -> Any:
    """P x of values x [*axes, token, channel] of NumPy or JAX, in additions alone.

    The pooling must fit the tokens: see `pooling_matrix`.
    """
    xp = values.__array_namespace__()
    *axes, tokens, channels = values.shape
    if pooling == "block":
        rows, columns = grid
        blocks = (rows // scale, scale, columns // scale, scale)
        split = xp.reshape(values, (*axes, tokens // (rows * columns), *blocks, channels))
        return xp.reshape(xp.mean(split, axis=(-4, -2)), (*axes, -1, channels))
    kept = tokens // scale * scale
    if pooling == "stride":
        return values[..., :kept:scale, :]
    split = xp.reshape(values[..., :kept, :], (*axes, tokens // scale, scale, channels))
    return xp.mean(split, axis=-2)
