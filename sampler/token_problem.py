"""From a recipe and the tokens of its task to a network outside the theory with its data."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.attention.sampled import SampledAttention
from sampler.errors import InputError
from sampler.mcmc.kept import (
    LOG_LIKELIHOOD,
    LOG_PRIOR,
    MOST_POINTWISE,
    PREDICTOR_VALIDATION,
    PREDICTORS,
)
from sampler.posterior.density import Density, specialised
from sampler.posterior.flat_density import FlatDensity
from sampler.posterior.hidden_weights import hidden_weight_density
from sampler.posterior.numpyro_model import Model, make_model_of_weights
from sampler.posterior.pointwise import LabelledExamples
from sampler.posterior.prior import prior_keys
from sampler.posterior.weights import weight_model, weight_priors
from sampler.recipes.recipe import Recipe
from sampler.recipes.sections import NetworkSection
from sampler.tasks.splits import Split, StreamedSplit
from sampler.tasks.task import Task
from sampler.token_network import (
    TokenNetwork,
    TokenSplit,
    observe_tokens,
    predict_split,
)
from theory.architecture import Architecture


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
    temperature_spread: float = 0.0
    layer_numbers: tuple[int, ...] = ()

    @property
    def architecture(self) -> Architecture:
        return self.network.architecture

    @property
    def attended_validation(self) -> None:
        """There are no attended inputs."""

    def density(self, space: str, precision: str, with_weights: bool) -> Density:
        """The posterior in a space and in this precision; per draw f(x), and weights if kept.

        The values are not linear, or normalised between layers: there is no product of weights
        along a path, so no overlap U_l is observed. Raises ValueError for another space.
        """
        refuse_space(space)
        problem = self.astype(precision)
        labels, temperature_spread = problem.labels, problem.temperature_spread
        network = problem.network.sizes
        if space == "hidden_weights":
            validation = problem.validation
            logits = tuple(name for name, _ in network.logits)
            return hidden_weight_density(
                problem.train.arrays,
                labels,
                problem.temperature,
                problem.network,
                specialised(predict_split, network=network),
                problem.test.arrays,
                temperature_spread=temperature_spread,
                validation=None if validation is None else validation.arrays,
                training=problem.training_examples,
                kept=tuple(network.weight_shapes) if with_weights else logits,
            )
        temperature = jnp.asarray(problem.temperature, labels.dtype)
        variances = jnp.asarray(problem.architecture.variances, labels.dtype)
        return Density(
            name="weights",
            model=specialised(
                weight_model,
                architecture=network,
                temperature_spread=temperature_spread,
                predict=specialised(predict_split, network=network),
            ),
            arguments=(problem.train.arrays, labels, temperature, variances),
            priors=weight_priors(network, variances, temperature_spread),
            observe=specialised(observe_tokens, network=network, with_weights=with_weights),
            observed=(
                temperature,
                problem.test.arrays,
                None if problem.validation is None else problem.validation.arrays,
                problem.training_examples,
            ),
        )

    @property
    def training_examples(self) -> LabelledExamples | None:
        """The examples of which every draw says something; None where they are too many."""
        if len(self.labels) >= MOST_POINTWISE:
            return None
        return LabelledExamples(self.train.arrays, self.labels)

    def prior_draws(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data by name; what depends on tokens by the model itself."""
        observe = self.density("weights", "float64", False)
        found = _observed_prior(prior_keys(seed, count), observe)
        known = {name: np.asarray(values) for name, values in found.items()}
        return {name: v for name, v in known.items() if name not in NOT_OF_PRIOR}

    def flat_density(self, space: str) -> FlatDensity:
        """The posterior in a space as a function of one flat vector."""
        return FlatDensity(self.density(space, "float64", False), 0.0)

    def numpyro_model(self, space: str, sites: tuple[str, ...], whole: None = None) -> Model:
        """The posterior in a space as a NumPyro model.

        Inputs are pairs of tokens and attention matrices, `TokenSplit.arrays`.
        """
        refuse_space(space)
        return make_model_of_weights(
            self.train.arrays,
            self.labels,
            self.test.arrays,
            sites,
            temperature=self.temperature,
            architecture=self.network,
            temperature_spread=self.temperature_spread,
            predict=specialised(predict_split, network=self.network.sizes),
            hidden=space == "hidden_weights",
        )

    def astype(self, dtype) -> "TokenProblem":
        return replace(
            self,
            train=self.train.astype(dtype),
            labels=jnp.asarray(self.labels, dtype),
            test=self.test.astype(dtype),
            validation=None if self.validation is None else self.validation.astype(dtype),
        )


def refuse_space(space: str) -> None:
    """Raise ValueError for a space that a network outside the theory does not have."""
    if space not in ("hidden_weights", "weights"):
        known = '"hidden_weights" and "weights"'
        raise ValueError(f"space {space!r}: a network outside the theory has only {known}")


# What is read off a position and says something of data, or of the test set.
NOT_OF_PRIOR = (LOG_LIKELIHOOD, LOG_PRIOR, PREDICTOR_VALIDATION, *PREDICTORS)


@jax.jit
def _observed_prior(keys, density: Density):
    def one(key):
        return density.observables(key, density.draw_prior(key))

    return jax.lax.map(one, keys)


def network_and_heads(
    settings: NetworkSection, task: Task, architecture: Architecture
) -> tuple[TokenNetwork, SampledAttention | None]:
    """The network of a recipe on a task, and its learned heads, where it has such."""
    network = TokenNetwork(
        architecture,
        task.pairs,
        settings.values,
        settings.norm,
        settings.readout,
        settings.residual,
        settings.mlp,
    )
    if task.learned is None:
        return network, None
    below = [architecture.widths[layer - 1] for layer in network.lowest_layers]
    shape = task.train.tokens, task.channels
    heads = SampledAttention.of(task.learned, *shape, task.pairs, settings.readout, below)
    return replace(network, logits=heads.sites, stream=task.learned.stream), heads


def make_token_problem(recipe: Recipe, task: Task, architecture: Architecture) -> TokenProblem:
    """Join the tokens of a task with the recipe's network, in float64."""
    settings, validation = recipe.network, task.validation
    for name, split in (("train", task.train), ("test", task.test), ("validation", validation)):
        if isinstance(split, StreamedSplit):
            raise InputError(
                f"network ({name} split)",
                f"{split.examples:,} examples",
                "a network outside the theory follows all tokens, and these examples are too many "
                "to be held; use fewer of them",
            )
        if split is not None and split.lengths is not None and settings.readout == "mean":
            raise InputError(
                "network.readout",
                "mean",
                f"the sequences of {name} have {split.lengths.min()} to {split.lengths.max()} "
                'tokens, and outside the theory only one token can be read of such: use "last" or '
                '"first"',
            )
    network, heads = network_and_heads(settings, task, architecture)

    def tokens_of(split: Split) -> TokenSplit:
        return TokenSplit.of(split, settings.readout, heads)

    return TokenProblem(
        network,
        tokens_of(task.train),
        jnp.asarray(task.train.labels),
        recipe.posterior.temperature,
        tokens_of(task.test),
        task.test.labels,
        task.path_names,
        task.head_names,
        None if validation is None else tokens_of(validation),
        None if validation is None else validation.labels,
        recipe.posterior.temperature_spread,
        task.numbers,
    )
