"""Episodes as arrays, and how well a trained transformer answers them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

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
from sampler.transformer.model_file import TrainedModel
from sampler.transformer.network import gather_inputs, predict
from theory.observables import binomial_error

# First entries of the spawn keys: no two purposes share random numbers.
PARAMETERS, EMBEDDING, EPISODES, CHOICE, EVALUATION = range(5)
# Steps whose episodes are drawn at once.
BLOCK = 100
# Drawings, and episodes, in one piece, to bound memory.
PIECE, EXAMPLES_AT_ONCE = 1000, 500


def draw_embedding(recipe: TrainingRecipe) -> np.ndarray:
    """The frozen N(0, 1) embedding of the labels 0, 1 and unknown, [label, channel], float32."""
    shape = (UNKNOWN + 1, recipe.channels)
    generator = stream(recipe.training.seed, EMBEDDING)
    return generator.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class PatchTable:
    """Everything the inputs of episodes are gathered from, float32."""

    patches: Float32[Array, "drawing patch channel"]
    positions: Float32[Array, "token channel"]
    embedding: Float32[Array, "label channel"]


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


def training_block(drawings: Drawings, recipe: TrainingRecipe, block: int) -> Episodes:
    """The episodes of 100 steps, one batch after the other, whatever was drawn before."""
    settings = recipe.training
    generator = stream(settings.seed, EPISODES, block)
    return draw_episodes(drawings, BLOCK * settings.batch, generator)


def part(episodes: Episodes, start: int, end: int) -> Episodes:
    """Some episodes out of many."""
    return Episodes(
        episodes.drawings[start:end], episodes.labels[start:end], episodes.targets[start:end]
    )


@partial(jax.jit, static_argnames="variants")
def _predict(parameters, patches, positions, embedding, drawings, labels, variants):
    inputs = gather_inputs(patches, positions, embedding, drawings, labels)
    return predict(parameters, inputs, variants)


def predict_episodes(
    parameters: Mapping[str, Any],
    table: PatchTable,
    episodes: Episodes,
    variants: tuple[tuple[AttentionVariant, ...], ...] = (),
) -> Float[np.ndarray, " example"]:
    """f of every episode."""
    pieces = []
    for start in range(0, episodes.examples, EXAMPLES_AT_ONCE):
        some = part(episodes, start, start + EXAMPLES_AT_ONCE)
        places = (jnp.asarray(some.drawings), jnp.asarray(some.labels))
        received = _predict(
            dict(parameters), table.patches, table.positions, table.embedding, *places, variants
        )
        pieces.append(np.asarray(received, dtype=np.float64))
    return np.concatenate(pieces)


def accuracy(predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """The fraction of right signs, 0 counting half, and its binomial error √(p(1 − p)/n)."""
    right = float(np.mean(0.5 + 0.5 * np.sign(predictions) * targets))
    return {"accuracy": right, "error": binomial_error(right, targets.size)}


def training_summary(model: TrainedModel, splits: CharacterSplits) -> dict:
    """Accuracies on training, validation and test episodes that nothing was chosen on.

    Where Omniglot's one-shot runs lie beside the training's files, and hold none of its drawings,
    they are a fourth split.
    """
    settings = model.recipe.training
    judged = {}
    for position, name in enumerate(("train", "validation", "test")):
        drawings: Drawings = getattr(splits, name)
        generator = stream(settings.seed, EVALUATION, position)
        episodes = draw_episodes(drawings, settings.evaluation_examples, generator)
        judged[name] = judge(model, drawings, episodes)
    return {
        "step": model.step,
        "parameters": model.shape.parameter_count,
        "form": [[variant.kind for variant in of_layer] for of_layer in settings.variants],
        "splits": judged | one_shot_runs(model, splits),
    }


def judge(model: TrainedModel, drawings: Drawings, episodes: Episodes) -> dict:
    """Accuracy of the network and of the nearest neighbour on the same episodes."""
    table = patch_table(drawings, model.embedding, model.recipe.task.channels)
    predictions = predict_episodes(
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
