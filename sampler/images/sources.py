"""Where drawings come from, and how characters are split."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sampler.errors import ABSENT, InputError
from sampler.images.drawings import (
    Drawings,
    read_digits,
    read_idx_images,
    read_labelled_images,
    select_characters,
    with_rotations,
)
from sampler.images.omniglot import ARCHIVE, ARCHIVES, URL, download_omniglot, read_omniglot
from sampler.numerics import stream
from sampler.recipes.training_recipe import ImageSection

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
            raise InputError(
                "task.images",
                f"{count} drawing of {name}",
                f"give each character at least {FEWEST_DRAWINGS}, or leave it out",
            )


def choose_characters(names: Sequence[str], settings: ImageSection) -> dict[str, list[int]]:
    """Positions of the characters of each split, in the order of the names."""
    listed = {
        split: find_listed(names, getattr(settings, f"characters_{split}"), f"characters_{split}")
        for split in SPLITS
    }
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        both = sorted(set(listed[one]) & set(listed[other]))
        if both:
            raise InputError(
                f"task.characters_{other}",
                [names[c] for c in both],
                f"these are in task.characters_{one} too; a character has one split",
            )
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
        raise InputError(
            f"task.{key}",
            [drawings.names[c] for c in chosen],
            f"this split needs at least {FEWEST_CHARACTERS} of the {drawings.characters} "
            "characters; name more, or change the fractions",
        )


def find_listed(names: Sequence[str], listed: Sequence[str], key: str) -> list[int]:
    """Positions of the characters that a list names, itself or by its group."""
    found = set()
    for wanted in listed:
        matches = [c for c, name in enumerate(names) if f"{name}/".startswith(f"{wanted}/")]
        if not matches:
            groups = sorted({name.split("/")[0] for name in names})
            raise InputError(f"task.{key}", wanted, f"is not among {', '.join(groups)}")
        found.update(matches)
    return sorted(found)


def refuse_shared_drawings(one: Drawings, other: Drawings, field: str, value: str) -> None:
    """Raise InputError if the same drawing is in both, pixel for pixel."""

    def prints(drawings: Drawings) -> set[bytes]:
        return {np.ascontiguousarray(image).tobytes() for image in drawings.images}

    shared = len(prints(one) & prints(other))
    if shared:
        raise InputError(
            field, value, f"{shared} of its drawings are among those of training; use other ones"
        )


def read_drawings(settings: ImageSection) -> Drawings:
    """The drawings a recipe asks for. Raises InputError where they cannot be had."""
    if settings.images == "digits":
        return read_digits()
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
        raise InputError(
            "task.folder",
            ABSENT,
            "name the folder of Omniglot's zip files, or one to fetch them to",
        )
    return Path(settings.folder)
