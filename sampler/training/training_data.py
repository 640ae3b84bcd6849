"""Examples that a transformer learns, as arrays, and the accuracy of a trained one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from operator import getitem
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.data.characters import CharacterSplits, OneShotImages, images_of
from sampler.data.episodes import (
    TOKENS,
    UNKNOWN,
    PickedExamples,
    draw_episodes,
    episode_inputs,
    normalised_patches,
    position_table,
)
from sampler.data.examples import Examples
from sampler.data.image_files import Drawings
from sampler.data.labelled_inputs import LabelledSplits, targets_of
from sampler.settings.recipe import TrainingRecipe
from sampler.streams import Stream, stream
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import TrainedTransformer, Transformer
from theory.observables import binomial_error, correct

# Steps whose examples are drawn at once.
BLOCK = 100
# Drawings, and episodes, in one piece, to bound memory.
PIECE, EXAMPLES_AT_ONCE = 1000, 500
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class InputTable:
    """Arrays, float32, from which the inputs of examples are gathered.

    gather  gather(*arrays, *places) gives the inputs; a function to be compiled
    """

    arrays: tuple[Array, ...]
    gather: Callable[..., Array]


@dataclass(frozen=True)
class LearningData:
    """The examples of each split, as a network learns them.

    channels    D, of a token
    outputs     of the network; None for one without an axis
    embedding   of the labels that are among the inputs
    table       of the training examples
    validation  table and examples on which the best step is chosen
    block       block(n) draws the examples of 100 steps, whatever was drawn before
    judge       judge(model, split) measures the accuracy of a trained network
    """

    recipe: TrainingRecipe
    splits: Any

    if TYPE_CHECKING:
        channels: int
        table: InputTable
        validation: tuple[InputTable, PickedExamples]
        block: Callable[[int], PickedExamples]
        judge: Callable[[TrainedTransformer, str], dict]
    outputs: ClassVar[int | None] = None
    embedding: ClassVar[np.ndarray | None] = None

    def judged(self, model: TrainedTransformer) -> dict[str, dict]:
        """Measure accuracies on every split; nothing was learned or chosen on that of the test."""
        return {name: self.judge(model, name) for name in SPLITS}

    def stream(self, of: Stream, *further: int) -> np.random.Generator:
        return stream(self.recipe.training.seed, of, *further)


class EpisodeData(LearningData):
    """One-shot episodes of the characters of each split."""

    @property
    def images(self) -> OneShotImages:
        """Settings of the images that episodes show."""
        return images_of(self.recipe.task)

    @property
    def channels(self) -> int:
        return self.images.token_channels

    @cached_property
    def embedding(self) -> np.ndarray:
        """The frozen N(0, 1) embedding of labels 0, 1 and unknown, [label, channel], float32."""
        values = self.stream(Stream.EMBEDDING).standard_normal((UNKNOWN + 1, self.channels))
        return values.astype(np.float32)

    def table_of(self, drawings: Drawings) -> InputTable:
        """The table of the patches of all drawings, of positions and of embedded labels."""
        images, copies = drawings.images, self.images.channels
        pieces = [
            normalised_patches(images[start : start + PIECE], copies).astype(np.float32)
            for start in range(0, len(images), PIECE)
        ]
        arrays = np.concatenate(pieces), position_table(TOKENS, self.channels), self.embedding
        return InputTable(
            tuple(jnp.asarray(array, jnp.float32) for array in arrays), episode_inputs
        )

    @cached_property
    def table(self) -> InputTable:
        return self.table_of(self.splits.train)

    @cached_property
    def validation(self) -> tuple[InputTable, PickedExamples]:
        drawings, count = self.splits.validation, self.recipe.training.validation_examples
        return self.table_of(drawings), draw_episodes(drawings, count, self.stream(Stream.CHOICE))

    def block(self, number: int) -> PickedExamples:
        count = BLOCK * self.recipe.training.batch
        return draw_episodes(self.splits.train, count, self.stream(Stream.BATCHES, number))

    def judge(self, model: TrainedTransformer, name: str) -> dict:
        drawings = getattr(self.splits, name)
        generator = self.stream(Stream.EVALUATION, SPLITS.index(name))
        count = self.recipe.training.evaluation_examples
        episodes = draw_episodes(drawings, count, generator)
        table = self.table_of(drawings)
        predictions = predict_examples(model.parameters, table, episodes, model.network)
        return {
            "characters": drawings.characters,
            "episodes": episodes.examples,
            "network": accuracy_with_error(predictions, episodes.targets),
        }


class ClassifiedData(LearningData):
    """Inputs of several classes; a batch has at most all of them."""

    @property
    def channels(self) -> int:
        return self.splits.train.inputs.shape[2]

    @property
    def outputs(self) -> int | None:
        return self.splits.outputs

    @cached_property
    def table(self) -> InputTable:
        return tabled(self.splits.train)[0]

    @cached_property
    def validation(self) -> tuple[InputTable, PickedExamples]:
        return tabled(self.splits.validation)

    def block(self, number: int) -> PickedExamples:
        """Draw the examples of 100 steps: all in a random order, then again in another one."""
        train = self.splits.train
        wanted = BLOCK * min(self.recipe.training.batch, train.examples)
        generator = self.stream(Stream.BATCHES, number)
        passes = -(-wanted // train.examples)
        orders = [generator.permutation(train.examples) for _ in range(passes)]
        rows = np.concatenate(orders)[:wanted]
        return PickedExamples((rows,), targets_of(train.labels)[rows])

    def judge(self, model: TrainedTransformer, name: str) -> dict:
        split = getattr(self.splits, name)
        predictions = predict_examples(model.parameters, *tabled(split), model.network)
        return {
            "examples": split.examples,
            "network": accuracy_with_error(predictions, targets_of(split.labels)),
        }


def tabled(split: Examples) -> tuple[InputTable, PickedExamples]:
    """Make a table of the inputs of a split, and name all its rows."""
    table = InputTable((jnp.asarray(split.inputs, jnp.float32),), getitem)
    return table, PickedExamples((np.arange(split.examples),), targets_of(split.labels))


KINDS = {CharacterSplits: EpisodeData, LabelledSplits: ClassifiedData}


def learning_data(recipe: TrainingRecipe, splits: CharacterSplits | LabelledSplits) -> LearningData:
    """Prepare these splits as a network learns them, float32 and on the device."""
    return KINDS[type(splits)](recipe, splits)


@partial(jax.jit, static_argnames=("gather", "network"))
def _predict(parameters, arrays, places, gather, network):
    return transformer_outputs(parameters, gather(*arrays, *places), network)


def predict_examples(
    parameters: Mapping[str, Any], table: InputTable, examples: PickedExamples, network: Transformer
) -> Float[np.ndarray, " example *output"]:
    """f(x) of the examples, some at a time to bound memory."""
    pieces = []
    for start in range(0, examples.examples, EXAMPLES_AT_ONCE):
        some = examples.part(start, start + EXAMPLES_AT_ONCE)
        places = tuple(map(jnp.asarray, some.places))
        outputs = _predict(dict(parameters), table.arrays, places, table.gather, network)
        pieces.append(np.asarray(outputs, dtype=np.float64))
    return np.concatenate(pieces)


def accuracy_with_error(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Return the fraction of right examples and its binomial error.

    Right is the sign, 0 counting half, or the largest of several outputs.
    """
    if targets.ndim == 1:
        right = float(np.mean(0.5 + 0.5 * np.sign(predictions) * targets))
    else:
        right = float(np.mean(correct(predictions, targets)))
    return {"accuracy": right, "error": binomial_error(right, len(targets))}


def training_summary(model: TrainedTransformer, data: LearningData) -> dict:
    """Summarise the model that was trained, with its accuracies on the splits."""
    return {
        "step": model.step,
        "parameters": model.network.parameter_count,
        "form": [[variant.kind for variant in of_layer] for of_layer in model.network.variants],
        "splits": data.judged(model),
    }


def summary_text(summary: dict) -> str:
    """Write the accuracies as a table in plain text."""
    kinds = ", ".join(sorted({kind for of_layer in summary["form"] for kind in of_layer}))
    first = f"attention: {kinds}", f"step {summary['step']}, accuracy ± binomial error"

    def text(of: dict) -> str:
        return f"{of['accuracy']:.3f} ± {of['error']:.3f}"

    lines = (f"  {name:<11} {text(split['network'])}" for name, split in summary["splits"].items())
    return "\n".join([*first, *lines])
