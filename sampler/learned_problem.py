"""A network with learned heads, whose attention is sampled, joined with its data."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sampler.attention.sampled import SampledAttention, Tokens
from sampler.data.known_heads import KnownHeads, known_heads
from sampler.data.split import Split, measured_examples
from sampler.data.task import Task
from sampler.posterior.data import SampledPaths
from sampler.posterior.exported import Model, export_model
from sampler.posterior.flat_density import FlatDensity
from sampler.posterior.space import Space, draw_prior
from sampler.posterior.spaces import (
    OF_SAMPLED_PATHS,
    ORDER_PARAMETERS,
    make_space,
    refuse_space,
)
from theory.architecture import Architecture


@dataclass(frozen=True)
class LearnedProblem:
    """A network with learned heads and its data, and the names that its tables have.

    It has no attended inputs before attention is sampled: the theory of fixed attention has nothing
    to work on. The validation set is None where the task has none. `known` has, for each layer of
    attention, heads of the task that learned ones are held against.
    """

    architecture: Architecture
    data: SampledPaths
    labels_test: Float[np.ndarray, "test output"] | None
    path_names: tuple[str, ...]
    head_names: tuple[tuple[str, ...], ...]
    temperature: float
    exchangeable: bool
    labels_validation: Float[np.ndarray, "validation output"] | None = None
    temperature_spread: float = 0.0
    known: tuple[KnownHeads, ...] = ()
    layer_numbers: tuple[int, ...] = ()

    @property
    def labels(self) -> Float[Array, "example output"]:
        return self.data.labels

    @property
    def sites(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return self.data.attention.sites

    @property
    def measured(self) -> Int[np.ndarray, " measured"]:
        return measured_examples(len(self.labels))

    @property
    def names_of_attention(self) -> tuple[tuple[str, ...], ...]:
        """Names of the heads of each layer of attention, of which some serve two of weights."""
        names, start = [], 0
        for is_pair in self.data.attention.pairs:
            names.append(self.head_names[start])
            start += 1 + is_pair
        return tuple(names)

    @property
    def attended_validation(self) -> None:
        """There are no attended inputs."""

    @property
    def training_examples(self) -> tuple[Tokens, Array]:
        """Tokens and labels of the examples that every draw is asked about."""
        return self.data.tokens, self.data.labels

    def space(
        self, name: str, precision: str = "float64", keep: Sequence[str] = (), whitened: bool = True
    ) -> Space:
        """The posterior of attention and weights in a space; its mode is not looked for."""
        refuse_space(name, OF_SAMPLED_PATHS, "a network of learned heads")
        data = self.data.astype(precision)
        law = self.architecture, self.temperature, self.temperature_spread
        return make_space(name, data, *law, keep=keep)

    def prior_draws(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data by name: order parameters, logit weights, labels."""
        return draw_prior(self.space(ORDER_PARAMETERS), count, seed)

    def numpyro_model(self, space: str, sites: tuple[str, ...], whole: None = None) -> Model:
        """The posterior in a space as a NumPyro model; new inputs are `Tokens`."""
        return export_model(self.space(space), sites)

    def flat_density(self, space: str) -> FlatDensity:
        """The posterior in a space as a function of one flat vector."""
        return FlatDensity(self.space(space))


def make_learned_problem(recipe, task: Task, architecture: Architecture):
    """Join the tokens of a task with the recipe's network, in float64."""
    readout = recipe.network.readout
    shape = task.train.tokens, task.channels
    attention = SampledAttention.of(task.learned, *shape, task.pairs, readout)

    def tokens_of(split: Split) -> Tokens:
        return attention.tokens(split.inputs, split.attention)

    validation = task.validation
    data = SampledPaths(
        labels=jnp.asarray(task.train.labels),
        attention=attention,
        tokens=tokens_of(task.train),
        tokens_test=tokens_of(task.test),
        tokens_validation=None if validation is None else tokens_of(validation),
    )
    return LearnedProblem(
        architecture,
        data,
        task.test.labels,
        task.path_names,
        task.head_names,
        recipe.posterior.temperature,
        task.learned.exchangeable,
        None if validation is None else validation.labels,
        recipe.posterior.temperature_spread,
        known_heads(recipe, task),
        task.numbers,
    )
