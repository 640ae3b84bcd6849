"""Sources of drawings: digits, images in files, Omniglot; and their splits by character."""

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy.lib.npyio import NpzFile

from sampler.errors import ABSENT, InputError, Part, Setting
from sampler.images.drawings import (
    Drawings,
    resize,
    select_characters,
    sort_drawings,
    with_rotations,
)
from sampler.images.omniglot import ARCHIVE, ARCHIVES, URL, download_omniglot, read_omniglot
from sampler.runtime import stream
from sampler.settings.training import SIDE, ImageSection
from sampler.storage.files import REQUIRED_ARRAY, open_npz, read_array

SPLITS = ("train", "validation", "test")
# An episode takes two characters, and two drawings of the one that is asked for.
FEWEST_CHARACTERS, FEWEST_DRAWINGS = 2, 2
# First entry of the spawn key.
SPLIT_STREAM = 0


@dataclass(frozen=True)
class CharacterSplits:
    """The drawings of each split."""

    train: Drawings
    validation: Drawings
    test: Drawings

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of every image, in their order."""
        checksum = hashlib.sha256()
        for drawings in (self.train, self.validation, self.test):
            checksum.update(repr((drawings.images.shape, drawings.counts.tolist())).encode())
            checksum.update(np.ascontiguousarray(drawings.images).data)
        return checksum.hexdigest()


def split_characters(drawings: Drawings, settings: ImageSection) -> CharacterSplits:
    """Split by the names the settings list, and at random where they list none.

    With `rotations` every training character counts four times, the other splits stay upright.
    Raises InputError for a name that is unknown or in two splits, and for too few characters or
    drawings.
    """
    check_drawings(drawings)
    chosen = choose_characters(drawings.names, settings)
    for split in SPLITS:
        refuse_too_few(drawings, chosen[split], f"characters_{split}")
    train, validation, test = (select_characters(drawings, chosen[split]) for split in SPLITS)
    return CharacterSplits(with_rotations(train) if settings.rotations else train, validation, test)


def check_drawings(drawings: Drawings) -> None:
    """Raise InputError if a character has too few drawings for an episode."""
    for name, count in zip(drawings.names, drawings.counts, strict=True):
        if count < FEWEST_DRAWINGS:
            remedy = f"give each character at least {FEWEST_DRAWINGS}, or leave it out"
            raise InputError(Setting("task", "images"), f"{count} drawing of {name}", remedy)


def choose_characters(names: Sequence[str], settings: ImageSection) -> dict[str, list[int]]:
    """Positions of the characters of each split, in the order of the names."""
    listed = {
        split: find_listed(names, getattr(settings, f"characters_{split}"), f"characters_{split}")
        for split in SPLITS
    }
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        both = sorted(set(listed[one]) & set(listed[other]))
        if both:
            here, there = (Setting("task", f"characters_{split}") for split in (other, one))
            remedy = "these are in {} too; a character has one split"
            raise InputError(here, [names[c] for c in both], remedy, there)
    taken = set().union(*listed.values())
    free = [c for c in range(len(names)) if c not in taken]
    free = [free[i] for i in stream(settings.seed, SPLIT_STREAM).permutation(len(free))]
    for split in ("test", "validation"):
        if not listed[split]:
            fraction = getattr(settings, f"fraction_{split}")
            count = max(FEWEST_CHARACTERS, round(fraction * len(names)))
            listed[split], free = sorted(free[:count]), free[count:]
    if not listed["train"]:
        listed["train"] = sorted(free)
    return listed


def named_characters(drawings: Drawings, listed: Sequence[str], key: str) -> Drawings:
    """The drawings of listed characters alone; InputError if one is unknown, or all are too few."""
    found = find_listed(drawings.names, listed, key)
    refuse_too_few(drawings, found, key)
    return select_characters(drawings, found)


def refuse_too_few(drawings: Drawings, chosen: Sequence[int], key: str) -> None:
    """Raise InputError if these characters do not make an episode."""
    if len(chosen) < FEWEST_CHARACTERS:
        remedy = (
            f"this split needs at least {FEWEST_CHARACTERS} of the {drawings.characters} "
            "characters; name more, or change the fractions"
        )
        raise InputError(Setting("task", key), [drawings.names[c] for c in chosen], remedy)


def find_listed(names: Sequence[str], listed: Sequence[str], key: str) -> list[int]:
    """Positions of the characters that a list names, itself or by its group."""
    found = set()
    for wanted in listed:
        matches = [c for c, name in enumerate(names) if f"{name}/".startswith(f"{wanted}/")]
        if not matches:
            groups = sorted({name.split("/")[0] for name in names})
            raise InputError(Setting("task", key), wanted, f"is not among {', '.join(groups)}")
        found.update(matches)
    return sorted(found)


def refuse_shared_drawings(one: Drawings, other: Drawings, field: Part, value: str) -> None:
    """Raise InputError if the same drawing is in both, pixel for pixel."""

    def prints(drawings: Drawings) -> set[bytes]:
        return {np.ascontiguousarray(image).tobytes() for image in drawings.images}

    shared = len(prints(one) & prints(other))
    if shared:
        remedy = f"{shared} of its drawings are among those of training; use other ones"
        raise InputError(field, value, remedy)


def read_drawings(settings: ImageSection) -> Drawings:
    """The drawings a recipe asks for. Raises InputError where they cannot be had."""
    if settings.images == "digits":
        from sklearn.datasets import load_digits  # only here: it takes a second

        digits = load_digits()
        images = resize(digits.images / 16.0, SIDE)
        return sort_drawings(images, [str(digit) for digit in digits.target])
    if settings.images != "omniglot":
        path = Path(settings.images)
        return read_labelled_images(path) if path.suffix == ".npz" else read_idx_images(path)
    folder = omniglot_folder(settings)
    if settings.download:
        there = tuple(name for name in ARCHIVES if (folder / name).is_file())
        small_sets = ARCHIVES[2:]
        names = (*(settings.archives or there or small_sets), ARCHIVE)
        download_omniglot(folder, names, settings.url or URL)
    return read_omniglot(folder, settings.archives)


def omniglot_folder(settings: ImageSection) -> Path:
    """The folder of the zip files. Raises InputError if the recipe names none."""
    if settings.folder is None:
        remedy = "name the folder of Omniglot's zip files, or one to fetch them to"
        raise InputError(Setting("task", "folder"), ABSENT, remedy)
    return Path(settings.folder)


def read_labelled_images(path: Path) -> Drawings:
    """Images from an .npz file, any size, the label of an image being its character.

    images  [drawing, row, column], ink bright: booleans, whole numbers 0 … 255, or 0.0 … 1.0
    labels  [drawing], whole numbers or text

    Raises InputError for a file or an array that cannot be used.
    """
    with open_npz(path, Setting("task", "images")) as stored:
        images, labels = (required_array(stored, key) for key in ("images", "labels"))
    if labels.ndim != 1 or labels.dtype.kind not in "iuU" or images.shape[:1] != labels.shape:
        remedy = f"give a whole number or a word for each of the {len(images)} images"
        raise InputError("labels", f"{labels.dtype} {labels.shape}", remedy)
    return sort_drawings(resize(brightness(images), SIDE), [str(label) for label in labels])


IMAGES_PART, LABELS_PART = "images-idx3-ubyte", "labels-idx1-ubyte"


def read_idx_images(path: Path) -> Drawings:
    """Images in the format of MNIST, IDX, bright on dark, the class of an image its character.

    The labels lie beside them: `t10k-labels-idx1-ubyte` beside `t10k-images-idx3-ubyte`, both with
    .gz at the end or without it. Raises InputError for files that cannot be used.
    """
    if IMAGES_PART not in path.name:
        raise InputError(Setting("task", "images"), path, f"the name must contain {IMAGES_PART}")
    images = read_idx(path, dimensions=3)
    beside = path.with_name(path.name.replace(IMAGES_PART, LABELS_PART))
    labels = read_idx(beside, dimensions=1)
    if len(images) != len(labels):
        remedy = f"these are labels of {len(labels)} images, not of {len(images)}"
        raise InputError(Setting("task", "images"), beside, remedy)
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
        raise InputError(Setting("task", "images"), path, remedy) from None
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(Setting("task", "images"), path, f"{reason}; fetch it again") from None
    start = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < start:
        remedy = f"is no IDX file of bytes with {dimensions} axes; name one"
        raise InputError(Setting("task", "images"), path, remedy)
    shape = np.frombuffer(content, ">u4", dimensions, offset=4).astype(int)
    if len(content) != start + shape.prod():
        remedy = f"holds {len(content) - start} values of {shape.prod()}; fetch it again"
        raise InputError(Setting("task", "images"), path, remedy)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def required_array(stored: NpzFile, key: str) -> np.ndarray:
    if key not in stored.files:
        raise InputError(key, ABSENT, "{}", REQUIRED_ARRAY)
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
