"""A network with learned heads, whose attention is sampled, joined with its data."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from sampler.attention.sampled import SampledAttention
from sampler.data.known_heads import KnownHeads, known_heads
from sampler.data.split import measured_examples
from sampler.data.task import Task
from sampler.posterior.data import SampledPaths
from sampler.posterior.spaces import OF_SAMPLED_PATHS, ORDER_PARAMETERS
from sampler.settings.recipe import Recipe
from sampler.token_problem import ProblemOfTokens, named_fields
from theory.architecture import Architecture


@dataclass(frozen=True, kw_only=True)
class LearnedProblem(ProblemOfTokens):
    """A network with learned heads and its data.

    exchangeable  whether an exchange of heads leaves the posterior as it is
    known         for each layer of attention, heads of the task that learned ones are held against
    """

    exchangeable: bool
    known: tuple[KnownHeads, ...] = ()

    spaces, kind, prior_space = OF_SAMPLED_PATHS, "a network of learned heads", ORDER_PARAMETERS

    @property
    def architecture(self) -> Architecture:
        return self.network

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


def make_learned_problem(recipe: Recipe, task: Task, architecture: Architecture) -> LearnedProblem:
    """Join the tokens of a task with the recipe's network, in float64."""
    shape = task.train.tokens, task.channels
    attention = SampledAttention.of(task.learned, *shape, task.pairs, recipe.network.readout)
    tokens = {
        name: attention.tokens(split.inputs, split.attention)
        for name, split in task.named_splits.items()
    }
    data = SampledPaths(
        labels=jnp.asarray(task.train.labels),
        attention=attention,
        tokens=tokens["train"],
        tokens_test=tokens["test"],
        tokens_validation=tokens.get("validation"),
    )
    return LearnedProblem(
        network=architecture,
        data=data,
        temperature=recipe.posterior.temperature,
        temperature_spread=recipe.posterior.temperature_spread,
        exchangeable=task.learned.exchangeable,
        known=known_heads(recipe, task),
        **named_fields(task),
    )
