"""Examples that a transformer learns, as arrays, and the accuracy of a trained one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from operator import getitem
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.data.episodes import (
    TOKENS,
    UNKNOWN,
    Examples,
    draw_episodes,
    draw_run_episodes,
    episode_inputs,
    nearest_neighbour,
    normalised_patches,
    position_table,
)
from sampler.data.image_files import ARCHIVE, Drawings, read_all_runs
from sampler.data.labels import LabelledInputs, LabelledSplits, nearest_class, targets_of
from sampler.data.one_shot import CharacterSplits, omniglot_folder, refuse_shared_drawings
from sampler.data.raven import MatrixSplits, MatrixTokens, draw_matrices
from sampler.errors import InputError, Setting
from sampler.runtime import stream
from sampler.settings.recipe import TrainingRecipe
from sampler.transformer.model import TrainedModel, Transformer
from sampler.transformer.network import transformer_outputs
from theory.observables import binomial_error, correct, correct_by_group

# First entries of the spawn keys: no two purposes share random numbers.
PARAMETERS, EMBEDDING, EPISODES, CHOICE, EVALUATION = range(5)
# Steps whose examples are drawn at once.
BLOCK = 100
# Drawings, and episodes, in one piece, to bound memory.
PIECE, EXAMPLES_AT_ONCE = 1000, 500


def draw_embedding(recipe: TrainingRecipe) -> np.ndarray:
    """Draw the frozen N(0, 1) embedding of labels 0, 1 and unknown, [label, channel], float32."""
    shape = (UNKNOWN + 1, recipe.task.token_channels)
    generator = stream(recipe.training.seed, EMBEDDING)
    return generator.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class InputTable:
    """Arrays, float32, from which the inputs of examples are gathered.

    gather  gather(*arrays, *places) gives the inputs; a function to be compiled
    """

    arrays: tuple[Array, ...]
    gather: Callable[..., Array]


def patch_table(drawings: Drawings, embedding: np.ndarray, copies: int) -> InputTable:
    """Make the table of the patches of all drawings, of positions and of embedded labels."""
    pieces = [
        normalised_patches(drawings.images[start : start + PIECE], copies).astype(np.float32)
        for start in range(0, len(drawings.images), PIECE)
    ]
    positions = position_table(TOKENS, embedding.shape[1]).astype(np.float32)
    arrays = np.concatenate(pieces), positions, embedding
    return InputTable(tuple(map(jnp.asarray, arrays)), episode_inputs)


@dataclass(frozen=True)
class EpisodeData:
    """One-shot episodes of the characters of each split, as a network learns them.

    outputs  of the network: one, without an axis
    """

    recipe: TrainingRecipe
    splits: CharacterSplits

    outputs = None

    @property
    def channels(self) -> int:
        """D, of a token."""
        return self.recipe.task.token_channels

    @cached_property
    def embedding(self) -> np.ndarray:
        return draw_embedding(self.recipe)

    @cached_property
    def table(self) -> InputTable:
        return patch_table(self.splits.train, self.embedding, self.recipe.task.channels)

    @cached_property
    def validation(self) -> tuple[InputTable, Examples]:
        """The table and the examples on which the best step is chosen."""
        settings, drawings = self.recipe.training, self.splits.validation
        table = patch_table(drawings, self.embedding, self.recipe.task.channels)
        generator = stream(settings.seed, CHOICE)
        return table, draw_episodes(drawings, settings.validation_examples, generator)

    def block(self, number: int) -> Examples:
        """Draw the examples of 100 steps, one batch after the other, whatever was drawn before."""
        settings = self.recipe.training
        generator = stream(settings.seed, EPISODES, number)
        return draw_episodes(self.splits.train, BLOCK * settings.batch, generator)

    def judged(self, model: TrainedModel) -> dict[str, dict]:
        """Measure accuracies, of network and nearest neighbour, where nothing was chosen.

        Where Omniglot's one-shot runs lie beside the training's files, and hold none of its
        drawings, they are a fourth split.
        """
        settings, found = model.recipe.training, {}
        for position, name in enumerate(("train", "validation", "test")):
            drawings: Drawings = getattr(self.splits, name)
            generator = stream(settings.seed, EVALUATION, position)
            episodes = draw_episodes(drawings, settings.evaluation_examples, generator)
            found[name] = judge_episodes(model, drawings, episodes)
        return found | one_shot_runs(model, self.splits)


def tabled(split: LabelledInputs) -> tuple[InputTable, Examples]:
    """Make a table of the inputs of a split, and name all its rows."""
    table = InputTable((jnp.asarray(split.inputs, jnp.float32),), getitem)
    return table, Examples((np.arange(split.examples),), split.targets)


@dataclass(frozen=True)
class ClassifiedData:
    """Inputs of several classes, as a network learns them: a batch has at most all of them."""

    recipe: TrainingRecipe
    splits: LabelledSplits

    embedding = None

    @property
    def channels(self) -> int:
        """D, of a token."""
        return self.splits.train.inputs.shape[2]

    @property
    def outputs(self) -> int | None:
        """The number of outputs; None for one without an axis."""
        return self.splits.outputs

    @cached_property
    def table(self) -> InputTable:
        return tabled(self.splits.train)[0]

    @cached_property
    def validation(self) -> tuple[InputTable, Examples]:
        """The table and the examples on which the best step is chosen."""
        return tabled(self.splits.validation)

    def block(self, number: int) -> Examples:
        """Draw the examples of 100 steps: all in a random order, then again in another one."""
        train, settings = self.splits.train, self.recipe.training
        wanted = BLOCK * min(settings.batch, train.examples)
        generator = stream(settings.seed, EPISODES, number)
        orders = [
            generator.permutation(train.examples) for _ in range(-(-wanted // train.examples))
        ]
        rows = np.concatenate(orders)[:wanted]
        return Examples((rows,), train.targets[rows])

    def judged(self, model: TrainedModel) -> dict[str, dict]:
        """Measure accuracies on every split; nothing was learned or chosen on that of the test."""
        found = {}
        for name in ("train", "validation", "test"):
            split: LabelledInputs = getattr(self.splits, name)
            predictions = predict_examples(model.parameters, *tabled(split), model.network)
            nearest = nearest_class(split.inputs, self.splits.train, leave_out=name == "train")
            by_neighbour = targets_of(nearest, len(self.splits.names))
            found[name] = {
                "examples": split.examples,
                "network": accuracy_with_error(predictions, split.targets),
                "nearest_neighbour": accuracy_with_error(by_neighbour, split.targets),
            }
        return found


@dataclass(frozen=True)
class MatrixData:
    """Symbolic Raven's matrices, as a network learns them: every step draws its own."""

    recipe: TrainingRecipe
    splits: MatrixSplits

    embedding = None

    @cached_property
    def tokens(self) -> MatrixTokens:
        return MatrixTokens.of(self.recipe.task)

    @property
    def channels(self) -> int:
        """D, of a token."""
        return self.tokens.channels

    @property
    def outputs(self) -> int:
        return self.tokens.outputs

    @property
    def table(self) -> InputTable:
        """No arrays: tokens are made of symbols."""
        return InputTable((), self.tokens.inputs)

    @cached_property
    def validation(self) -> tuple[InputTable, Examples]:
        """The table and the examples on which the best step is chosen, of compositions seen."""
        count = self.recipe.training.validation_examples
        return self.table, self.drawn(self.splits.seen, count, CHOICE)

    def block(self, number: int) -> Examples:
        """Draw the examples of 100 steps, one batch after the other, whatever was drawn before."""
        count = BLOCK * self.recipe.training.batch
        return self.drawn(self.splits.seen, count, EPISODES, number)

    def drawn(self, compositions: np.ndarray, count: int, *key: int) -> Examples:
        generator = stream(self.recipe.training.seed, *key)
        matrices = draw_matrices(self.recipe.task, compositions, count, generator)
        return Examples((matrices.panels, matrices.asked), self.tokens.targets(matrices))

    def judged(self, model: TrainedModel) -> dict[str, dict]:
        """Measure accuracies, of whole panels and feature by feature, on matrices not seen before.

        The test is on compositions that were held out, where there are any.
        """
        settings, found = model.recipe.training, {}
        held_out = self.splits.held_out
        test = held_out if len(held_out) else self.splits.seen
        by_split = {"train": self.splits.seen, "validation": self.splits.seen, "test": test}
        for position, (name, compositions) in enumerate(by_split.items()):
            examples = self.drawn(compositions, settings.evaluation_examples, EVALUATION, position)
            predictions = predict_examples(model.parameters, self.table, examples, model.network)
            right = correct_by_group(predictions, examples.targets).mean(axis=0)
            found[name] = {
                "compositions": len(compositions),
                "examples": examples.examples,
                "network": accuracy_with_error(predictions, examples.targets),
                "by_feature": [
                    {"accuracy": float(one), "error": binomial_error(one, examples.examples)}
                    for one in right
                ],
            }
        return found


LearningData = EpisodeData | ClassifiedData | MatrixData
KINDS = {CharacterSplits: EpisodeData, LabelledSplits: ClassifiedData, MatrixSplits: MatrixData}


def learning_data(
    recipe: TrainingRecipe, splits: CharacterSplits | LabelledSplits | MatrixSplits
) -> LearningData:
    """Prepare these splits as a network learns them, float32 and on the device."""
    return KINDS[type(splits)](recipe, splits)


@partial(jax.jit, static_argnames=("gather", "network"))
def _predict(parameters, arrays, places, gather, network):
    return transformer_outputs(parameters, gather(*arrays, *places), network)


def predict_examples(
    parameters: Mapping[str, Any], table: InputTable, examples: Examples, network: Transformer
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
    """Return the fraction of right examples and its binomial error √(p(1 − p)/n).

    Right is the sign, 0 counting half, or the largest of several outputs, in each of their groups.
    """
    if targets.ndim == 1:
        right = float(np.mean(0.5 + 0.5 * np.sign(predictions) * targets))
    else:
        right = float(np.mean(correct(predictions, targets)))
    return {"accuracy": right, "error": binomial_error(right, len(targets))}


def training_summary(model: TrainedModel, data: LearningData) -> dict:
    """Summarise the model that was trained, with its accuracies on the splits."""
    return {
        "step": model.step,
        "parameters": model.network.parameter_count,
        "form": [[variant.kind for variant in of_layer] for of_layer in model.network.variants],
        "splits": data.judged(model),
    }


def judge_episodes(model: TrainedModel, drawings: Drawings, episodes: Examples) -> dict:
    """Measure accuracies of the network and of the nearest neighbour on the same episodes."""
    table = patch_table(drawings, model.embedding, model.recipe.task.channels)
    predictions = predict_examples(model.parameters, table, episodes, model.network)
    return {
        "characters": drawings.characters,
        "episodes": episodes.examples,
        "network": accuracy_with_error(predictions, episodes.targets),
        "nearest_neighbour": accuracy_with_error(
            nearest_neighbour(drawings, episodes), episodes.targets
        ),
    }


def one_shot_runs(model: TrainedModel, splits: CharacterSplits) -> dict:
    """Judge the ready-made episodes, or say why not; empty where they are not there."""
    task, settings = model.recipe.task, model.recipe.training
    if task.images != "omniglot" or not (omniglot_folder(task) / ARCHIVE).is_file():
        return {}
    try:
        drawings, candidates = read_all_runs(omniglot_folder(task))
        count = min(settings.evaluation_examples, len(candidates))
        episodes = draw_run_episodes(candidates, count, stream(settings.seed, EVALUATION, 3))
        refuse_shared_drawings(splits.train, drawings, Setting("task", "folder"), ARCHIVE)
    except InputError as problem:
        return {"all_runs": {"left_out": str(problem)}}
    return {"all_runs": judge_episodes(model, drawings, episodes) | {"characters": None}}


def summary_text(summary: dict) -> str:
    """Write the accuracies as a table in plain text."""
    kinds = ", ".join(sorted({kind for of_layer in summary["form"] for kind in of_layer}))
    judged = [of for of in ("network", "nearest_neighbour") if of in summary["splits"]["train"]]
    names = " | ".join(judged).replace("_", " ")
    lines = [
        f"attention: {kinds}",
        f"step {summary['step']}, accuracy ± binomial error: {names}",
    ]
    for name, split in summary["splits"].items():
        if "left_out" in split:
            lines.append(f"  {name:<11} left out: {split['left_out']}")
            continue
        values = [f"{split[of]['accuracy']:.3f} ± {split[of]['error']:.3f}" for of in judged]
        lines.append(f"  {name:<11} {' | '.join(values)}")
    return "\n".join(lines)
