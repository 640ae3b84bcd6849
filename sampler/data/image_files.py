"""Images of characters from files: NumPy's, those of MNIST, and the zip files of Omniglot.

The official archives of Omniglot hold `<archive>/<alphabet>/characterNN/NNNN_NN.png`, 105 × 105
pixels, black ink on white.
"""

import gzip
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt8

from sampler.data.array_files import REQUIRED_ARRAY, open_npz, read_array
from sampler.errors import ABSENT, InputError

SIDE = 32  # pixels of an image
SMALL_SETS = "images_background_small1.zip", "images_background_small2.zip"
ARCHIVES = "images_background.zip", "images_evaluation.zip", *SMALL_SETS
SOURCE_SIDE = 105
MEMBER = re.compile(r"[^/]+/(?P<character>[^/]+/character\d+)/(?P<drawing>\d+_\d+)\.png")
URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
CHECKSUMS: Mapping[str, str] = MappingProxyType(
    {
        SMALL_SETS[0]: "sha256:f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4",
        SMALL_SETS[1]: "sha256:3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f",
    }
)
IMAGES, DOWNLOAD = "task.images", "task.download"
# What zip files and images raise that are cut short, damaged, or none.
UNREADABLE = (
    OSError, EOFError, KeyError, ValueError, SyntaxError, NotImplementedError, RuntimeError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
IMAGES_PART, LABELS_PART = "images-idx3-ubyte", "labels-idx1-ubyte"


# --- drawings


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


# --- NumPy's files, and those of MNIST


def read_labelled_images(path: Path) -> Drawings:
    """Images from a file, any size, the label of an image being its character."""
    images, labels = read_images_and_labels(path)
    return sort_drawings(resize(images, SIDE), labels)


def read_images_and_labels(
    path: Path,
) -> tuple[Float[np.ndarray, "drawing row column"], list[str]]:
    """Read images from 0 to 1, and their labels, from a file of one of two formats.

    An .npz file has, of each image,

    images  [drawing, row, column], ink bright: booleans, whole numbers 0 … 255, or 0.0 … 1.0
    labels  [drawing], whole numbers or text

    Files in the format of MNIST have it in two: `t10k-labels-idx1-ubyte` lies beside
    `t10k-images-idx3-ubyte`, both with .gz at the end or without it. Raises InputError for files
    and arrays that cannot be used.
    """
    if path.suffix == ".npz":
        with open_npz(path, IMAGES) as stored:
            for key in ("images", "labels"):
                if key not in stored.files:
                    raise InputError(key, ABSENT, REQUIRED_ARRAY)
            images, labels = (
                np.atleast_1d(read_array(stored, key, "store a plain array again"))
                for key in ("images", "labels")
            )
    else:
        images = read_idx(path, dimensions=3)
        beside = path.with_name(path.name.replace(IMAGES_PART, LABELS_PART))
        labels = read_idx(beside, dimensions=1)
    if labels.ndim != 1 or labels.dtype.kind not in "iuU" or images.shape[:1] != labels.shape:
        remedy = f"give a whole number or a word for each of the {len(images)} images"
        raise InputError("labels", f"{labels.dtype} {labels.shape}", remedy)
    return brightness(images), [str(label) for label in labels]


def read_idx(path: Path, dimensions: int) -> UInt8[np.ndarray, "..."]:
    """The bytes of an IDX file: 0, 0, 8 and the number of axes, their sizes, then the values."""
    start = 4 + 4 * dimensions
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
        if content[:4] != bytes([0, 0, 8, dimensions]):
            raise ValueError(f"is no IDX file of bytes with {dimensions} axes")
        shape = np.frombuffer(content, ">u4", dimensions, offset=4).astype(int)
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except UNREADABLE as problem:
        remedy = (
            f"{problem}; name a whole file, …{IMAGES_PART}, with that of labels beside it, such as "
            "of Debian's dataset-fashion-mnist in /usr/share/datasets/fashion-mnist"
        )
        raise InputError(IMAGES, path, remedy) from None


def brightness(images: np.ndarray) -> Float[np.ndarray, "drawing row column"]:
    """Images as numbers from 0 to 1; InputError for other arrays."""
    largest = {"b": 1.0, "u": 255.0, "i": 255.0, "f": 1.0}.get(images.dtype.kind)
    if largest is not None and images.ndim == 3 and images.size:
        values = images.astype(np.float64) / largest
        if ((values >= 0.0) & (values <= 1.0)).all():
            return values
    remedy = "must be [drawing, row, column] of booleans, whole numbers 0 … 255, or 0.0 … 1.0"
    raise InputError("images", f"{images.dtype} {images.shape}", remedy)


# --- Omniglot


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file. Raises InputError where it or its contents cannot be used."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except InputError:
        raise
    except UNREADABLE as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(path.name, path.parent, f"{reason}; fetch this file again") from None


def read_ink(archive: zipfile.ZipFile, name: str) -> Bool[np.ndarray, "row column"]:
    """A black-and-white image of Omniglot: true where it has ink, which is black."""
    from PIL import Image  # only here: other tasks need no images

    with Image.open(io.BytesIO(archive.read(name))) as image:
        if image.size != (SOURCE_SIDE, SOURCE_SIDE):
            raise ValueError(f"{name} has {image.size} pixels")
        return np.asarray(image.convert("L")) < 128


def shrink(ink: Sequence[np.ndarray]) -> Float32[np.ndarray, "drawing row column"]:
    """Black-and-white images as drawings."""
    # A few at a time: as floating-point numbers all of them would take gigabytes.
    pieces = [
        resize(np.stack(ink[start : start + 1000]).astype(np.float64), SIDE)
        for start in range(0, len(ink), 1000)
    ]
    return np.concatenate(pieces)


def read_omniglot(folder: Path) -> Drawings:
    """The union of the archives in a folder, without duplicates.

    Raises InputError where there are none, for an image that cannot be used, and for two drawings
    of one name.
    """
    drawings: dict[tuple[str, str], np.ndarray] = {}
    for path in archive_paths(folder):
        with open_archive(path) as archive:
            members = [match for match in map(MEMBER.fullmatch, archive.namelist()) if match]
            for match in members:
                key = match["character"], match["drawing"]
                ink = read_ink(archive, match[0])
                if not np.array_equal(drawings.setdefault(key, ink), ink):
                    raise ValueError(f"{match[0]} is another drawing in another archive")
            if not members:
                raise ValueError("holds no drawings")
    keys = sorted(drawings)
    images = shrink([drawings[key] for key in keys])
    return sort_drawings(images, [character for character, _ in keys])


def archive_paths(folder: Path) -> list[Path]:
    """The archives that are there. Raises InputError where none is."""
    there = [path for name in ARCHIVES if (path := folder / name).is_file()]
    if not there:
        remedy = f"holds no {', '.join(ARCHIVES)}; put one of them there, or set {DOWNLOAD} = true"
        raise InputError("task.folder", folder, remedy)
    return there


def download_omniglot(
    folder: Path, url: str = URL, checksums: Mapping[str, str] = CHECKSUMS
) -> None:
    """Put the two small sets into a folder; those that are there and intact are left alone.

    Raises InputError where a file cannot be fetched, written, or has another checksum.
    """
    import pooch  # only here: whoever has the files needs no network

    pooch.get_logger().setLevel("WARNING")
    keeper = pooch.create(path=folder, base_url=url, registry=dict(checksums))
    for name in checksums:
        try:
            keeper.fetch(name)
        # The libraries beneath raise OSError for what the network does, ValueError for a checksum
        # or an address.
        except (OSError, ValueError) as problem:
            remedy = f"cannot be fetched ({problem}); put the file into {folder} yourself"
            raise InputError(DOWNLOAD, f"{url}{name}", remedy) from None
