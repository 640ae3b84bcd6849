"""Drawings of characters: sizes, labelled images, selections."""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Int, UInt8
from numpy.lib.npyio import NpzFile

from sampler.errors import ABSENT, InputError
from sampler.recipes.training_recipe import SIDE
from sampler.storage.run_directory import open_npz, read_array


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


def read_digits() -> Drawings:
    """Handwritten digits, 8 × 8 pixels, which come with scikit-learn: ten characters "0" … "9"."""
    from sklearn.datasets import load_digits  # only here: it takes a second

    digits = load_digits()
    images = resize(digits.images / 16.0, SIDE)
    return sort_drawings(images, [str(digit) for digit in digits.target])


def read_labelled_images(path: Path) -> Drawings:
    """Images from an .npz file, any size, the label of an image being its character.

    images  [drawing, row, column], ink bright: booleans, whole numbers 0 … 255, or 0.0 … 1.0
    labels  [drawing], whole numbers or text

    Raises InputError for a file or an array that cannot be used.
    """
    with open_npz(path, "task.images") as stored:
        images, labels = (required_array(stored, key) for key in ("images", "labels"))
    if labels.ndim != 1 or labels.dtype.kind not in "iuU" or images.shape[:1] != labels.shape:
        raise InputError(
            "labels",
            f"{labels.dtype} {labels.shape}",
            f"give a whole number or a word for each of the {len(images)} images",
        )
    return sort_drawings(resize(brightness(images), SIDE), [str(label) for label in labels])


IMAGES_PART, LABELS_PART = "images-idx3-ubyte", "labels-idx1-ubyte"


def read_idx_images(path: Path) -> Drawings:
    """Images in the format of MNIST, IDX, bright on dark, the class of an image its character.

    The labels lie beside them: `t10k-labels-idx1-ubyte` beside `t10k-images-idx3-ubyte`, both with
    .gz at the end or without it. Raises InputError for files that cannot be used.
    """
    if IMAGES_PART not in path.name:
        raise InputError("task.images", path, f"the name must contain {IMAGES_PART}")
    images = read_idx(path, dimensions=3)
    beside = path.with_name(path.name.replace(IMAGES_PART, LABELS_PART))
    labels = read_idx(beside, dimensions=1)
    if len(images) != len(labels):
        remedy = f"these are labels of {len(labels)} images, not of {len(images)}"
        raise InputError("task.images", beside, remedy)
    return sort_drawings(resize(brightness(images), SIDE), [str(label) for label in labels])


def read_idx(path: Path, dimensions: int) -> UInt8[np.ndarray, "..."]:
    """The bytes of an IDX file: 0, 0, 8 and the number of axes, their sizes, then the values."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
    except FileNotFoundError:
        remedy = (
            "is not there; name the file where it is (those of Fashion-MNIST come with Debian's "
            "package dataset-fashion-mnist, in /usr/share/datasets/fashion-mnist)"
        )
        raise InputError("task.images", path, remedy) from None
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError("task.images", path, f"{reason}; fetch it again") from None
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < start:
        remedy = f"is no IDX file of bytes with {dimensions} axes; name one"
        raise InputError("task.images", path, remedy)
    shape = np.frombuffer(content, ">u4", dimensions, offset=4).astype(int)
    if len(content) != start + shape.prod():
        remedy = f"holds {len(content) - start} values of {shape.prod()}; fetch it again"
        raise InputError("task.images", path, remedy)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def required_array(stored: NpzFile, key: str) -> np.ndarray:
    if key not in stored.files:
        raise InputError(key, ABSENT, "this array is required; add it to the .npz file")
    return np.atleast_1d(read_array(stored, key, "store a plain array again"))


def brightness(images: np.ndarray) -> np.ndarray:
    """Images as numbers from 0 to 1, [drawing, row, column]."""
    if images.ndim != 3 or images.size == 0:
        raise InputError("images", images.shape, "the shape must be [drawing, row, column]")
    kind = images.dtype.kind
    if kind not in "buif":
        raise InputError("images", str(images.dtype), "store booleans, whole numbers or floats")
    values = images.astype(np.float64) / (255.0 if kind in "ui" else 1.0)
    outside = ~((values >= 0.0) & (values <= 1.0))
    if outside.any():
        place = tuple(int(index) for index in np.argwhere(outside)[0])
        limits = "0 … 255" if kind in "ui" else "0.0 … 1.0"
        raise InputError(f"images{list(place)}", images[place].item(), f"must lie in {limits}")
    return values
