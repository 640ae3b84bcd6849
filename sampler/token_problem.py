"""Networks whose tokens are kept, with their data: outside the theory, or of sampled attention."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sampler.attention.sampled import SampledAttention
from sampler.data.examples import StreamedExamples, held, measured_examples
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.mcmc.collected_draws import MOST_POINTWISE
from sampler.posterior.data import SampledPaths, TokenData
from sampler.posterior.exported import FlatDensity, Model, export_model
from sampler.posterior.space import Space
from sampler.posterior.spaces import (
    OF_SAMPLED_PATHS,
    OF_TOKENS,
    ORDER_PARAMETERS,
    WEIGHTS,
    has_own_priors,
    make_space,
    refuse_space,
)
from sampler.settings.network_sections import Network
from sampler.settings.recipe import Recipe
from sampler.token_network import TokenNetwork, token_arrays
from theory.architecture import Architecture


@dataclass(frozen=True, kw_only=True)
class ProblemOfTokens:
    """A network with its data, and the names that its tables have.

    It has no attended inputs: the theory of fixed attention has nothing to work on. Labels of the
    validation set are None where the task has none.

    spaces       that can be sampled
    kind         of network, in words
    prior_space  that draws without data are made in
    """

    network: TokenNetwork | Architecture
    data: TokenData | SampledPaths
    temperature: float
    temperature_spread: float = 0.0
    labels_test: Float[np.ndarray, "test output"] | None = None
    labels_validation: Float[np.ndarray, "validation output"] | None = None
    path_names: tuple[str, ...]
    head_names: tuple[tuple[str, ...], ...]
    layer_numbers: tuple[int, ...] = ()

    spaces: ClassVar[Sequence[str]]
    kind: ClassVar[str]
    prior_space: ClassVar[str]
    attended_validation: ClassVar[None] = None

    @property
    def labels(self) -> Float[Array, "example output"]:
        return self.data.labels

    @property
    def training_examples(self) -> tuple[Any, Array] | None:
        """Tokens and labels of the examples that draws are asked about; None: too many."""
        return (self.data.tokens, self.labels) if self.data.pointwise else None

    @property
    def always_kept(self) -> Sequence[str]:
        """Names of the weights that are stored of every draw."""
        return ()

    def space(
        self, name: str, precision: str = "float64", keep: Sequence[str] = (), whitened: bool = True
    ) -> Space:
        """The posterior in a space and in this precision; its mode is not looked for."""
        refuse_space(name, self.spaces, self.kind)
        data, temperature = self.data.astype(precision), (self.temperature, self.temperature_spread)
        return make_space(name, data, self.network, *temperature, keep=(*self.always_kept, *keep))

    def prior_draws(self, count: int, seed: int, space: str) -> dict[str, np.ndarray]:
        """Draws [draw, …] without data by name: order parameters, weights, labels."""
        name = space if has_own_priors(space) else self.prior_space
        return self.space(name).draws_without_data(count, seed)

    def flat_density(self, space: str) -> FlatDensity:
        """The posterior in a space as a function of one flat vector."""
        return FlatDensity(self.space(space))

    def numpyro_model(self, space: str, sites: tuple[str, ...]) -> Model:
        """The posterior in a space as a NumPyro model; new inputs are as those of the data."""
        return export_model(self.space(space), sites)


class TokenProblem(ProblemOfTokens):
    """A network outside the theory with its data.

    The values are not linear, or normalised between layers: there is no product of weights along a
    path, so no overlap U_l is observed.
    """

    network: TokenNetwork
    data: TokenData

    spaces, kind, prior_space = OF_TOKENS, "a network outside the theory", WEIGHTS

    @property
    def architecture(self) -> Architecture:
        return self.network.architecture

    @property
    def always_kept(self) -> Sequence[str]:
        """Logit weights."""
        return [site for site, _ in self.network.logits]


@dataclass(frozen=True, kw_only=True)
class LearnedProblem(ProblemOfTokens):
    """A network with learned heads and its data.

    exchangeable  whether an exchange of heads leaves the posterior as it is
    """

    network: Architecture
    data: SampledPaths
    exchangeable: bool

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
        """Names of the heads of each layer of attention; some layers serve two of weights."""
        names, start = [], 0
        for is_pair in self.data.attention.pairs:
            names.append(self.head_names[start])
            start += 1 + is_pair
        return tuple(names)


def named_fields(task: Task) -> dict[str, Any]:
    """Properties of a task that every problem has, besides the examples."""
    return {
        "labels_test": task.test.labels,
        "labels_validation": None if task.validation is None else task.validation.labels,
        "path_names": task.path_names,
        "head_names": task.head_names,
        "layer_numbers": task.numbers,
    }


def network_and_heads(
    settings: Network, task: Task, architecture: Architecture
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
    settings = recipe.network
    for name, split in task.named_splits.items():
        if isinstance(split, StreamedExamples):
            remedy = "a network outside the theory follows all tokens, and these examples are too "
            size = f"{split.examples:,} examples"
            raise InputError(f"network ({name} split)", size, f"{remedy}many to be held; use fewer")
        if split.lengths is not None and settings.readout == "mean":
            lengths = f"{split.lengths.min()} to {split.lengths.max()}"
            remedy = f"the sequences of {name} have {lengths} tokens, and outside the theory only "
            remedy += 'one token can be read of such: use "last" or "first"'
            raise InputError("network.readout", "mean", remedy)
    network, heads = network_and_heads(settings, task, architecture)
    splits = {
        name: token_arrays(split, settings.readout, heads)
        for name, split in task.named_splits.items()
    }
    data = TokenData(
        labels=jnp.asarray(task.train.labels),
        tokens=splits["train"],
        tokens_test=splits["test"],
        tokens_validation=splits.get("validation"),
        pointwise=task.train.examples < MOST_POINTWISE,
    )
    posterior = recipe.posterior
    return TokenProblem(
        network=network,
        data=data,
        temperature=posterior.temperature,
        temperature_spread=posterior.temperature_spread,
        **named_fields(task),
    )


def make_learned_problem(recipe: Recipe, task: Task, architecture: Architecture) -> LearnedProblem:
    """Join the tokens of a task with the recipe's network, in float64."""
    shape = task.train.tokens, task.channels
    attention = SampledAttention.of(task.learned, *shape, task.pairs, recipe.network.readout)
    tokens = {
        name: attention.tokens(split.inputs, split.attention)
        for name, split in ((name, held(split)) for name, split in task.named_splits.items())
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
        **named_fields(task),
    )
