"""What a transformer learns, as arrays, and how well a trained one answers it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from sampler.attention.variants import AttentionVariant
from sampler.errors import InputError
from sampler.images.drawings import Drawings
from sampler.images.episodes import (
    UNKNOWN,
    Episodes,
    draw_episodes,
    nearest_neighbour,
    normalised_patches,
    position_table,
)
from sampler.images.omniglot import ARCHIVE, RUN_EPISODES, read_all_runs
from sampler.images.sources import CharacterSplits, omniglot_folder, refuse_shared_drawings
from sampler.numerics import stream
from sampler.recipes.training_recipe import TOKENS, TrainingRecipe
from sampler.transformer.classified import (
    Classified,
    ClassifiedSplits,
    nearest_class,
    targets_of,
)
from sampler.transformer.model_file import TrainedModel
from sampler.transformer.network import gather_inputs, predict
from theory.observables import binomial_error

# First entries of the spawn keys: no two purposes share random numbers.
PARAMETERS, EMBEDDING, EPISODES, CHOICE, EVALUATION = range(5)
# Steps whose examples are drawn at once.
BLOCK = 100
# Drawings, and episodes, in one piece, to bound memory.
PIECE, EXAMPLES_AT_ONCE = 1000, 500


def draw_embedding(recipe: TrainingRecipe) -> np.ndarray:
    """The frozen N(0, 1) embedding of the labels 0, 1 and unknown, [label, channel], float32."""
    shape = (UNKNOWN + 1, recipe.task.token_channels)
    generator = stream(recipe.training.seed, EMBEDDING)
    return generator.standard_normal(shape).astype(np.float32)


@runtime_checkable
class Examples(Protocol):
    """Examples to learn, or to be judged on.

    places   arrays [example, …] of whole numbers, by which inputs are gathered from a table
    targets  [example], ±1, or [example, output]
    """

    @property
    def examples(self) -> int: ...

    @property
    def places(self) -> tuple[np.ndarray, ...]: ...

    @property
    def targets(self) -> np.ndarray: ...

    def part(self, start: int, end: int) -> "Examples":
        """Some of them."""
        ...


@runtime_checkable
class Table(Protocol):
    """What the inputs of examples are gathered from: gather(*arrays, *places), to be compiled."""

    @property
    def arrays(self) -> tuple[Array, ...]: ...

    @property
    def gather(self) -> Callable[..., Array]: ...


@runtime_checkable
class LearningData(Protocol):
    """What a network is trained on, all of it float32 and on the device.

    channels    D, of a token
    outputs     of the network; None for one without an axis
    table       of the training examples
    validation  the table and the examples that the network is judged on
    embedding   of the labels that tokens may have, frozen
    """

    @property
    def channels(self) -> int: ...

    @property
    def outputs(self) -> int | None: ...

    @property
    def table(self) -> Table: ...

    @property
    def validation(self) -> tuple[Table, Examples]: ...

    @property
    def embedding(self) -> np.ndarray | None: ...

    def block(self, number: int) -> Examples:
        """The examples of 100 steps, one batch after the other, whatever was drawn before."""
        ...

    def judged(self, model: TrainedModel) -> dict[str, dict]:
        """Accuracies on the splits, of the network and of the nearest neighbour."""
        ...


@dataclass(frozen=True)
class PatchTable:
    """Everything the inputs of episodes are gathered from, float32."""

    patches: Float32[Array, "drawing patch channel"]
    positions: Float32[Array, "token channel"]
    embedding: Float32[Array, "label channel"]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.patches, self.positions, self.embedding

    @property
    def gather(self) -> Callable[..., Array]:
        return gather_inputs


def patch_table(drawings: Drawings, embedding: np.ndarray, copies: int) -> PatchTable:
    """The patches of all drawings."""
    pieces = [
        normalised_patches(drawings.images[start : start + PIECE], copies).astype(np.float32)
        for start in range(0, len(drawings.images), PIECE)
    ]
    positions = position_table(TOKENS, embedding.shape[1]).astype(np.float32)
    return PatchTable(
        jnp.asarray(np.concatenate(pieces)), jnp.asarray(positions), jnp.asarray(embedding)
    )


@dataclass(frozen=True)
class EpisodeData:
    """One-shot episodes of the characters of each split."""

    recipe: TrainingRecipe
    splits: CharacterSplits

    outputs = None

    @property
    def channels(self) -> int:
        return self.recipe.task.token_channels

    @cached_property
    def embedding(self) -> np.ndarray:
        return draw_embedding(self.recipe)

    @cached_property
    def table(self) -> PatchTable:
        return patch_table(self.splits.train, self.embedding, self.recipe.task.channels)

    @cached_property
    def validation(self) -> tuple[PatchTable, Episodes]:
        settings, drawings = self.recipe.training, self.splits.validation
        table = patch_table(drawings, self.embedding, self.recipe.task.channels)
        generator = stream(settings.seed, CHOICE)
        return table, draw_episodes(drawings, settings.validation_examples, generator)

    def block(self, number: int) -> Episodes:
        settings = self.recipe.training
        generator = stream(settings.seed, EPISODES, number)
        return draw_episodes(self.splits.train, BLOCK * settings.batch, generator)

    def judged(self, model: TrainedModel) -> dict[str, dict]:
        """Episodes that nothing was chosen on.

        Where Omniglot's one-shot runs lie beside the training's files, and hold none of its
        drawings, they are a fourth split.
        """
        settings, found = model.recipe.training, {}
        for position, name in enumerate(("train", "validation", "test")):
            drawings: Drawings = getattr(self.splits, name)
            generator = stream(settings.seed, EVALUATION, position)
            episodes = draw_episodes(drawings, settings.evaluation_examples, generator)
            found[name] = judge(model, drawings, episodes)
        return found | one_shot_runs(model, self.splits)


@dataclass(frozen=True)
class Rows:
    """Some rows of a table, and what a network is to say of them."""

    rows: Int[np.ndarray, " example"]
    targets: Float[np.ndarray, " example *output"]

    @property
    def examples(self) -> int:
        return len(self.rows)

    @property
    def places(self) -> tuple[np.ndarray, ...]:
        return (self.rows,)

    def part(self, start: int, end: int) -> "Rows":
        """Some of them."""
        return Rows(self.rows[start:end], self.targets[start:end])


def rows_of(
    inputs: Float[Array, "row token channel"], rows: Int[Array, " example"]
) -> Float[Array, "example token channel"]:
    """The inputs in these rows."""
    return inputs[rows]


@dataclass(frozen=True)
class InputTable:
    """The inputs of a split, float32."""

    inputs: Float32[Array, "row token channel"]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.inputs,)

    @property
    def gather(self) -> Callable[..., Array]:
        return rows_of


def tabled(split: Classified) -> tuple[InputTable, Rows]:
    """All examples of a split."""
    table = InputTable(jnp.asarray(split.inputs, jnp.float32))
    return table, Rows(np.arange(split.examples), split.targets)


@dataclass(frozen=True)
class ClassifiedData:
    """Inputs of several classes, which are held: a batch has at most all of them."""

    recipe: TrainingRecipe
    splits: ClassifiedSplits

    embedding = None

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
    def validation(self) -> tuple[InputTable, Rows]:
        return tabled(self.splits.validation)

    def block(self, number: int) -> Rows:
        """All examples in a random order, then again in another one."""
        train, settings = self.splits.train, self.recipe.training
        wanted = BLOCK * min(settings.batch, train.examples)
        generator = stream(settings.seed, EPISODES, number)
        orders = [
            generator.permutation(train.examples) for _ in range(-(-wanted // train.examples))
        ]
        rows = np.concatenate(orders)[:wanted]
        return Rows(rows, train.targets[rows])

    def judged(self, model: TrainedModel) -> dict[str, dict]:
        """All examples of every split; nothing was learned or chosen on those of the test."""
        variants, found = model.recipe.training.variants, {}
        for name in ("train", "validation", "test"):
            split: Classified = getattr(self.splits, name)
            predictions = predict_examples(model.parameters, *tabled(split), variants)
            nearest = nearest_class(split.inputs, self.splits.train, leave_out=name == "train")
            by_neighbour = targets_of(nearest, len(self.splits.names))
            found[name] = {
                "examples": split.examples,
                "network": accuracy(predictions, split.targets),
                "nearest_neighbour": accuracy(by_neighbour, split.targets),
            }
        return found


def learning_data(
    recipe: TrainingRecipe, splits: CharacterSplits | ClassifiedSplits
) -> LearningData:
    """What a network learns of these splits."""
    kind = EpisodeData if isinstance(splits, CharacterSplits) else ClassifiedData
    return kind(recipe, splits)


@partial(jax.jit, static_argnames=("gather", "variants"))
def _predict(parameters, arrays, places, gather, variants):
    return predict(parameters, gather(*arrays, *places), variants)


def predict_examples(
    parameters: Mapping[str, Any],
    table: Table,
    examples: Examples,
    variants: tuple[tuple[AttentionVariant, ...], ...] = (),
) -> Float[np.ndarray, " example *output"]:
    """f of every example."""
    pieces = []
    for start in range(0, examples.examples, EXAMPLES_AT_ONCE):
        some = examples.part(start, start + EXAMPLES_AT_ONCE)
        places = tuple(map(jnp.asarray, some.places))
        received = _predict(dict(parameters), table.arrays, places, table.gather, variants)
        pieces.append(np.asarray(received, dtype=np.float64))
    return np.concatenate(pieces)


def accuracy(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The fraction of right examples and its binomial error √(p(1 − p)/n).

    Right is the sign, 0 counting half, or the largest of several outputs.
    """
    if targets.ndim == 1:
        right = float(np.mean(0.5 + 0.5 * np.sign(predictions) * targets))
    else:
        right = float(np.mean(predictions.argmax(axis=1) == targets.argmax(axis=1)))
    return {"accuracy": right, "error": binomial_error(right, len(targets))}


def training_summary(model: TrainedModel, data: LearningData) -> dict:
    """What was trained, and its accuracies on the splits."""
    return {
        "step": model.step,
        "parameters": model.shape.parameter_count,
        "form": [
            [variant.kind for variant in of_layer] for of_layer in model.recipe.training.variants
        ],
        "splits": data.judged(model),
    }


def judge(model: TrainedModel, drawings: Drawings, episodes: Episodes) -> dict:
    """Accuracy of the network and of the nearest neighbour on the same episodes."""
    table = patch_table(drawings, model.embedding, model.recipe.task.channels)
    predictions = predict_examples(
        model.parameters, table, episodes, model.recipe.training.variants
    )
    return {
        "characters": drawings.characters,
        "episodes": episodes.examples,
        "network": accuracy(predictions, episodes.targets),
        "nearest_neighbour": accuracy(nearest_neighbour(drawings, episodes), episodes.targets),
    }


def one_shot_runs(model: TrainedModel, splits: CharacterSplits) -> dict:
    """The ready-made episodes, or why they are left out; empty where they are not there."""
    task, settings = model.recipe.task, model.recipe.training
    if task.images != "omniglot" or not (omniglot_folder(task) / ARCHIVE).is_file():
        return {}
    try:
        drawings, episodes = read_all_runs(
            omniglot_folder(task),
            min(settings.evaluation_examples, RUN_EPISODES),
            stream(settings.seed, EVALUATION, 3),
        )
        refuse_shared_drawings(splits.train, drawings, "task.folder", ARCHIVE)
    except InputError as problem:
        return {"all_runs": {"left_out": str(problem)}}
    return {"all_runs": judge(model, drawings, episodes) | {"characters": None}}


def summary_text(summary: dict) -> str:
    """The accuracies as a table in plain text."""
    kinds = ", ".join(sorted({kind for of_layer in summary["form"] for kind in of_layer}))
    lines = [
        f"attention: {kinds}",
        f"step {summary['step']}, accuracy ± binomial error: network | nearest neighbour",
    ]
    for name, split in summary["splits"].items():
        if "left_out" in split:
            lines.append(f"  {name:<11} left out: {split['left_out']}")
            continue
        values = [
            f"{split[of]['accuracy']:.3f} ± {split[of]['error']:.3f}"
            for of in ("network", "nearest_neighbour")
        ]
        lines.append(f"  {name:<11} {' | '.join(values)}")
    return "\n".join(lines)
