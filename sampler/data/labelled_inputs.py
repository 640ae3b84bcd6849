"""Examples of several classes: tokens with their positions, and labels that tell the classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from sampler.data.examples import Examples, checksum_of


def with_positions(features: np.ndarray) -> np.ndarray:
    """Put BOS in front and append one-hot positions: [example, token + 1, channel]."""
    examples, tokens, channels = features.shape
    inputs = np.zeros((examples, tokens + 1, channels + tokens + 1))
    inputs[:, 1:, :channels] = features
    inputs[:, :, channels:] = np.eye(tokens + 1)
    return inputs


@dataclass(frozen=True)
class LearningSizes:
    """Sizes of what a network learns.

    described  sizes of the splits, in words
    examples   different examples of a batch at most; None for any number of them
    tokens     T
    channels   D
    outputs    of the network; None for one without an axis
    numbers    numbers that the training examples are made from, and what they are called
    """

    described: list[tuple[str, str]]
    examples: int | None
    tokens: int
    channels: int
    outputs: int | None
    numbers: tuple[int, str]


@dataclass(frozen=True)
class LabelledSplits:
    """The examples of each split, before heads attend to them, and the names of the classes."""

    train: Examples
    validation: Examples
    test: Examples
    names: tuple[str, ...]

    @property
    def outputs(self) -> int | None:
        """The number of outputs; None where one, without an axis, tells two classes apart."""
        return None if len(self.names) == 2 else len(self.names)

    @property
    def sizes(self) -> LearningSizes:
        examples, tokens, channels = self.train.inputs.shape
        splits = {"training": self.train, "validation": self.validation, "test": self.test}
        described = [(f"{name}: series", f"{part.examples}") for name, part in splits.items()]
        described += [("classes", ", ".join(self.names)), ("tokens T", f"{tokens}")]
        numbers = self.train.inputs.size, "series of training"
        return LearningSizes(described, examples, tokens, channels, self.outputs, numbers)

    @cached_property
    def checksum(self) -> str:
        splits = self.train, self.validation, self.test
        arrays = [array for split in splits for array in (split.inputs, targets_of(split.labels))]
        return checksum_of(repr(self.names), *arrays)


def centred_one_hot(
    classes: Int[np.ndarray, " example"], among: Sequence[int]
) -> Float[np.ndarray, "example output"]:
    """Return 1 for the class of an example and 0 for the others, less their mean 1/classes."""
    return (classes[:, None] == np.asarray(among)).astype(np.float64) - 1.0 / len(among)


def scaled_one_hot(symbols: Any, count: int) -> Float[Any, " *axes {count}"]:
    """Centred one-hot vectors times the root of the number of symbols V: covariance 1 − J/V.

    Symbols are numbers from 0, an array of NumPy or of JAX.
    """
    hot = symbols[..., None] == symbols.__array_namespace__().arange(count)
    return count**0.5 * (hot - 1.0 / count)


def labels_of(
    classes: Int[np.ndarray, " example"], count: int
) -> Float[np.ndarray, "example output"]:
    """Return +1 and −1 for two classes, which one output tells apart; an output each for more."""
    if count == 2:
        return np.where(classes == 0, 1.0, -1.0)[:, None]
    return centred_one_hot(classes, range(count))


def classes_of(labels: Float[np.ndarray, "example output"]) -> Int[np.ndarray, " example"]:
    """Return the number of the class that labels tell."""
    return (labels[:, 0] < 0).astype(int) if labels.shape[1] == 1 else labels.argmax(axis=1)


def targets_of(labels: Float[np.ndarray, "example output"]) -> Float[np.ndarray, " example *_"]:
    """Targets of a trained network: labels of one output without its axis."""
    return labels[:, 0] if labels.shape[1] == 1 else labels
