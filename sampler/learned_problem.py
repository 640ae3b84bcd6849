"""A network with learned heads, whose attention is sampled, joined with its data."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sampler.attention.sampled import SampledAttention, Tokens
from sampler.posterior.density import Density, temperature_ratio
from sampler.posterior.flat_density import FlatDensity
from sampler.posterior.learned_attention import (
    AttendingExamples,
    attending_density,
    drawn_outputs,
)
from sampler.posterior.numpyro_model import Model, make_model_with_attention
from sampler.posterior.pointwise import LabelledExamples, new_labels
from sampler.posterior.prior import prior_keys
from sampler.posterior.weight_draws import WeightDraws, weights_of_draws
from sampler.tasks.known_heads import KnownHeads, known_heads, measured_examples
from sampler.tasks.splits import Split
from sampler.tasks.task import Task
from theory.architecture import Architecture
from theory.wishart_chain import WishartChain


@dataclass(frozen=True)
class LearnedProblem:
    """A network with learned heads and its data, and the names that its tables have.

    It has no attended inputs before attention is sampled: the theory of fixed attention has nothing
    to work on. The validation set is None where the task has none. `known` has, for each layer of
    attention, heads of the task that learned ones are held against.
    """

    architecture: Architecture
    examples: AttendingExamples
    test: Tokens
    labels_test: Float[np.ndarray, "test output"] | None
    path_names: tuple[str, ...]
    head_names: tuple[tuple[str, ...], ...]
    temperature: float
    exchangeable: bool
    validation: Tokens | None = None
    labels_validation: Float[np.ndarray, "validation output"] | None = None
    temperature_spread: float = 0.0
    known: tuple[KnownHeads, ...] = ()
    layer_numbers: tuple[int, ...] = ()

    @property
    def labels(self) -> Float[Array, "example output"]:
        return self.examples.labels

    @property
    def sites(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return self.examples.attention.sites

    @property
    def measured(self) -> Int[np.ndarray, " measured"]:
        return measured_examples(len(self.labels))

    @property
    def names_of_attention(self) -> tuple[tuple[str, ...], ...]:
        """Names of the heads of each layer of attention, of which some serve two of weights."""
        found, start = [], 0
        for is_pair in self.examples.attention.pairs:
            found.append(self.head_names[start])
            start += 1 + is_pair
        return tuple(found)

    @property
    def attended_validation(self) -> None:
        """There are no attended inputs."""

    @cached_property
    def training_examples(self) -> LabelledExamples:
        """The examples of which every draw says something."""
        return LabelledExamples((self.examples.tokens,), self.labels)

    def density(self, space: str, precision: str, with_weights: bool) -> Density:
        """The posterior of attention and weights in a space and in this precision."""
        validation = self.validation
        return attending_density(
            space,
            self.examples.astype(precision),
            self.test.astype(precision),
            None if validation is None else validation.astype(precision),
            self.architecture,
            self.temperature_spread,
            with_weights,
        )

    def prior_draws(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data by name: order parameters, logit weights, labels."""
        density = self.density("order_parameters", "float64", False)
        found = _drawn_prior(prior_keys(seed, count), density)
        return {name: np.asarray(values) for name, values in found.items()}

    def weight_draws(
        self, positions: Mapping[str, np.ndarray], count: int, seed: int, precision: str
    ) -> WeightDraws:
        """Draw all weights for `count` evenly spaced draws of every chain, given their attention.

        positions  logit weights and Bartlett coordinates [chain, draw, …], by site
        """
        examples = self.examples.astype(precision)
        coordinates = self.density("order_parameters", precision, False).coordinates
        chain = WishartChain.of(self.architecture, examples.variances.dtype)
        return weights_of_draws(
            examples, chain, self.architecture, coordinates, positions, count, seed
        )

    def numpyro_model(self, space: str, sites: tuple[str, ...], whole: None = None) -> Model:
        """The posterior in a space as a NumPyro model; new inputs are `Tokens`."""
        laws = self.architecture, self.temperature_spread
        return make_model_with_attention(space, self.examples, *laws, self.test, sites)

    def flat_density(self, space: str) -> FlatDensity:
        """The posterior in a space as a function of one flat vector."""
        return FlatDensity(self.density(space, "float64", False), 0.0)


@jax.jit
def _drawn_prior(keys, density: Density):
    examples = density.arguments[0]

    def one(key):
        site_key, output_key, noise_key = jax.random.split(key, 3)
        position = density.draw_prior(site_key)
        seen = density.observe(key, position, *density.observed)
        outputs = drawn_outputs(output_key, seen, examples)
        noise = examples.temperature * temperature_ratio(position)
        kept = {name: values for name, values in seen.items() if name not in density.passing}
        return kept | new_labels(noise_key, outputs, noise)

    return jax.lax.map(one, keys)


def make_learned_problem(recipe, task: Task, architecture: Architecture):
    """Join the tokens of a task with the recipe's network, in float64."""
    readout = recipe.network.readout
    shape = task.train.tokens, task.channels
    attention = SampledAttention.of(task.learned, *shape, task.pairs, readout)

    def tokens_of(split: Split) -> Tokens:
        return attention.tokens(split.inputs, split.attention)

    temperature = recipe.posterior.temperature
    examples = AttendingExamples(
        attention,
        tokens_of(task.train),
        jnp.asarray(task.train.labels),
        jnp.asarray(temperature),
        jnp.asarray(architecture.variances),
    )
    validation = task.validation
    return LearnedProblem(
        architecture,
        examples,
        tokens_of(task.test),
        task.test.labels,
        task.path_names,
        task.head_names,
        temperature,
        task.learned.exchangeable,
        None if validation is None else tokens_of(validation),
        None if validation is None else validation.labels,
        recipe.posterior.temperature_spread,
        known_heads(recipe, task),
        task.numbers,
    )
