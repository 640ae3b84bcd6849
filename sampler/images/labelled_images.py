"""Labelled images: scikit-learn's digits, and arrays brought by the user."""

from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from sampler.errors import ABSENT, InputError
from sampler.images.drawings import Drawings, sort_drawings
from sampler.images.resize import resize
from sampler.recipes.episode_tokens import SIDE
from sampler.storage.npz_file import open_npz, read_array


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
