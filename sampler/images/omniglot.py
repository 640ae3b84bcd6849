"""Omniglot: characters of many alphabets, each drawn by 20 people (Lake et al. 2015).

The official archives hold `<archive>/<alphabet>/characterNN/NNNN_NN.png`, 105 × 105 pixels, black
ink on white.
"""

import re
import zipfile
from pathlib import Path

import numpy as np

from sampler.errors import InputError
from sampler.images.drawings import Drawings, sort_drawings
from sampler.images.image_archive import member, open_archive, read_ink
from sampler.images.resize import resize
from sampler.recipes.episode_tokens import SIDE

ARCHIVES = (
    "images_background.zip",
    "images_evaluation.zip",
    "images_background_small1.zip",
    "images_background_small2.zip",
)
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
                raise InputError(
                    path.name, str(path.parent), "holds no drawings; fetch the official file"
                )
    keys = sorted(found)
    ink = np.stack([found[key] for key in keys])
    images = np.concatenate(
        # A few at a time: as floating-point numbers all of them would take gigabytes.
        [
            resize(ink[start : start + 1000].astype(np.float64), SIDE)
            for start in range(0, len(keys), 1000)
        ]
    )
    return sort_drawings(images, [character for character, _ in keys])


def add_drawings(archive: zipfile.ZipFile, found: dict[tuple[str, str], np.ndarray]) -> None:
    """Add what is new by its character and drawing; an equal name has to be an equal drawing."""
    for name in archive.namelist():
        match = MEMBER.fullmatch(name)
        if match is None:
            continue
        key = (match["character"], match["drawing"])
        ink = read_ink(archive, name, SOURCE_SIDE)
        if key in found and not np.array_equal(found[key], ink):
            raise InputError(
                member(archive, name),
                key[0],
                "is another drawing in another archive; use official files only",
            )
        found[key] = ink


def archive_paths(folder: Path, wanted: tuple[str, ...]) -> list[Path]:
    """The archives to read. Raises InputError, saying what is missing."""
    if not folder.is_dir():
        raise InputError(
            "task.folder",
            str(folder),
            "is no folder; name the one that holds Omniglot's zip files, or set task.download",
        )
    paths = [folder / name for name in wanted or ARCHIVES]
    there = [path for path in paths if path.is_file()]
    if not there or (wanted and len(there) < len(paths)):
        absent = ", ".join(path.name for path in paths if path not in there)
        raise InputError(
            "task.folder",
            str(folder),
            f"holds no {absent}; put {'it' if wanted else 'one of them'} there, or set "
            "task.download",
        )
    return there
