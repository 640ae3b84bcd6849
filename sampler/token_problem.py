"""The data of a network outside the theory, which needs every token and not its paths alone."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.recipes.recipe import Recipe
from sampler.tasks.task import Split, Task
from sampler.token_network import TokenNetwork
from theory.architecture import Architecture
from theory.hyper_priors import KNOWN, HyperPriors


@dataclass(frozen=True)
class TokenSplit:
    """Inputs and attention matrices [example, head, key, query] of a split, one per attention."""

    inputs: Float[Array, "example token channel"]
    attention: tuple[Float[Array, "example _head key query"], ...]

    @classmethod
    def of(cls, split: Split) -> "TokenSplit":
        return cls(jnp.asarray(split.inputs), tuple(map(jnp.asarray, split.attention)))

    @property
    def arrays(self) -> tuple:
        """What `predict_tokens` takes after the weights."""
        return self.inputs, self.attention

    def astype(self, dtype) -> "TokenSplit":
        """The same in another floating-point precision."""
        attention = tuple(jnp.asarray(omega, dtype) for omega in self.attention)
        return TokenSplit(jnp.asarray(self.inputs, dtype), attention)


@dataclass(frozen=True)
class TokenProblem:
    """A network outside the theory with its data, and the names that its tables have.

    It has no attended inputs: theory and collapsed spaces have nothing to work on. The validation
    set is None where the task has none.
    """

    network: TokenNetwork
    train: TokenSplit
    labels: Float[Array, "example output"]
    temperature: float
    test: TokenSplit
    labels_test: Float[np.ndarray, "test output"] | None
    path_names: tuple[str, ...]
    head_names: tuple[tuple[str, ...], ...]
    validation: TokenSplit | None = None
    labels_validation: Float[np.ndarray, "validation output"] | None = None
    hyper_priors: HyperPriors = KNOWN

    @property
    def architecture(self) -> Architecture:
        return self.network.architecture

    def astype(self, dtype) -> "TokenProblem":
        """The same problem in another floating-point precision."""
        return replace(
            self,
            train=self.train.astype(dtype),
            labels=jnp.asarray(self.labels, dtype),
            test=self.test.astype(dtype),
            validation=None if self.validation is None else self.validation.astype(dtype),
        )


def make_token_problem(recipe: Recipe, task: Task, architecture: Architecture) -> TokenProblem:
    """Join the tokens of a task with the recipe's network, in float64."""
    settings, validation = recipe.network, task.validation
    network = TokenNetwork(
        architecture, task.pairs, settings.values, settings.layer_norm, settings.readout
    )
    return TokenProblem(
        network,
        TokenSplit.of(task.train),
        jnp.asarray(task.train.labels),
        recipe.posterior.temperature,
        TokenSplit.of(task.test),
        task.test.labels,
        task.path_names,
        task.head_names,
        None if validation is None else TokenSplit.of(validation),
        None if validation is None else validation.labels,
        hyper_priors_of(recipe),
    )


def hyper_priors_of(recipe: Recipe) -> HyperPriors:
    """How far the recipe's temperature and variances are known."""
    posterior = recipe.posterior
    return HyperPriors(posterior.temperature_spread, posterior.variance_spread)
