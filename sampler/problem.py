"""From a recipe and its task to the numbers that theory and samplers work on."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sampler.attention.similarity import HeadDistances
from sampler.data.examples import AnyExamples, Examples, held, spread_over_labels
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.mcmc.collected_draws import MOST_POINTWISE
from sampler.posterior.data import FixedPaths
from sampler.posterior.exported import FlatDensity, Model, basis_of_examples, export_model
from sampler.posterior.mode import find_mode
from sampler.posterior.space import Space
from sampler.posterior.spaces import (
    OF_FIXED_PATHS,
    ORDER_PARAMETERS,
    has_own_priors,
    make_space,
    refuse_space,
)
from sampler.runtime import jax_settings
from sampler.settings.recipe import Recipe
from sampler.token_problem import (
    LearnedProblem,
    TokenProblem,
    make_learned_problem,
    make_token_problem,
    named_fields,
)
from sampler.transformer.trained_transformer import TrainedValues
from theory import (
    LearningProblem,
    Predictor,
    TemperatureTooSmall,
    Triangle,
    attended_inputs,
    pair_matrices,
    predict,
)
from theory.architecture import Architecture
from theory.leave_one_out import Combinations
from theory.path_kernels import Features

# Training examples that kernels are shown of.
MOST_SHOWN = 40
# Examples of a pass that are asked for at a time: what is computed of them stays small.
MOST_PASSED = 2048
Blocks = Iterator[
    tuple[Float[Array, "_example path channel"], Float[Array | np.ndarray, "_example output"]]
]


@dataclass(frozen=True)
class Problem:
    """One network with its data: the learning problem, the test set, and the names of its paths.

    The validation set is None where the task has none. So is what the task does not have or hold:

    trained  the network that attention comes from, if tokens are read here as it reads them
    train    the training examples, where they have tokens
    shown    training examples that kernels are shown of, attended, and their numbers
    whole    yields all training examples, attended, where rows stand for them
    """

    learning: LearningProblem
    attended_test: Float[Array, "test path channel"]
    labels_test: Float[np.ndarray, "test output"] | None
    path_names: tuple[str, ...]
    head_names: tuple[tuple[str, ...], ...]
    attended_validation: Float[Array, "validation path channel"] | None = None
    labels_validation: Float[np.ndarray, "validation output"] | None = None
    trained: TrainedValues | None = None
    train: Examples | None = None
    shown: tuple[Int[np.ndarray, " shown_example"], Examples] | None = None
    whole: Callable[[], Blocks] | None = None
    layer_numbers: tuple[int, ...] = ()

    @cached_property
    def training_examples(self) -> tuple[Any, Array] | None:
        """Inputs and labels of the examples that draws are asked about; None: too many, or unknown.

        Attended inputs, of the examples themselves where rows stand for them.
        """
        if self.learning.examples >= MOST_POINTWISE:
            return None
        if self.learning.residual_examples == 0:
            return self.learning.attended, self.learning.labels
        return None if self.whole is None else joined(self.whole())

    def blocks(self) -> Blocks:
        """Attended inputs and labels of all training examples; nothing where they are not known."""
        if self.learning.residual_examples == 0:
            yield self.learning.attended, self.learning.labels
        elif self.whole is not None:
            yield from self.whole()

    @cached_property
    def head_distances(self) -> HeadDistances | None:
        """Distances between heads; computed when the table of the theory asks for them."""
        if self.train is None:
            return None
        return HeadDistances.of(self.train.attention, self.train.inputs)

    @property
    def architecture(self) -> Architecture:
        return self.learning.architecture

    @property
    def labels(self) -> Float[Array, "example output"]:
        return self.learning.labels

    @property
    def temperature(self) -> float:
        return self.learning.temperature

    def predictions_at(
        self, order_parameter: Float[np.ndarray, "row row"]
    ) -> dict[str, np.ndarray]:
        """Predictions from a given U_1: it, and mean and variance of f on the test set.

        Under the names that a theory of one's own has them. U_1 is positive semi-definite;
        negative eigenvalues count as 0.
        """
        with jax_settings():
            factor = jnp.asarray(square_roots(order_parameter))
            moments = predict(Predictor.for_examples(self.learning, self.attended_test), factor)
        mean, variance = map(np.asarray, moments)
        if self.architecture.outputs == 1:
            mean, variance = mean[:, 0], variance[:, 0]
        return {
            "order_parameter": np.asarray(order_parameter, dtype=np.float64),
            "predictor_mean": mean,
            "predictor_variance": variance,
        }

    def data(self, *, kernels: bool, precision: str = "float64") -> FixedPaths:
        """The examples as a space takes them; kernels: whether path kernels may be stored."""
        learning, training = self.learning.astype(precision), self.training_examples
        fields: dict[str, Any] = {
            "labels": learning.labels,
            "attended": learning.attended,
            "attended_test": jnp.asarray(self.attended_test, precision),
            "pointwise": training is not None,
        }
        if learning.residual_examples:
            squares = jnp.asarray(np.asarray(learning.residual.squares, precision))
            fields["residual"] = replace(learning.residual, squares=squares)
            if training is not None:
                fields["whole"] = tuple(jnp.asarray(array, precision) for array in training)
                if kernels:
                    fields["combinations"] = Combinations.of(learning, *training)
        if kernels:
            predictor = Predictor.for_examples(learning, fields["attended_test"])
            if not isinstance(predictor.energy.kernels, Features):
                fields["stored"] = predictor.energy.kernels
            if not isinstance(predictor.cross, Features):
                fields |= {"stored_cross": predictor.cross, "gram": predictor.gram}
        return FixedPaths(**fields)

    def space(
        self, name: str, precision: str = "float64", keep: Sequence[str] = (), whitened: bool = True
    ) -> Space:
        """The posterior in a space and in this precision, whitened at its mode where it has one."""
        refuse_space(name, OF_FIXED_PATHS, "a network of fixed attention")
        collapsed = name == ORDER_PARAMETERS
        data = self.data(kernels=collapsed, precision=precision)
        space = self.space_of(name, data, keep)
        return replace(space, mode=find_mode(space)) if collapsed and whitened else space

    def space_of(self, name: str, data: FixedPaths, keep: Sequence[str] = ()) -> Space:
        """The posterior of this network in a space, with data that were made for it."""
        learning = self.learning
        temperature = learning.temperature, learning.temperature_spread
        return make_space(name, data, learning.architecture, *temperature, keep=keep)

    def prior_draws(self, count: int, seed: int, space: str) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data by name, of one law in all spaces of Gaussian weights."""
        data, name = self.data(kernels=False), space if has_own_priors(space) else ORDER_PARAMETERS
        return self.space_of(name, data).draws_without_data(count, seed)

    def flat_density(self, space: str) -> FlatDensity:
        """The posterior in a space as a function of one flat vector."""
        return FlatDensity(self.space(space, whitened=False))

    def numpyro_model(self, space: str, sites: tuple[str, ...]) -> Model:
        """The posterior in a space as a NumPyro model, of examples where rows stand for them."""
        refuse_space(space, OF_FIXED_PATHS, "a network of fixed attention")
        data, labels = self.data(kernels=False), None
        if self.whole is not None:
            attended, labels = joined(self.whole())
            if space == ORDER_PARAMETERS:
                data = replace(data, basis=jnp.asarray(basis_of_examples(np.asarray(attended))))
            else:
                data = replace(data, attended=attended, labels=labels, residual=None, whole=None)
        return export_model(self.space_of(space, data), sites, labels)


def square_roots(matrices: np.ndarray) -> np.ndarray:
    """F with U = F Fᵀ for each U [..., row, row]; narrow layers make U singular."""
    values, vectors = np.linalg.eigh(np.asarray(matrices, dtype=np.float64))
    return vectors * np.sqrt(np.clip(values, 0.0, None))[..., None, :]


AnyProblem = Problem | TokenProblem | LearnedProblem


def build_problem(
    recipe: Recipe,
    task: Task,
    triangle: Triangle | None = None,
    architecture: Architecture | None = None,
) -> AnyProblem:
    """Attend all inputs of a task and join them with the recipe's network, in float64.

    Where there are more training examples than features, the rows of their triangle stand for them:
    it is made here, unless it is known. A network outside the theory keeps its tokens instead.
    Raises InputError for a temperature that is lost in the rounding of the kernel.
    """
    if architecture is None:
        architecture = recipe.network.architecture(task.heads, task.channels, task.outputs)
    if not recipe.fits_theory:
        return make_token_problem(recipe, task, architecture)
    if task.learned is not None:
        return make_learned_problem(recipe, task, architecture)
    readout = recipe.network.readout
    temperatures = recipe.posterior.temperature, recipe.posterior.temperature_spread
    try:
        if is_folded(recipe, task):
            if triangle is None:
                *_, triangle = fold_training(recipe, task)
            learning = triangle.learning_problem(architecture, *temperatures)
        else:
            attended = attend_split(task.train, readout, task.pairs)
            labels = jnp.asarray(task.train.labels)
            learning = LearningProblem(architecture, attended, labels, *temperatures)
    except TemperatureTooSmall as error:
        raise InputError("posterior.temperature", error.temperature, error.remedy) from None
    attended = {
        f"attended_{name}": attend_split(split, readout, task.pairs)
        for name, split in task.named_splits.items()
        if name != "train"
    }
    attended_pass = partial(attended_blocks, task.train, readout, task.pairs)
    return Problem(
        learning,
        **attended,
        **named_fields(task),
        trained=task.trained if readout == "mean" else None,  # as it was trained
        train=task.train if task.train.holds_tokens else None,
        shown=shown_examples(task, readout),
        whole=attended_pass if is_folded(recipe, task) else None,
    )


def is_folded(recipe: Recipe, task: Task) -> bool:
    """Whether rows of a triangle replace the training examples: more than p_1 D = Π D."""
    features = math.prod(task.heads) * task.channels
    return recipe.has_theory and features < task.train.examples


def fold_training(recipe: Recipe, task: Task, start: Triangle | None = None) -> Iterator[Triangle]:
    """The triangle of more and more training examples, the last one of all of them.

    It continues from a triangle of the first ones.
    """
    if start is None:
        start = Triangle.empty(math.prod(task.heads), task.channels, task.outputs)
    blocks = task.train.blocks(start.examples)
    return start.fold_all(
        (attend_block(block, recipe.network.readout, task.pairs), block.labels) for block in blocks
    )


def attend_split(
    split: AnyExamples, readout, pairs: tuple[bool, ...]
) -> Float[Array, "example path channel"]:
    """Attended inputs of a split, block by block to bound memory.

    `pairs` names the layers of attention that serve two layers of weights.
    """
    if isinstance(split, Examples) and split.path_heads is not None:
        return jnp.asarray(split.inputs)
    blocks = [np.asarray(attend_block(block, readout, pairs)) for block in split.blocks()]
    return jnp.asarray(np.concatenate(blocks))


def attend_block(
    split: Examples, readout, pairs: tuple[bool, ...]
) -> Float[Array, "example path channel"]:
    """Attended inputs of a split whose arrays are held."""
    if split.path_heads is not None:
        return jnp.asarray(split.inputs)
    attention = tuple(
        pair_matrices(np.asarray(omega)) if is_pair else np.asarray(omega)
        for omega, is_pair in zip(split.attention, pairs, strict=True)
    )
    lengths = None if split.lengths is None else np.asarray(split.lengths)
    return jnp.asarray(attended_inputs(np.asarray(split.inputs), attention, readout, lengths))


def attended_blocks(split: AnyExamples, readout, pairs: tuple[bool, ...]) -> Blocks:
    """Attended inputs and labels, few examples at a time."""
    for block in split.blocks():
        attended = attend_block(block, readout, pairs)
        for start in range(0, len(attended), MOST_PASSED):
            part = slice(start, start + MOST_PASSED)
            yield attended[part], block.labels[part]


def joined(blocks: Blocks) -> tuple[Array, Array]:
    """Attended inputs and labels of all of them."""
    attended, labels = zip(*blocks, strict=True)
    return jnp.asarray(np.concatenate(attended)), jnp.asarray(np.concatenate(labels))


def shown_examples(
    task: Task, readout
) -> tuple[Int[np.ndarray, " shown_example"], Examples] | None:
    """Numbers of training examples spread over the labels, and these, attended; None: not held."""
    chosen = spread_over_labels(task.train, MOST_SHOWN)
    if chosen is None:
        return None
    part = held(task.train).part(chosen)
    attended = np.asarray(attend_block(part, readout, task.pairs))
    return chosen, Examples(attended, part.labels, path_heads=task.heads)
