"""Omniglot: archives, characters, download, and the ready-made one-shot runs.

The official archives hold `<archive>/<alphabet>/characterNN/NNNN_NN.png`, 105 × 105 pixels, black
ink on white. Each one-shot run has one drawing of each of 20 characters of one alphabet, and 20
drawings to classify.
"""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import numpy as np
from jaxtyping import Bool

from sampler.errors import ABSENT, InputError, Setting, Verbatim
from sampler.images.drawings import (
    CLASSES,
    Drawings,
    Examples,
    make_episodes,
    resize,
    sort_drawings,
)
from sampler.settings.training import SIDE, OmniglotFile

DOWNLOAD = Setting("task", "download")
UNREADABLE = (
    OSError, EOFError, ValueError, SyntaxError, NotImplementedError, RuntimeError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file. Raises InputError where there is none, or where it is cut short."""
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(path.name, path.parent, f"{reason}; fetch this file again") from None
    with archive:
        yield archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member. Raises InputError if it does not have the checksum stored for it."""
    try:
        return archive.read(name)
    except KeyError:
        raise InputError(member(archive, name), ABSENT, "fetch the file again") from None
    except UNREADABLE as problem:
        raise unusable(archive, name, problem) from None


def read_ink(archive: zipfile.ZipFile, name: str, side: int) -> Bool[np.ndarray, "row column"]:
    """Read a black-and-white image of side × side pixels: true where it has ink, which is black.

    Raises InputError for an image that cannot be decoded, or of another size.
    """
    from PIL import Image  # only here: other tasks need no images

    content = read_member(archive, name)
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.size != (side, side):
                width, height = image.size
                remedy = f"must have {side} × {side}; fetch the file again"
                raise InputError(member(archive, name), f"{width} × {height} pixels", remedy)
            return np.asarray(image.convert("L")) < 128
    except (*UNREADABLE, Image.DecompressionBombError) as problem:
        raise unusable(archive, name, problem) from None


def member(archive: zipfile.ZipFile, name: str) -> str:
    """An image and the file it is in, for errors."""
    return f"{Path(str(archive.filename)).name}/{name}"


def unusable(archive: zipfile.ZipFile, name: str, problem: Exception) -> InputError:
    """Make the error for a member that cannot be read."""
    return InputError(
        member(archive, name), Verbatim("(unreadable)"), f"{problem}; fetch the file again"
    )


ARCHIVES: tuple[str, ...] = get_args(OmniglotFile)
SOURCE_SIDE = 105
MEMBER = re.compile(r"[^/]+/(?P<character>[^/]+/character\d+)/(?P<drawing>\d+_\d+)\.png")


def read_omniglot(folder: Path, wanted: tuple[str, ...] = ()) -> Drawings:
    """The union of the archives in a folder; what is in several of them is taken once.

    `wanted` names the archives to use; without it all that are there are used. Raises InputError
    for a missing folder or archive and for an image that cannot be used.
    """
    found: dict[tuple[str, str], np.ndarray] = {}
    for path in archive_paths(folder, wanted):
        with open_archive(path) as archive:
            before = len(found)
            add_drawings(archive, found)
            if len(found) == before and not any(map(MEMBER.fullmatch, archive.namelist())):
                remedy = "holds no drawings; fetch the official file"
                raise InputError(path.name, path.parent, remedy)
    keys = sorted(found)
    # A few at a time: as floating-point numbers all of them would take gigabytes.
    pieces = []
    for start in range(0, len(keys), 1000):
        ink = np.stack([found[key] for key in keys[start : start + 1000]])
        pieces.append(resize(ink.astype(np.float64), SIDE))
    return sort_drawings(np.concatenate(pieces), [character for character, _ in keys])


def add_drawings(archive: zipfile.ZipFile, found: dict[tuple[str, str], np.ndarray]) -> None:
    """Add what is new by its character and drawing; an equal name has to be an equal drawing."""
    for name in archive.namelist():
        match = MEMBER.fullmatch(name)
        if match is None:
            continue
        key = (match["character"], match["drawing"])
        ink = read_ink(archive, name, SOURCE_SIDE)
        if key in found and not np.array_equal(found[key], ink):
            remedy = "is another drawing in another archive; use official files only"
            raise InputError(member(archive, name), key[0], remedy)
        found[key] = ink


def archive_paths(folder: Path, wanted: tuple[str, ...]) -> list[Path]:
    """The archives to read. Raises InputError, saying what is missing."""
    if not folder.is_dir():
        remedy = "is no folder; name the one that holds Omniglot's zip files, or set {}"
        raise InputError(Setting("task", "folder"), folder, remedy, DOWNLOAD)
    paths = [folder / name for name in wanted or ARCHIVES]
    there = [path for path in paths if path.is_file()]
    if not there or (wanted and len(there) < len(paths)):
        absent = ", ".join(path.name for path in paths if path not in there)
        remedy = f"holds no {absent}; put {'it' if wanted else 'one of them'} there, or set {{}}"
        raise InputError(Setting("task", "folder"), folder, remedy, DOWNLOAD)
    return there


URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
CHECKSUMS: Mapping[str, str] = MappingProxyType(
    {
        "images_background.zip": "md5:68d2efa1b9178cc56df9314c21c6e718",
        "images_evaluation.zip": "md5:6b91aef0f799c5bb55b94e3f2daec811",
        "images_background_small1.zip": "sha256:"
        "f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4",
        "images_background_small2.zip": "sha256:"
        "3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f",
        "all_runs.zip": "sha256:437c1eeab0af8484112e1b4cc0f3d541ec727f7c47b9b202da738af9dfd6c325",
    }
)


def download_omniglot(
    folder: Path, names: tuple[str, ...], url: str = URL, checksums: Mapping[str, str] = CHECKSUMS
) -> None:
    """Put these files into a folder; those that are there and intact are left alone.

    Raises InputError where a file cannot be fetched, written, or has another checksum.
    """
    import pooch  # only here: whoever has the files needs no network

    pooch.get_logger().setLevel("WARNING")
    base = url if url.endswith("/") else f"{url}/"
    keeper = pooch.create(path=folder, base_url=base, registry=dict(checksums))
    for name in names:
        try:
            keeper.fetch(name)
        # The libraries beneath raise OSError for what the network does, ValueError for a checksum
        # or an address.
        except (OSError, ValueError) as problem:
            remedy = (
                f"cannot be fetched ({problem}); put the file into {folder} yourself, or use "
                'images = "digits"'
            )
            raise InputError(DOWNLOAD, f"{base}{name}", remedy) from None


ARCHIVE = "all_runs.zip"
RUNS, CHARACTERS = 20, 20
# All pairs of a drawing to classify and a character of its run that is not its own.
RUN_EPISODES = RUNS * CHARACTERS * (CHARACTERS - 1)


def read_all_runs(
    folder: Path, examples: int, generator: np.random.Generator
) -> tuple[Drawings, Examples]:
    """Drawings of all runs, and episodes of two characters of the same run, none of them twice.

    A drawing to classify, its own character and any other one of its run make an episode: 7,600 in
    all, of which `examples` are drawn, with the supports in random order and randomly labelled.
    Raises InputError for a file that cannot be used, or if more episodes are asked for.
    """
    with open_archive(folder / ARCHIVE) as archive:
        pairs = [read_pairs(archive, f"run{run:02d}") for run in range(1, RUNS + 1)]
        names = list(dict.fromkeys(name for run in pairs for pair in run for name in pair))
        ink = np.stack([read_ink(archive, name, SOURCE_SIDE) for name in names])
    place = {name: row for row, name in enumerate(names)}
    candidates = np.array(
        [
            (place[item], place[own], place[other])
            for run in pairs
            for item, own in run
            for _, other in run
            if other != own
        ]
    )
    if examples > len(candidates):
        remedy = f"{ARCHIVE} has {len(candidates)} episodes; use fewer"
        raise InputError(Setting("task", "examples_test"), examples, remedy)
    items, own, other = candidates[generator.permutation(len(candidates))[:examples]].T
    asked = generator.integers(2, size=examples)
    label = generator.integers(CLASSES, size=examples)
    supports = np.where(asked[:, None] == np.arange(2), own[:, None], other[:, None])
    # Which character a drawing is of does not matter here: the episodes are there already.
    drawings = Drawings(resize(ink.astype(np.float64), SIDE), (ARCHIVE,), np.array([len(names)]))
    return drawings, make_episodes(supports, items, label, asked)


def read_pairs(archive: zipfile.ZipFile, run: str) -> list[tuple[str, str]]:
    """Members of one run: each drawing to classify with the drawing of its character."""
    name = f"{run}/class_labels.txt"
    lines = read_member(archive, name).decode("ascii", errors="replace").split("\n")
    pairs = [tuple(line.split()) for line in lines if line.strip()]
    if len({pair[-1] for pair in pairs}) != CHARACTERS or any(len(pair) != 2 for pair in pairs):
        remedy = f"must list {CHARACTERS} pairs of drawings"
        raise InputError(f"{ARCHIVE}/{name}", f"{len(pairs)} pairs", remedy)
    return [(item, own) for item, own in pairs]
