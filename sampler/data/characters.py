"""Images of characters for one-shot classification, and the characters of each split."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from sampler.data.episodes import GRID, IMAGES, PATCH, PATCHES, TOKENS
from sampler.data.image_files import (
    SIDE,
    Drawings,
    download_omniglot,
    read_labelled_images,
    read_omniglot,
    resize,
    select_characters,
    sort_drawings,
    with_rotations,
)
from sampler.data.labelled_inputs import LearningSizes
from sampler.errors import ABSENT, InputError
from sampler.settings.training import Training, TrainingTask
from sampler.settings.types import IMAGE_FILES, FilePath, Fraction, ImagesOrName, Seed, Switch, Text
from sampler.streams import Stream, stream

# An episode takes two characters, and two drawings of the one that is asked for.
FEWEST_CHARACTERS, FEWEST_DRAWINGS = 2, 2


def source_of(images: str, names: tuple[str, ...]) -> str:
    """Accept a name of images, or the path of a file of images. Raises ValueError for others."""
    if images in names or images.endswith(IMAGE_FILES):
        return images
    known, endings = ", ".join(f'"{name}"' for name in names), ", ".join(IMAGE_FILES)
    raise ValueError(f"use {known}, or the path of a file that ends in {endings}")


class OneShotImages(TrainingTask):
    """One-shot image classification: images, and the characters of each split."""

    of_training: ClassVar = "images"
    tokens: ClassVar = (TOKENS, f"{IMAGES} images of {GRID} × {GRID}")

    kind: Literal["one_shot"] = "one_shot"
    images: ImagesOrName = "digits"
    """The images: "digits", which come with scikit-learn, "omniglot", of all its zip files in
    `folder`, or the path of an .npz file or of the images of MNIST or Fashion-MNIST."""
    folder: FilePath | None = None
    """Folder of Omniglot's files."""
    download: Switch = False
    """Fetch the two small sets of Omniglot where they are missing."""
    characters_train: tuple[Text, ...] = ()
    """Characters, or whole alphabets, to train on; by default all others."""
    characters_validation: tuple[Text, ...] = ()
    """Characters, or whole alphabets, to validate on; by default a fraction of all, by chance."""
    characters_test: tuple[Text, ...] = ()
    """Characters, or whole alphabets, to test on; by default a fraction of all, by chance."""
    fraction_validation: Fraction = 0.15
    """Fraction of the characters to validate on, where none are named."""
    fraction_test: Fraction = 0.3
    """Fraction of the characters to test on, where none are named."""
    rotations: Switch = True
    """Whether every training character counts four times, upright and rotated."""
    channels: Annotated[int, Field(strict=True, ge=1, le=3)] = 1
    """Equal copies of the grey values."""
    seed: Seed = 0
    """Seed of the split of the characters."""

    @field_validator("images")
    @classmethod
    def is_a_source(cls, images):
        return source_of(images, ("digits", "omniglot"))

    @property
    def token_channels(self) -> int:
        """D, the channels of a token: the pixels of a patch, in every colour."""
        return self.channels * PATCH**2

    def read(self, training: Training) -> "CharacterSplits":
        return split_characters(read_drawings(self), self)


def images_of(task: TrainingTask) -> OneShotImages:
    """Settings of the images of a network that was trained on episodes."""
    assert isinstance(task, OneShotImages)
    return task


@dataclass(frozen=True)
class CharacterSplits:
    """The drawings of each split, for tokens with this number of channels."""

    train: Drawings
    validation: Drawings
    test: Drawings
    channels: int

    @property
    def sizes(self) -> LearningSizes:
        splits = {"training": self.train, "validation": self.validation, "test": self.test}
        described = [
            (f"{name}: characters, drawings", f"{part.characters}, {len(part.images)}")
            for name, part in splits.items()
        ]
        numbers = len(self.train.images) * PATCHES * self.channels, "patches of training"
        return LearningSizes(described, None, TOKENS, self.channels, None, numbers)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of every image, in their order."""
        checksum = hashlib.sha256()
        for drawings in (self.train, self.validation, self.test):
            checksum.update(repr((drawings.images.shape, drawings.counts.tolist())).encode())
            checksum.update(np.ascontiguousarray(drawings.images).data)
        return checksum.hexdigest()


def split_characters(drawings: Drawings, settings: OneShotImages) -> CharacterSplits:
    """Split by the names the settings list, and at random where they list none.

    With `rotations` every training character counts four times, the other splits stay upright.
    Raises InputError for a name that is unknown or in two splits, and for too few characters or
    drawings.
    """
    check_drawings(drawings)
    chosen: dict[str, list[int]] = {}
    for split in ("train", "validation", "test"):
        key = f"characters_{split}"
        listed = getattr(settings, key)
        chosen[split] = listed_characters(drawings, listed, key) if listed else []
    every = [character for characters in chosen.values() for character in characters]
    twice = sorted({drawings.names[c] for c in every if every.count(c) > 1})
    if twice:
        remedy = "these are listed for two of train, validation and test; a character has one split"
        raise InputError("task.characters_test", twice, remedy)
    free = [c for c in range(drawings.characters) if c not in every]
    order = stream(settings.seed, Stream.CHARACTERS).permutation(len(free))
    free = [free[place] for place in order]
    for split in ("test", "validation", "train"):
        if chosen[split]:
            continue
        count = len(free)
        if split != "train":
            fraction = getattr(settings, f"fraction_{split}")
            count = max(FEWEST_CHARACTERS, round(fraction * drawings.characters))
        chosen[split], free = sorted(free[:count]), free[count:]
        refuse_too_few(drawings, chosen[split], f"characters_{split}")
    train, validation, test = (
        select_characters(drawings, chosen[split]) for split in ("train", "validation", "test")
    )
    train = with_rotations(train) if settings.rotations else train
    return CharacterSplits(train, validation, test, settings.token_channels)


def listed_characters(drawings: Drawings, listed: Sequence[str], key: str) -> list[int]:
    """Positions of the characters that a setting lists, themselves or by their groups.

    Raises InputError if one is unknown, or all are too few.
    """
    chosen = set()
    for wanted in listed:
        matches = [
            c for c, name in enumerate(drawings.names) if f"{name}/".startswith(f"{wanted}/")
        ]
        if not matches:
            groups = sorted({name.split("/")[0] for name in drawings.names})
            raise InputError(f"task.{key}", wanted, f"is not among {', '.join(groups)}")
        chosen.update(matches)
    refuse_too_few(drawings, sorted(chosen), key)
    return sorted(chosen)


def refuse_too_few(drawings: Drawings, chosen: Sequence[int], key: str) -> None:
    """Raise InputError if these characters do not make an episode."""
    if len(chosen) < FEWEST_CHARACTERS:
        remedy = f"needs at least {FEWEST_CHARACTERS} of the {drawings.characters} characters; "
        remedy += "name more, or change the fractions"
        raise InputError(f"task.{key}", [drawings.names[c] for c in chosen], remedy)


def check_drawings(drawings: Drawings) -> None:
    """Raise InputError if a character has too few drawings for an episode."""
    fewest = int(np.argmin(drawings.counts))
    if drawings.counts[fewest] < FEWEST_DRAWINGS:
        remedy = f"give each character at least {FEWEST_DRAWINGS} drawings, or leave it out"
        raise InputError("task.images", drawings.names[fewest], remedy)


def refuse_shared_drawings(drawings: Drawings, other: Drawings, source: str) -> None:
    """Raise InputError if the same drawing is in those of training and in others, to the pixel."""

    def prints(drawings: Drawings) -> set[bytes]:
        return {np.ascontiguousarray(image).tobytes() for image in drawings.images}

    shared = len(prints(drawings) & prints(other))
    if shared:
        remedy = f"{shared} of its drawings are among those of training; use other ones"
        raise InputError("task.test", source, remedy)


def read_drawings(settings: OneShotImages) -> Drawings:
    """The drawings a recipe asks for. Raises InputError where they cannot be had."""
    if settings.images == "digits":
        from sklearn.datasets import load_digits  # only here: it takes a second

        digits = load_digits()
        images = resize(digits.images / 16.0, SIDE)
        return sort_drawings(images, [str(digit) for digit in digits.target])
    if settings.images != "omniglot":
        return read_labelled_images(Path(settings.images))
    if settings.folder is None:
        remedy = "name the folder of Omniglot's zip files, or one to fetch them to"
        raise InputError("task.folder", ABSENT, remedy)
    folder = Path(settings.folder)
    if settings.download:
        download_omniglot(folder)
    return read_omniglot(folder)
