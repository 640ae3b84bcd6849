"""From a recipe and the tokens of its task to a network outside the theory with its data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.attention.sampled import SampledAttention
from sampler.data.split import Split, StreamedSplit
from sampler.data.task import Task
from sampler.errors import InputError, Setting
from sampler.mcmc.kept import MOST_POINTWISE
from sampler.posterior.data import Tokens
from sampler.posterior.exported import Model, export_model
from sampler.posterior.flat_density import FlatDensity
from sampler.posterior.space import Space, draw_prior
from sampler.posterior.spaces import OF_TOKENS, WEIGHTS, make_space, refuse_space
from sampler.settings.network import NetworkSection
from sampler.settings.recipe import Recipe
from sampler.token_network import TokenNetwork, TokenSplit
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

    @property
    def training_examples(self) -> tuple[Any, Array] | None:
        """Tokens and labels of the examples that draws are asked about; None: too many."""
        return None if len(self.labels) >= MOST_POINTWISE else (self.train.arrays, self.labels)

    def space(
        self, name: str, precision: str = "float64", keep: Sequence[str] = (), whitened: bool = True
    ) -> Space:
        """The posterior in a space and in this precision; logit weights are always stored.

        The values are not linear, or normalised between layers: there is no product of weights
        along a path, so no overlap U_l is observed.
        """
        refuse_space(name, OF_TOKENS, "a network outside the theory")
        validation = self.validation
        data = Tokens(
            labels=self.labels,
            tokens=self.train.arrays,
            tokens_test=self.test.arrays,
            tokens_validation=None if validation is None else validation.arrays,
            pointwise=self.training_examples is not None,
        )
        law = self.network, self.temperature, self.temperature_spread
        logits = (site for site, _ in self.network.logits)
        return make_space(name, data.astype(precision), *law, keep=(*logits, *keep))

    def prior_draws(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data by name; what depends on tokens by the model itself."""
        return draw_prior(self.space(WEIGHTS), count, seed)

    def flat_density(self, space: str) -> FlatDensity:
        """The posterior in a space as a function of one flat vector."""
        return FlatDensity(self.space(space))

    def numpyro_model(self, space: str, sites: tuple[str, ...], whole: None = None) -> Model:
        """The posterior in a space as a NumPyro model.

        Inputs are tokens and attention matrices, `TokenSplit.arrays`.
        """
        return export_model(self.space(space), sites)


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
                Setting("network", "readout"),
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
