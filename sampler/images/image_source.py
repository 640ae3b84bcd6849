"""From the settings of a training recipe to drawings."""

import hashlib
from pathlib import Path

import numpy as np

from sampler.errors import ABSENT, InputError
from sampler.images.all_runs import ARCHIVE
from sampler.images.character_splits import CharacterSplits
from sampler.images.drawings import Drawings
from sampler.images.labelled_images import read_digits, read_labelled_images
from sampler.images.omniglot import ARCHIVES, read_omniglot
from sampler.images.omniglot_download import URL, download_omniglot
from sampler.recipes.image_section import ImageSection

SMALL_SETS = ("images_background_small1.zip", "images_background_small2.zip")


def read_drawings(settings: ImageSection) -> Drawings:
    """The drawings a recipe asks for. Raises InputError where they cannot be had."""
    if settings.images == "digits":
        return read_digits()
    if settings.images != "omniglot":
        return read_labelled_images(Path(settings.images))
    folder = omniglot_folder(settings)
    if settings.download:
        there = tuple(name for name in ARCHIVES if (folder / name).is_file())
        names = (*(settings.archives or there or SMALL_SETS), ARCHIVE)
        download_omniglot(folder, names, settings.url or URL)
    return read_omniglot(folder, settings.archives)


def omniglot_folder(settings: ImageSection) -> Path:
    """The folder of the zip files. Raises InputError if the recipe names none."""
    if settings.folder is None:
        raise InputError(
            "task.folder",
            ABSENT,
            "name the folder of Omniglot's zip files, or one to fetch them to",
        )
    return Path(settings.folder)


def images_checksum(splits: CharacterSplits) -> str:
    """SHA-256 of every image of the splits, in their order."""
    checksum = hashlib.sha256()
    for drawings in (splits.train, splits.validation, splits.test):
        checksum.update(repr((drawings.images.shape, drawings.counts.tolist())).encode())
        checksum.update(np.ascontiguousarray(drawings.images).data)
    return checksum.hexdigest()
