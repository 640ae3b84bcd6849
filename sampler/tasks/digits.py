"""Handwritten digits in patches.

The channels are the pixels of the image, of which a token holds those of its own patch and zeros
elsewhere, then one-hot positions of the patches, row by row: D in all, and as many key channels, so
that every attention variant fits.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator

from sampler.errors import InputError
from sampler.numerics import stream
from sampler.recipes.sections import Seed, ValidationCount
from sampler.recipes.task_section import AttentionSection, TaskSection
from sampler.tasks.splits import AnySplit
from sampler.tasks.task import (
    Pictures,
    Task,
    attended,
    draw_layers,
    name_heads,
    name_paths,
    refuse_unfit_variants,
)

# Scikit-learn's handwritten digits: how many there are, and pixels a side.
DRAWINGS, SIDE = 1797, 8
# First entry of the spawn key.
SPLIT_STREAM = 0
Digit = Annotated[int, Field(strict=True, ge=0, le=9)]


class DigitsSection(TaskSection):
    """Handwritten digits of 8 × 8 pixels, which come with scikit-learn; one output per class.

    Every token is a square patch of `patch` × `patch` pixels. Labels are 1 for the class and 0 for
    the others, less their mean 1/classes. The splits are disjoint and drawn by `seed`, classes as
    often as they come among the 1,797 drawings.
    """

    head_kinds: ClassVar = ("similar", "near", "uniform", "random")
    attention_defaults: ClassVar = {"heads": (("similar", "near"),)}
    # No patch of an image is the last one.
    network_defaults: ClassVar = {"readout": "mean"}

    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] = tuple(range(10))
    examples_train: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 100
    examples_test: Annotated[int, Field(strict=True, ge=2, lt=DRAWINGS)] = 700
    examples_validation: ValidationCount = 0
    patch: Literal[1, 2, 4] = 2
    seed: Seed = 0
    head_seed: Seed = 0

    @field_validator("classes")
    @classmethod
    def are_different(cls, classes):
        if len(set(classes)) != len(classes):
            raise ValueError("name every class once")
        return classes

    def make(self, attention: AttentionSection) -> Task:
        """Cut the drawings into patches and let the heads of the recipe attend them.

        Raises InputError if the drawings of these classes do not suffice for the splits.
        """
        images, digits = read_images(self.classes)
        sizes = (self.examples_train, self.examples_validation, self.examples_test)
        wanted = sum(sizes)
        others = wanted - self.examples_test
        if wanted > len(images):
            raise InputError(
                "task.examples_test",
                self.examples_test,
                f"there are {len(images)} drawings of these classes: with {others} in the other "
                f"splits use at most {max(0, len(images) - others)}",
            )
        refuse_unfit_variants(attention, (SIDE // self.patch) ** 2)

        def weights_of(kind: str, generator: np.random.Generator):
            beta = attention.inverse_temperature
            return query_and_key_weights(kind, SIDE, self.patch, beta, generator)

        weights = draw_layers(attention, weights_of, self.head_seed)
        order = stream(self.seed, SPLIT_STREAM).permutation(len(images))

        def split_of(drawings: np.ndarray) -> AnySplit:
            chosen, labels = images[drawings], one_hot(digits[drawings], self.classes)
            return attended(
                lambda part: patches_with_positions(chosen[part], self.patch),
                labels,
                weights,
                attention,
                (chosen, np.array(self.patch)),
            )

        train, validation, test = (
            split_of(chosen) if chosen.size else None
            for chosen in np.split(order[:wanted], np.cumsum(sizes)[:-1])
        )
        names = name_heads(attention)
        drawn = order[: self.examples_train, None]
        pictures = Pictures(images, drawn, np.zeros_like(drawn), ("drawing",))
        return Task(train, test, names, name_paths(names), validation, pictures=pictures)


def query_and_key_weights(
    kind: str, side: int, patch: int, inverse_temperature: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """W_Q and W_K of one head, each [key channel, channel], for logits (W_K x_s)·(W_Q x_t)/√D.

    similar  mean over pixels of the product of both patches, times β
    near     minus the squared distance of both patches in units of the image's side, times β
    uniform  all logits are equal
    random   Gaussian entries of variance 1/D, W_Q multiplied by β

    Only a random head draws from the generator. Raises ValueError for any other kind.
    """
    pixels, positions = side**2, (side // patch) ** 2
    channels = pixels + positions
    if kind == "random":
        query, key = generator.standard_normal((2, channels, channels)) / np.sqrt(channels)
        return inverse_temperature * query, key
    logit_weights = np.zeros((channels, channels))
    if kind == "similar":
        fold = pixels_within_patch(side, patch)
        logit_weights[:pixels, :pixels] = fold.T @ fold / patch**2
    elif kind == "near":
        logit_weights[pixels:, pixels:] = -squared_distances(side, patch)
    elif kind != "uniform":
        raise ValueError(f"head kind {kind!r}: use one of {', '.join(DigitsSection.head_kinds)}")
    # Keys are the inputs themselves: the logit is x_sᵀ W x_t.
    return inverse_temperature * np.sqrt(channels) * logit_weights, np.eye(channels)


def pixels_within_patch(side: int, patch: int) -> Float[np.ndarray, "place pixel"]:
    """1 where a pixel of the image has this place within its patch."""
    rows, columns = np.divmod(np.arange(side**2), side)
    place = (rows % patch) * patch + columns % patch
    return (np.arange(patch**2)[:, None] == place).astype(np.float64)


def squared_distances(side: int, patch: int) -> Float[np.ndarray, "position position"]:
    """Between the centres of patches, in units of the image's side."""
    grid = side // patch
    centres = np.stack(np.divmod(np.arange(grid**2), grid), axis=-1) * (patch / side)
    return np.sum((centres[:, None] - centres[None]) ** 2, axis=-1)


def read_images(classes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Drawings of these classes [drawing, row, column] from 0 to 1, and their digits."""
    from sklearn.datasets import load_digits  # only here: it takes a second

    stored = load_digits()
    kept = np.isin(stored.target, classes)
    return stored.images[kept] / 16.0, stored.target[kept]


def patches_with_positions(images: np.ndarray, patch: int) -> np.ndarray:
    """Tokens [example, patch, pixel + position]: a patch in its place, and where that is."""
    rows, columns = np.divmod(np.arange(SIDE**2), SIDE)
    own = (rows // patch) * (SIDE // patch) + columns // patch
    positions = np.arange((SIDE // patch) ** 2)
    pixels = np.where(own == positions[:, None], images.reshape(len(images), 1, -1), 0.0)
    one_hot_positions = np.broadcast_to(np.eye(positions.size), (len(images), *2 * positions.shape))
    return np.concatenate([pixels, one_hot_positions], axis=-1)


def one_hot(digits: np.ndarray, classes: tuple[int, ...]) -> np.ndarray:
    """1 for the class and 0 for the others, less 1/classes: [example, output]."""
    return (digits[:, None] == np.array(classes)).astype(np.float64) - 1.0 / len(classes)
