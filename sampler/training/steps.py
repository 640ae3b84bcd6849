"""Training by gradient descent, in steps that can be interrupted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sampler.data.episodes import PickedExamples
from sampler.errors import InputError
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import Training
from sampler.storage.archives import Archive, joined
from sampler.streams import Stream
from sampler.training.training_data import (
    BLOCK,
    InputTable,
    LearningData,
    accuracy_with_error,
    predict_examples,
)
from sampler.transformer.forward_pass import transformer_outputs
from sampler.transformer.trained_transformer import Transformer, draw_parameters


def make_optimiser(settings: Training) -> optax.GradientTransformation:
    """Make AdamW or Adam with the learning rate of the schedule.

    "adamw" shrinks the weights by learning rate × decay at every step; "adam" adds decay × weight
    to the gradient instead. "cosine" goes from the learning rate to 0 as (1 + cos πt/T)/2.
    """
    rate = settings.learning_rate
    if settings.schedule == "cosine":
        rate = optax.cosine_decay_schedule(settings.learning_rate, settings.steps)
    if settings.optimiser == "adamw":
        return optax.adamw(rate, weight_decay=settings.weight_decay)
    return optax.chain(
        optax.add_decayed_weights(settings.weight_decay),
        optax.scale_by_adam(),
        optax.scale_by_learning_rate(rate),
    )


@dataclass(frozen=True)
class TrainingState:
    """The state of a training after some steps.

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

    def kept(self, settings: Training) -> tuple[Mapping[str, np.ndarray], int]:
        """Return the network to keep, and its step: the best, or the last with `until_loss`."""
        if settings.until_loss is None:
            return self.best, self.best_point["step"]
        return {name: np.asarray(values) for name, values in self.parameters.items()}, self.step

    def is_last(self, settings: Training) -> bool:
        """Whether no step follows: all are done, or the loss is as small as asked for."""
        if self.step == settings.steps:
            return True
        if settings.until_loss is None or not self.curve or self.curve[-1]["step"] != self.step:
            return False
        return self.curve[-1]["training_loss"] < settings.until_loss


def merit(point: Mapping[str, int | float]) -> tuple[float, float]:
    """Rank a point of the curve: by accuracy, then by the smaller loss."""
    return point["validation_accuracy"], -point["validation_loss"]


def initial_state(recipe: TrainingRecipe, data: LearningData) -> TrainingState:
    """Draw random parameters, for the first step."""
    network = Transformer.of(recipe, data.channels, data.outputs)
    drawn = draw_parameters(network, recipe.training.seed, Stream.PARAMETERS)
    parameters = {name: jnp.asarray(values) for name, values in drawn.items()}
    return TrainingState(0, parameters, make_optimiser(recipe.training).init(parameters), drawn)


def train(
    recipe: TrainingRecipe,
    data: LearningData,
    state: TrainingState,
    on_chunk: Callable[[TrainingState], None],
) -> TrainingState:
    """Go on from a state to the last step; `on_chunk` sees every state on the way.

    The numbers do not depend on where a training was interrupted. Raises InputError if the loss is
    no longer finite.
    """
    settings = recipe.training
    network = Transformer.of(recipe, data.channels, data.outputs)
    take_steps = make_steps(make_optimiser(settings), data.table, network)
    periods = BLOCK, settings.validation_every
    block, examples = -1, None
    while not state.is_last(settings):
        if state.step // BLOCK != block:
            block = state.step // BLOCK
            examples = data.block(block)
        end = min(settings.steps, *((state.step // period + 1) * period for period in periods))
        state = take_steps(state, examples, end)
        refuse_divergence(state.losses[-1], end, settings.learning_rate)
        if end % settings.validation_every == 0 or end == settings.steps:
            state = with_validation(state, *data.validation, network)
            # The last step may have spoilt what its loss does not show yet.
            refuse_divergence(state.curve[-1]["validation_loss"], end, settings.learning_rate)
        on_chunk(state)
    return state


def make_steps(
    optimiser: optax.GradientTransformation, table: InputTable, network: Transformer
) -> Callable[[TrainingState, PickedExamples, int], TrainingState]:
    """Return a function that takes the steps up to one, each with its batch of a block's examples.

    The loss is the mean of (f − y)² over examples and outputs.
    """

    @jax.jit
    def step(parameters, of_optimiser, arrays, places, targets):
        def squared_error(parameters):
            outputs = transformer_outputs(parameters, table.gather(*arrays, *places), network)
            return jnp.mean((outputs - targets) ** 2)

        loss, gradient = jax.value_and_grad(squared_error)(parameters)
        change, of_optimiser = optimiser.update(gradient, of_optimiser, parameters)
        return optax.apply_updates(parameters, change), of_optimiser, loss

    def take_steps(state: TrainingState, examples: PickedExamples, end: int) -> TrainingState:
        trained, losses = (state.parameters, state.optimiser), []
        batch = examples.examples // BLOCK
        for number in range(state.step, end):
            start = (number % BLOCK) * batch
            some = examples.part(start, start + batch)
            places = tuple(jnp.asarray(of, jnp.int32) for of in some.places)
            targets = jnp.asarray(some.targets, jnp.float32)
            *trained, loss = step(*trained, table.arrays, places, targets)
            losses.append(loss)
        losses = (*state.losses, *map(float, losses))
        return TrainingState(end, *trained, state.best, state.curve, losses)

    return take_steps


def refuse_divergence(loss: float, step: int, learning_rate: float) -> None:
    """Raise InputError if the loss is infinite or not a number."""
    if not np.isfinite(loss):
        remedy = f"the loss is not finite any more at step {step}; use a smaller one"
        raise InputError("training.learning_rate", learning_rate, remedy)


def with_validation(
    state: TrainingState, table: InputTable, examples: PickedExamples, network: Transformer
) -> TrainingState:
    """Add a point to the curve, and keep the parameters if they are the best."""
    predictions = predict_examples(state.parameters, table, examples, network)
    point = {
        "step": state.step,
        "training_loss": float(np.mean(state.losses)),
        "validation_loss": float(np.mean((predictions - examples.targets) ** 2)),
        "validation_accuracy": accuracy_with_error(predictions, examples.targets)["accuracy"],
    }
    best = state.best
    if not state.curve or merit(point) > merit(state.best_point):
        # A copy: on a CPU the array could be a view of memory that the device reuses.
        best = {name: np.array(values) for name, values in state.parameters.items()}
    return replace(state, best=best, curve=(*state.curve, point), losses=())


PARAMETER, BEST, OPTIMISER = "parameter", "best", "optimiser"


def training_content(state: TrainingState, total: int) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of the checkpoint of a state, with the number of all steps."""
    header = {
        "phase": "training",
        "done": state.step,
        "total": total,
        "curve": [dict(point) for point in state.curve],
        "losses": list(state.losses),
    }
    leaves = {str(n): leaf for n, leaf in enumerate(jax.tree.leaves(state.optimiser))}
    parts = {PARAMETER: state.parameters, BEST: state.best, OPTIMISER: leaves}
    arrays = {kind: {n: np.asarray(v) for n, v in part.items()} for kind, part in parts.items()}
    return header, joined(**arrays)


def stored_training(stored: Archive, initial: TrainingState) -> TrainingState:
    """The state in a checkpoint; `initial` is one of the same network, whose structure it has."""
    leaves = stored.part(OPTIMISER)
    leaves = [jnp.asarray(leaves[str(number)]) for number in range(len(leaves))]
    return TrainingState(
        stored.header["done"],
        {name: jnp.asarray(values) for name, values in stored.part(PARAMETER).items()},
        jax.tree.unflatten(jax.tree.structure(initial.optimiser), leaves),
        stored.part(BEST),
        tuple(stored.header["curve"]),
        tuple(stored.header["losses"]),
    )
