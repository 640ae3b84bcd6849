"""Attention paths: one head per layer, in the only order this project knows."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Shaped


@dataclass(frozen=True)
class AttentionPaths:
    """All attention paths π = (h_1 … h_L); flat order: h_1 slowest, h_L fastest."""

    heads: tuple[int, ...]

    @property
    def count(self) -> int:
        """Π = H_1 ··· H_L."""
        return math.prod(self.heads)

    @property
    def indices(self) -> Int[np.ndarray, "path layer"]:
        """Head index of every path in every layer."""
        return np.array(list(itertools.product(*(range(h) for h in self.heads))), dtype=int)

    def flat(self, path: Sequence[int]) -> int:
        """Position of one path (h_1 … h_L) in the flat order.

        Raises IndexError when a head index does not exist in its layer.
        """
        if len(path) != len(self.heads):
            raise IndexError(f"path {tuple(path)}: needs {len(self.heads)} heads, one per layer")
        for layer, (head, count) in enumerate(zip(path, self.heads, strict=True), start=1):
            if not 0 <= head < count:
                raise IndexError(f"path {tuple(path)}: layer {layer} has heads 0 … {count - 1}")
        return int(np.ravel_multi_index(tuple(path), self.heads))

    def uses(self, layer: int, head: int) -> Bool[np.ndarray, " path"]:
        """Which paths pass through `head` of `layer` (both counted from 0)."""
        return self.indices[:, layer] == head

    def subset(self, kept: Sequence[Sequence[int]]) -> Int[np.ndarray, " kept_path"]:
        """Flat positions of the paths whose heads are all kept, in the order of the kept heads.

        `kept` lists head indices per layer. Raises IndexError for a head that does not exist.
        """
        return np.array([self.flat(path) for path in itertools.product(*kept)], dtype=int)

    def unfold(
        self, per_path: Shaped[np.ndarray, "..."], axis: int = 0
    ) -> Shaped[np.ndarray, "..."]:
        """Split a flat path axis, the one numbered `axis`, into one axis per layer."""
        shape = per_path.shape
        return per_path.reshape(*shape[:axis], *self.heads, *shape[axis + 1 :])

    def fold(self, per_head: Shaped[np.ndarray, "..."], axis: int = 0) -> Shaped[np.ndarray, "..."]:
        """Join one axis per layer, starting at `axis`, into the flat path axis."""
        shape = per_head.shape
        return per_head.reshape(*shape[:axis], self.count, *shape[axis + len(self.heads) :])
