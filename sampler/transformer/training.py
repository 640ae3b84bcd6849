"""Gradient descent on one-shot episodes, drawn as it goes, with the best step kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sampler.attention.forms.form import Form
from sampler.errors import InputError
from sampler.images.character_splits import CharacterSplits
from sampler.images.episodes import Episodes, draw_episodes
from sampler.random_streams import stream
from sampler.recipes.training_recipe import TrainingRecipe
from sampler.transformer.evaluation import accuracy, predict_episodes
from sampler.transformer.network import gather_inputs, squared_error
from sampler.transformer.optimiser import make_optimiser
from sampler.transformer.shape import TransformerShape, draw_parameters
from sampler.transformer.training_data import (
    BLOCK,
    CHOICE,
    PARAMETERS,
    PatchTable,
    draw_embedding,
    part,
    patch_table,
    training_block,
)


@dataclass(frozen=True)
class TrainingState:
    """Where a training is after some steps.

    best    parameters with the best validation accuracy, those with the smaller loss among equals
    curve   one entry per validation, as `learning_curve.csv` has them
    losses  losses of the steps since the last validation
    """

    step: int
    parameters: Mapping[str, Any]
    optimiser: Any
    best: Mapping[str, np.ndarray]
    curve: tuple[Mapping[str, int | float], ...] = ()
    losses: tuple[float, ...] = ()

    @property
    def best_point(self) -> Mapping[str, int | float]:
        """The entry of the curve at which `best` was found."""
        return max(self.curve, key=merit)


def merit(point: Mapping[str, int | float]) -> tuple[float, float]:
    """What the best step has most of."""
    return point["validation_accuracy"], -point["validation_loss"]


def initial_state(recipe: TrainingRecipe) -> TrainingState:
    """Random parameters, before the first step."""
    drawn = draw_parameters(TransformerShape.of(recipe), recipe.training.seed, PARAMETERS)
    parameters = {name: jnp.asarray(values) for name, values in drawn.items()}
    return TrainingState(0, parameters, make_optimiser(recipe.training).init(parameters), drawn)


def train(
    recipe: TrainingRecipe,
    splits: CharacterSplits,
    state: TrainingState,
    on_chunk: Callable[[TrainingState], None],
) -> TrainingState:
    """Go on from a state to the last step; `on_chunk` sees every state on the way.

    The numbers do not depend on where a training was interrupted. Raises InputError if the loss is
    no longer finite.
    """
    settings = recipe.training
    embedding = draw_embedding(recipe)
    table = patch_table(splits.train, embedding, recipe.task.channels)
    validation = patch_table(splits.validation, embedding, recipe.task.channels)
    choice = draw_episodes(
        splits.validation, settings.validation_examples, stream(settings.seed, CHOICE)
    )
    advance = make_step(make_optimiser(settings), table, recipe.forms)
    block, episodes = -1, None
    while state.step < settings.steps:
        if state.step // BLOCK != block:
            block = state.step // BLOCK
            episodes = training_block(splits.train, recipe, block)
        end = next_stop(state.step, settings.validation_every, settings.steps)
        state = take_steps(advance, state, episodes, end, settings.batch)
        refuse_divergence(state, settings.learning_rate)
        if end % settings.validation_every == 0 or end == settings.steps:
            state = validated(state, validation, choice, recipe.forms)
        on_chunk(state)
    return state


def next_stop(step: int, validation_every: int, steps: int) -> int:
    """The step at which episodes are drawn, the network is judged, or the training ends."""
    stops = [(step // period + 1) * period for period in (BLOCK, validation_every)]
    return min(*stops, steps)


def make_step(
    optimiser: optax.GradientTransformation,
    table: PatchTable,
    forms: tuple[tuple[Form, ...], ...] = (),
) -> Callable:
    """One step, compiled: from parameters and state of the optimiser to the next, and the loss."""

    @jax.jit
    def step(parameters, state, patches, positions, embedding, drawings, labels, targets):
        inputs = gather_inputs(patches, positions, embedding, drawings, labels)
        loss, gradient = jax.value_and_grad(squared_error)(parameters, inputs, targets, forms)
        change, state = optimiser.update(gradient, state, parameters)
        return optax.apply_updates(parameters, change), state, loss

    def advance(parameters, state, episodes: Episodes):
        return step(
            parameters,
            state,
            table.patches,
            table.positions,
            table.embedding,
            jnp.asarray(episodes.drawings, jnp.int32),
            jnp.asarray(episodes.labels, jnp.int32),
            jnp.asarray(episodes.targets, jnp.float32),
        )

    return advance


def take_steps(
    advance: Callable, state: TrainingState, episodes: Episodes, end: int, batch: int
) -> TrainingState:
    """The steps up to `end`, each with its batch out of the episodes of the block."""
    parameters, optimiser, losses = state.parameters, state.optimiser, []
    for step in range(state.step, end):
        start = (step % BLOCK) * batch
        some = part(episodes, start, start + batch)
        parameters, optimiser, loss = advance(parameters, optimiser, some)
        losses.append(loss)
    return replace(
        state,
        step=end,
        parameters=parameters,
        optimiser=optimiser,
        losses=(*state.losses, *map(float, losses)),
    )


def refuse_divergence(state: TrainingState, learning_rate: float) -> None:
    if not np.isfinite(state.losses[-1]):
        raise InputError(
            "training.learning_rate",
            learning_rate,
            f"the loss is not finite any more at step {state.step}; use a smaller one",
        )


def validated(
    state: TrainingState,
    table: PatchTable,
    episodes: Episodes,
    forms: tuple[tuple[Form, ...], ...] = (),
) -> TrainingState:
    """The state with one more point of the curve, and with its parameters if they are the best."""
    predictions = predict_episodes(state.parameters, table, episodes, forms)
    point = {
        "step": state.step,
        "training_loss": float(np.mean(state.losses)),
        "validation_loss": float(np.mean((predictions - episodes.targets) ** 2)),
        "validation_accuracy": accuracy(predictions, episodes.targets)["accuracy"],
    }
    best = state.best
    if not state.curve or merit(point) > merit(state.best_point):
        # A copy: on a CPU the array could be a view of what the device uses again.
        best = {name: np.array(values) for name, values in state.parameters.items()}
    return replace(state, best=best, curve=(*state.curve, point), losses=())
