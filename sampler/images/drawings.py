"""Drawings of characters: what every source of images becomes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int


@dataclass(frozen=True)
class Drawings:
    """Images of 32 × 32 pixels, ink 1 on 0, sorted by character.

    images  [drawing, row, column]
    names   one per character; a group comes first, as in "Greek/character01"
    counts  [character], how many drawings each has
    """

    images: Float32[np.ndarray, "drawing row column"]
    names: tuple[str, ...]
    counts: Int[np.ndarray, " character"]

    @property
    def characters(self) -> int:
        return len(self.names)

    @property
    def first(self) -> Int[np.ndarray, " character"]:
        """Where the drawings of each character begin."""
        return np.cumsum(self.counts) - self.counts


def sort_drawings(
    images: Float32[np.ndarray, "drawing row column"], labels: Sequence[str]
) -> Drawings:
    """Drawings from images in any order, each with the name of its character."""
    names, index = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    order = np.argsort(index, kind="stable")
    counts = np.bincount(index, minlength=names.size)
    return Drawings(images[order], tuple(map(str, names)), counts)


def select_characters(drawings: Drawings, chosen: Sequence[int]) -> Drawings:
    """The drawings of some characters, in the order given."""
    first, counts = drawings.first, drawings.counts
    rows = [np.arange(first[c], first[c] + counts[c]) for c in chosen]
    return Drawings(
        drawings.images[np.concatenate(rows)],
        tuple(drawings.names[c] for c in chosen),
        counts[list(chosen)],
    )


def with_rotations(drawings: Drawings) -> Drawings:
    """Every character four times: upright, and turned by 90°, 180° and 270° as new characters."""
    turned = [np.rot90(drawings.images, turns, axes=(1, 2)) for turns in range(4)]
    suffixes = ("", " 90°", " 180°", " 270°")
    return Drawings(
        np.concatenate(turned),
        tuple(f"{name}{suffix}" for suffix in suffixes for name in drawings.names),
        np.tile(drawings.counts, 4),
    )
