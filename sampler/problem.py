"""From a recipe and its task to the numbers that theory and samplers work on."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.analysis.head_distances import HeadDistances
from sampler.jobs.recipe import Recipe
from sampler.tasks.task import Split, Task
from sampler.transformer.frozen import FrozenNetwork
from theory import Architecture, LearningProblem, attended_inputs

ATTEND_EXAMPLES = 256


@dataclass(frozen=True)
class Problem:
    """One network with its data: the learning problem, the test set, and the names of its paths.

    The validation set, on which settings are chosen, is None where the task has none; so is the
    trained network, where there is none or tokens are not read as it reads them.
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
    head_distances: HeadDistances | None = None

    @property
    def architecture(self) -> Architecture:
        return self.learning.architecture


def make_problem(recipe: Recipe, task: Task) -> Problem:
    """Attend all inputs of a task and join them with the recipe's network, in float64."""
    architecture = Architecture(
        heads=task.heads,
        widths=recipe.network.layer_widths(task.layers),
        variances=recipe.network.layer_variances(task.layers),
        channels=task.channels,
        outputs=task.outputs,
    )
    readout = recipe.network.readout
    learning = LearningProblem(
        architecture,
        attend_split(task.train, readout),
        jnp.asarray(task.train.labels),
        recipe.posterior.temperature,
    )
    validation = task.validation
    return Problem(
        learning,
        attend_split(task.test, readout),
        task.test.labels,
        task.path_names,
        task.head_names,
        None if validation is None else attend_split(validation, readout),
        None if validation is None else validation.labels,
        task.trained if readout == "mean" else None,
        task.nearest_neighbour,
        HeadDistances.of(task.train),
    )


def attend_split(split: Split, readout) -> Float[Array, "example path channel"]:
    """Attended inputs of a split, a few hundred examples at a time to bound memory."""
    pieces = [
        attended_inputs(
            jnp.asarray(split.inputs[start : start + ATTEND_EXAMPLES]),
            tuple(jnp.asarray(m[start : start + ATTEND_EXAMPLES]) for m in split.attention),
            readout,
        )
        for start in range(0, split.examples, ATTEND_EXAMPLES)
    ]
    return jnp.concatenate(pieces)
