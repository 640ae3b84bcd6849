"""Handwritten digits in patches.

The channels are the pixels of the image, of which a token holds those of its own patch and zeros
elsewhere, then one-hot positions of the patches, row by row: D in all, and as many key channels, so
that every attention variant fits.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator

from sampler.data.drawn_task import DrawnTask, LogitWeights, RawSplits
from sampler.data.heads_of_task import RawExamples
from sampler.data.labelled_inputs import centred_one_hot
from sampler.errors import InputError
from sampler.settings.task_sections import Attention
from sampler.streams import Stream, stream

# Scikit-learn's handwritten digits: how many there are, and pixels a side.
DRAWINGS, SIDE = 1797, 8
Digit = Annotated[int, Field(strict=True, ge=0, le=9)]


class Digits(DrawnTask):
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn; one output per class.

    Labels are 1 for the class and 0 for the others, less their mean 1/classes. The 1,797 drawings
    stand in an order of which the seed alone decides. Training examples are taken from its front,
    test examples from its end, and validation examples from its middle towards the front, so that
    the size of one split leaves the others as they are; where two would meet, there are too many.
    """

    head_kinds: ClassVar = ("similar", "near", "uniform", "random", "learned")
    attention_defaults: ClassVar = {"heads": (("similar", "near"),)}
    # No patch of an image is the last one.
    network_defaults: ClassVar = {"readout": "mean"}

    kind: Literal["digits"] = "digits"
    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] = tuple(range(10))
    """The digits to tell apart."""
    examples_train: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 100
    examples_test: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 700
    patch: Literal[1, 2, 4] = 2
    """Side of the square patch that is a token, in pixels."""

    @field_validator("classes")
    @classmethod
    def are_different(cls, classes):
        if len(set(classes)) != len(classes):
            raise ValueError("name every class once")
        return classes

    def logit_weights(self, attention: Attention, tokens: int, channels: int) -> LogitWeights:
        return {
            "similar": lambda: similarity_weights(SIDE, self.patch),
            "near": lambda: distance_weights(SIDE, self.patch),
        }

    def splits(self, attention: Attention) -> RawSplits:
        """Cut the drawings into patches.

        Raises InputError if the drawings of these classes do not suffice for the splits.
        """
        images, digits = read_images(self.classes)
        self.refuse_shared(len(images))

        def examples(drawings: np.ndarray) -> RawExamples | None:
            chosen, labels = images[drawings], centred_one_hot(digits[drawings], self.classes)
            return RawExamples.of(
                lambda part: patches_with_positions(chosen[part], self.patch),
                labels,
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
        """Raise InputError where two splits of so many drawings would share some."""
        train, validation, test = self.examples_train, self.examples_validation, self.examples_test
        middle = drawings // 2
        there = f"there are {drawings} drawings of these classes"
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
    rows, columns = np.divmod(np.arange(SIDE**2), SIDE)
    own = (rows // patch) * (SIDE // patch) + columns // patch
    positions = np.arange((SIDE // patch) ** 2)
    pixels = np.where(own == positions[:, None], images.reshape(len(images), 1, -1), 0.0)
    one_hot_positions = np.broadcast_to(np.eye(positions.size), (len(images), *2 * positions.shape))
    return np.concatenate([pixels, one_hot_positions], axis=-1)
