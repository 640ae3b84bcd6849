"""Images in patches: handwritten digits, or images of files in the format of MNIST.

The channels are the pixels of the image, of which a token holds those of its own patch and zeros
elsewhere, then one-hot positions of the patches, row by row: D in all, and as many key channels, so
that every attention variant fits.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator

from sampler.data.drawn_task import DrawnSplits, DrawnTask, LogitWeights
from sampler.data.examples import StreamedExamples
from sampler.data.image_files import IMAGES, read_images_and_labels, resize
from sampler.data.labelled_inputs import centred_one_hot
from sampler.errors import InputError
from sampler.settings.task_sections import Attention, TaskSettings
from sampler.settings.types import Count, FilePath, Text
from sampler.streams import Stream, stream

# Scikit-learn's handwritten digits: how many there are, and pixels a side.
DRAWINGS, SIDE = 1797, 8
Digit = Annotated[int, Field(strict=True, ge=0, le=9)]


class ImageTask(DrawnTask):
    """Images of several classes, one output per class.

    Labels are 1 for the class and 0 for the others, less their mean 1/classes. The seed alone
    decides the order of the images. Training examples are taken from its front, test examples from
    its end, and validation examples from its middle towards the front, so that the size of one
    split leaves the others as they are; where two would meet, there are too many.
    """

    head_kinds: ClassVar = ("similar", "near", "uniform", "random", "learned")
    attention_defaults: ClassVar = {"heads": (("similar", "near"),)}
    # No patch of an image is the last one.
    network_defaults: ClassVar = {"readout": "mean"}

    patch: Count
    """Side of the square patch that is a token, in pixels."""

    @field_validator("classes", check_fields=False)
    @classmethod
    def are_different(cls, classes):
        if classes is not None and len(set(classes)) != len(classes):
            raise ValueError("name every class once")
        return classes

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Images [image, row, column] from 0 to 1, and labels [image, output]."""
        raise NotImplementedError

    def logit_weights(self, attention: Attention, tokens: int, channels: int) -> LogitWeights:
        side = math.isqrt(channels - tokens)
        return {
            "similar": lambda: similarity_weights(side, self.patch),
            "near": lambda: distance_weights(side, self.patch),
        }

    def splits(self, attention: Attention) -> DrawnSplits:
        """Cut the images into patches.

        Raises InputError if the images do not suffice for the splits.
        """
        images, labels = self.read()
        self.refuse_shared(len(images))

        def examples(drawings: np.ndarray) -> StreamedExamples | None:
            chosen = images[drawings]
            return StreamedExamples.of(
                lambda part: patches_with_positions(chosen[part], self.patch),
                labels[drawings],
                chosen,
                np.array(self.patch),
            )

        order = stream(self.seed, Stream.TRAIN).permutation(len(images))
        before_middle = order[: len(images) // 2]
        return (
            examples(order[: self.examples_train]),
            examples(order[::-1][: self.examples_test]),
            examples(before_middle[::-1][: self.examples_validation])
            if self.examples_validation
            else None,
        )

    def refuse_shared(self, drawings: int) -> None:
        """Raise InputError where two splits of these sizes would share drawings."""
        train, validation, test = self.examples_train, self.examples_validation, self.examples_test
        middle = drawings // 2
        there = f"there are {drawings} images of these classes"
        if validation and train + validation > middle:
            remedy = f"{there}, of which the first {middle} are for training and validation, and "
            remedy += f"not enough beside {train} training examples; use fewer"
            raise InputError("task.examples_validation", validation, remedy)
        if validation and test > drawings - middle:
            remedy = (
                f"{there}, of which the last {drawings - middle} are for the test where others "
            )
            remedy += "are for validation; use at most these"
            raise InputError("task.examples_test", test, remedy)
        if train + test > drawings:
            remedy = f"{there} for {train + test} examples of all splits; use fewer"
            raise InputError("task.examples_test", test, remedy)


class Digits(ImageTask):
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn; one output per class."""

    kind: Literal["digits"] = "digits"
    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] = tuple(range(10))
    """The digits to tell apart."""
    examples_train: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 100
    examples_test: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 700
    patch: Literal[1, 2, 4] = 2
    """Side of the square patch that is a token, in pixels."""

    @classmethod
    def section_for(cls, settings: Mapping[str, Any]) -> type[TaskSettings]:
        """Images of a file where one is named, the digits otherwise."""
        return ImagesOfFile if "images" in settings else cls

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        images, digits = read_images(self.classes)
        return images, centred_one_hot(digits, self.classes)


class ImagesOfFile(ImageTask):
    """Square images of a file, in the format of MNIST or an .npz file; one output per class."""

    kind: Literal["digits"] = "digits"
    images: FilePath
    """The file of images: `…images-idx3-ubyte`, beside which the one of labels lies, with .gz or
    without; or an .npz file with `images` [image, row, column] and `labels` [image]."""
    classes: tuple[Text, ...] | None = None
    """The labels to tell apart, as text; by default all that there are."""
    side: Count | None = None
    """Pixels a side to which images are resized; by default they stay as they are."""
    patch: Count = 7
    """Side of the square patch that is a token, in pixels."""

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Images of the classes, and their labels.

        Raises InputError for a file that cannot be used, and for patches that do not fill an image.
        """
        images, names = read_images_and_labels(Path(self.images))
        known = sorted(set(names))
        classes = self.classes or tuple(known)
        absent = [name for name in classes if name not in known]
        if absent or len(classes) < 2:
            remedy = f"name two or more of its labels: {', '.join(known)}"
            raise InputError("task.classes", absent or list(classes), remedy)
        kept = [place for place, name in enumerate(names) if name in classes]
        images = images[kept] if self.side is None else resize(images[kept], self.side)
        _, rows, columns = images.shape
        if self.side is None and rows != columns:
            remedy = "are no squares; resize them by task.side"
            raise InputError(IMAGES, f"{rows} × {columns} pixels", remedy)
        if images.shape[1] % self.patch:
            remedy = f"must divide the side of the images, {images.shape[1]} pixels"
            raise InputError("task.patch", self.patch, remedy)
        numbers = np.array([classes.index(names[place]) for place in kept])
        return images.astype(np.float64), centred_one_hot(numbers, range(len(classes)))


def similarity_weights(side: int, patch: int) -> Float[np.ndarray, "channel channel"]:
    """Make W/β of a similar head: the mean over pixels of the product of both patches."""
    weights = np.zeros(2 * (side**2 + (side // patch) ** 2,))
    rows, columns = np.divmod(np.arange(side**2), side)
    place = (rows % patch) * patch + columns % patch
    fold = (np.arange(patch**2)[:, None] == place).astype(np.float64)
    weights[: side**2, : side**2] = fold.T @ fold / patch**2
    return weights


def distance_weights(side: int, patch: int) -> Float[np.ndarray, "channel channel"]:
    """Make W/β of a near head: minus the squared distance of both patches, the image's side 1."""
    grid = side // patch
    centres = np.stack(np.divmod(np.arange(grid**2), grid), axis=-1) * (patch / side)
    weights = np.zeros(2 * (side**2 + grid**2,))
    distances = np.sum((centres[:, None] - centres[None]) ** 2, axis=-1)
    weights[side**2 :, side**2 :] = -distances
    return weights


def read_images(classes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Read drawings of these classes, [drawing, row, column] from 0 to 1, and their digits."""
    from sklearn.datasets import load_digits  # only here: it takes a second

    stored = load_digits()
    kept = np.isin(stored.target, classes)
    return stored.images[kept] / 16.0, stored.target[kept]


def patches_with_positions(images: np.ndarray, patch: int) -> np.ndarray:
    """Make tokens [example, patch, pixel + position]: a patch in its place, and where that is."""
    side = images.shape[1]
    rows, columns = np.divmod(np.arange(side**2), side)
    own = (rows // patch) * (side // patch) + columns // patch
    positions = np.arange((side // patch) ** 2)
    pixels = np.where(own == positions[:, None], images.reshape(len(images), 1, -1), 0.0)
    one_hot_positions = np.broadcast_to(np.eye(positions.size), (len(images), *2 * positions.shape))
    return np.concatenate([pixels, one_hot_positions], axis=-1)
