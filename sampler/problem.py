"""From a recipe and its task to the numbers that theory and samplers work on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sampler.errors import InputError
from sampler.learned_problem import LearnedProblem, make_learned_problem
from sampler.mcmc.kept import MOST_POINTWISE
from sampler.posterior.density import Density
from sampler.posterior.flat_density import FlatDensity
from sampler.posterior.numpyro_model import Model, WholeTrainingSet, make_numpyro_model
from sampler.posterior.pointwise import LabelledExamples
from sampler.posterior.prior import prior_draws
from sampler.posterior.spaces import make_density
from sampler.recipes.recipe import Recipe
from sampler.tasks.splits import AnySplit, AttendedSplit, Split, spread_over_labels
from sampler.tasks.task import HeadDistances, Task
from sampler.token_problem import TokenProblem, make_token_problem
from sampler.transformer.model import FrozenNetwork
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

# Training examples that kernels are shown of.
MOST_SHOWN = 40


@dataclass(frozen=True)
class ShownExamples:
    """Some training examples, sorted by label, and which of the training examples they are."""

    numbers: Int[np.ndarray, " shown_example"]
    labels: Float[np.ndarray, "shown_example output"]
    attended: Float[Array, "shown_example path channel"]


# Examples of a pass that are asked for at a time: what is computed of them stays small.
MOST_PASSED = 2048


@dataclass(frozen=True)
class TrainingData:
    """All training examples, attended block by block, where rows stand for them."""

    split: AnySplit
    readout: str
    pairs: tuple[bool, ...]

    def blocks(
        self,
    ) -> Iterator[tuple[Float[Array, "example path channel"], Float[np.ndarray, "example output"]]]:
        """Attended inputs and labels, few examples at a time."""
        for block in self.split.blocks():
            attended = attend_block(block, self.readout, self.pairs)
            for start in range(0, len(attended), MOST_PASSED):
                part = slice(start, start + MOST_PASSED)
                yield attended[part], block.labels[part]


@dataclass(frozen=True)
class Problem:
    """One network with its data: the learning problem, the test set, and the names of its paths.

    The validation set, on which settings are chosen, is None where the task has none; so is the
    trained network, where there is none or tokens are not read as it reads them, the training
    split, where it has attended inputs instead of tokens, and the examples that are shown, where
    they are not held. `whole` has the training examples where rows stand for them.
    """

    learning: LearningProblem
    attended_test: Float[Array, "test path channel"]
    labels_test: Float[np.ndarray, "test output"] | None
    path_names: tuple[str, ...]
    head_names: tuple[tuple[str, ...], ...]
    attended_validation: Float[Array, "validation path channel"] | None = None
    labels_validation: Float[np.ndarray, "validation output"] | None = None
    trained: FrozenNetwork | None = None
    nearest_neighbour: Float[np.ndarray, " test"] | None = None
    train: Split | None = None
    shown: ShownExamples | None = None
    whole: TrainingData | None = None
    layer_numbers: tuple[int, ...] = ()

    @cached_property
    def training_examples(self) -> LabelledExamples | None:
        """The examples of which every draw says something; None where they are too many.

        Also where rows stand for examples that are not known.
        """
        learning = self.learning
        if learning.examples >= MOST_POINTWISE:
            return None
        if learning.residual is None:
            return LabelledExamples(learning.attended, learning.labels)
        if self.whole is None:
            return None
        attended, labels = zip(*self.whole.blocks(), strict=True)
        arrays = (jnp.asarray(np.concatenate(one)) for one in (attended, labels))
        return LabelledExamples(*arrays, rows=True)

    def blocks(
        self,
    ) -> Iterator[tuple[Float[Array, "example path channel"], Float[Array, "example output"]]]:
        """Attended inputs and labels of all training examples; nothing where they are not known."""
        if self.learning.residual is None:
            yield self.learning.attended, self.learning.labels
        elif self.whole is not None:
            yield from self.whole.blocks()

    @cached_property
    def head_distances(self) -> HeadDistances | None:
        """Distances between heads; computed when the table of the theory asks for them."""
        return None if self.train is None else HeadDistances.of(self.train)

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
        with jax.enable_x64(True):
            factor = jnp.asarray(square_roots(order_parameter))
            moments = predict(Predictor.for_examples(self.learning, self.attended_test), factor)
        mean, variance = (np.asarray(one) for one in moments)
        if self.architecture.outputs == 1:
            mean, variance = mean[:, 0], variance[:, 0]
        return {
            "order_parameter": np.asarray(order_parameter, dtype=np.float64),
            "predictor_mean": mean,
            "predictor_variance": variance,
        }

    def density(self, space: str, precision: str, with_weights: bool) -> Density:
        """The posterior in a space of the recipe and in this precision."""
        learning, training = self.learning.astype(precision), self.training_examples
        training = None if training is None else training.astype(precision)
        arrays = learning, self.attended_test
        density = make_density(space, *arrays, with_weights, training=training)
        if learning.examples < MOST_POINTWISE or space != "weights":
            return density
        # From these weights of some draws follows what they say of too many examples for all draws.
        return replace(density, passing=())

    def prior_draws(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data by name, as `sampler.posterior.prior` makes them."""
        return prior_draws(self.learning, self.training_examples, count, seed)

    def flat_density(self, space: str) -> FlatDensity:
        """The posterior in a space as a function of one flat vector."""
        density = make_density(space, self.learning, self.attended_test, False, whitened=False)
        return FlatDensity(density, self.learning.residual_log_likelihood)

    def numpyro_model(
        self, space: str, sites: tuple[str, ...], whole: WholeTrainingSet | None = None
    ) -> Model:
        """The posterior in a space as a NumPyro model; `whole` where rows stand for examples."""
        return make_numpyro_model(space, self.learning, self.attended_test, sites, whole)


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
    law = recipe.posterior.temperature, recipe.posterior.temperature_spread
    try:
        if is_folded(recipe, task):
            if triangle is None:
                *_, triangle = fold_training(recipe, task)
            learning = triangle.learning_problem(architecture, *law)
        else:
            attended = attend_split(task.train, readout, task.pairs)
            labels = jnp.asarray(task.train.labels)
            learning = LearningProblem(architecture, attended, labels, *law)
    except TemperatureTooSmall as error:
        raise InputError("temperature", error.temperature, error.remedy) from None
    validation = task.validation
    return Problem(
        learning,
        attend_split(task.test, readout, task.pairs),
        task.test.labels,
        task.path_names,
        task.head_names,
        None if validation is None else attend_split(validation, readout, task.pairs),
        None if validation is None else validation.labels,
        task.trained if task.trained is not None and task.trained.readout == readout else None,
        task.nearest_neighbour,
        task.train if isinstance(task.train, Split) else None,
        show_examples(task, readout),
        TrainingData(task.train, readout, task.pairs) if is_folded(recipe, task) else None,
        task.numbers,
    )


def show_examples(task: Task, readout) -> ShownExamples | None:
    """The training examples that kernels are shown of; None where they are not held."""
    chosen = spread_over_labels(task.train, MOST_SHOWN)
    if chosen is None:
        return None
    part = task.train.part(chosen)
    return ShownExamples(chosen, part.labels, attend_block(part, readout, task.pairs))


def is_folded(recipe: Recipe, task: Task) -> bool:
    """Whether rows of a triangle stand for the training examples: more than p_1 D = Π D."""
    features = math.prod(task.heads) * task.channels
    return recipe.has_theory and features < task.train.examples


def whole_training_set(recipe: Recipe, task: Task) -> WholeTrainingSet | None:
    """Attended inputs and labels of all examples, where rows of a triangle stand for them."""
    if not is_folded(recipe, task):
        return None
    attended = attend_split(task.train, recipe.network.readout, task.pairs)
    return np.asarray(attended), task.train.labels


def fold_training(recipe: Recipe, task: Task, start: Triangle | None = None) -> Iterator[Triangle]:
    """The triangle of more and more training examples, the last one of all of them.

    It goes on from a triangle of the first ones.
    """
    if start is None:
        start = Triangle.empty(math.prod(task.heads), task.channels, task.outputs)
    blocks = task.train.blocks(start.examples)
    return start.fold_all(
        (attend_block(block, recipe.network.readout, task.pairs), block.labels) for block in blocks
    )


def attend_split(
    split: AnySplit, readout, pairs: tuple[bool, ...]
) -> Float[Array, "example path channel"]:
    """Attended inputs of a split, block by block to bound memory.

    `pairs` says which layers of attention serve two layers of weights.
    """
    if isinstance(split, AttendedSplit):
        return jnp.asarray(split.attended)
    return jnp.concatenate([attend_block(block, readout, pairs) for block in split.blocks()])


def attend_block(
    split: Split | AttendedSplit, readout, pairs: tuple[bool, ...]
) -> Float[Array, "example path channel"]:
    """Attended inputs of a split whose arrays are held."""
    if isinstance(split, AttendedSplit):
        return jnp.asarray(split.attended)
    attention = tuple(
        pair_matrices(jnp.asarray(omega)) if is_pair else jnp.asarray(omega)
        for omega, is_pair in zip(split.attention, pairs, strict=True)
    )
    lengths = None if split.lengths is None else jnp.asarray(split.lengths)
    return attended_inputs(jnp.asarray(split.inputs), attention, readout, lengths)
