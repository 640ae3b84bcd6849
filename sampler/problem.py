"""From a recipe and its task to the numbers that theory and samplers work on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.recipes.recipe import Recipe
from sampler.recipes.sections import paired
from sampler.tasks.task import HeadDistances, Split, Task
from sampler.transformer.frozen import FrozenNetwork
from theory import LearningProblem, attended_inputs, pair_matrices
from theory.architecture import KNOWN, Architecture, HyperPriors

Values = Literal["linear", "relu"]
Weights = Mapping[str, Array]
Matrices = tuple[Float[Array, "_head key query"], ...]
# Hidden vectors of all tokens that are held at a time, for each chain.
EXAMPLES_BYTES = 2**28
# Added to the variance of a normalised layer, as is usual.
NORM_EPSILON = 1e-5
READ = {"last": slice(-1, None), "first": slice(0, 1), "mean": slice(None)}


@dataclass(frozen=True)
class TokenNetwork:
    """A network whose tokens are followed one by one.

        z^1_t = V_0 x_t/√D
        z^{l+1}_t = Σ_h Σ_s φ(V_l^h z^l_s) Ω^{l,h}_{st} / √(H_l N_l)
        f = a z^{L+1} t* / √N_a

    values         "linear": φ(u) = u; "relu": φ(u) = √2 max(u, 0), where √2 keeps the second moment
                   of a symmetric u
    hypernetworks  one entry per attention; where true, it serves two layers of weights,

                       z^{l+2}_t = Σ_s W_out(Ω_st) φ(W_val(Ω_st) z^l_s),
                       W_val(ω) = Σ_h ω_h V_l^h/√(H N_l),  W_out(ω) = Σ_h ω_h V_{l+1}^h/√(H N_{l+1})

                   with Ω_st the vector over heads (arXiv 2406.05816; with the ReLU this is HYLA)
    layer_norm     whether z ← (z − mean)/√(variance + 10⁻⁵) over the units of each token after
                   every attention, without learned scale
    readout        t*: "last", "first" or "mean"

    Raises ValueError if `hypernetworks` does not fit the heads of the architecture.
    """

    architecture: Architecture
    hypernetworks: tuple[bool, ...]
    values: Values
    layer_norm: bool
    readout: Literal["last", "first", "mean"]

    def __post_init__(self) -> None:
        heads = self.architecture.heads
        lowest = self.lowest_layers
        if (
            len(paired(self.hypernetworks, self.hypernetworks)) != len(heads)
            or tuple(heads[layer - 1] for layer in paired(lowest, self.hypernetworks)) != heads
        ):
            raise ValueError(
                f"hypernetworks = {self.hypernetworks}: must give heads = {heads}, with the same "
                "number of heads in both layers of each"
            )

    @property
    def lowest_layers(self) -> tuple[int, ...]:
        """For each attention the first layer l of weights that it serves."""
        return tuple(
            1 + place + sum(self.hypernetworks[:place]) for place in range(len(self.hypernetworks))
        )


def predict_tokens(
    weights: Weights,
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head key query"], ...],
    network: TokenNetwork,
) -> Float[Array, "example output"]:
    """f(x) of every example: here, and nowhere else, examples are batched.

    As many at a time as hold their hidden vectors in `EXAMPLES_BYTES`; where these are not all, the
    gradient computes the vectors again instead of keeping them.
    """

    def one(example):
        return predict_example(weights, *example, network)

    batch = max(1, EXAMPLES_BYTES // (inputs.dtype.itemsize * hidden_numbers(inputs, network)))
    if batch >= inputs.shape[0]:
        return jax.vmap(one)((inputs, attention))
    return jax.lax.map(jax.checkpoint(one), (inputs, attention), batch_size=batch)


def hidden_numbers(inputs: Float[Array, "example token channel"], network: TokenNetwork) -> int:
    """Numbers of the largest hidden array of one example, values of all heads included."""
    arch, tokens = network.architecture, inputs.shape[1]
    per_layer = [arch.channels * tokens]
    for layer, is_pair in zip(network.lowest_layers, network.hypernetworks, strict=True):
        units = arch.widths[layer]
        per_layer.append(tokens * units * (tokens if is_pair else arch.heads[layer - 1]))
    return max(per_layer)


def predict_example(
    weights: Weights,
    inputs: Float[Array, "token channel"],
    attention: Matrices,
    network: TokenNetwork,
) -> Float[Array, " output"]:
    """f(x) of one example, as `TokenNetwork` defines it."""
    arch = network.architecture
    hidden = inputs @ weights["V_0"].T / arch.channels**0.5
    for place, layer in enumerate(network.lowest_layers):
        omega = attention[place]
        if place + 1 == len(attention):
            omega = omega[:, :, READ[network.readout]]  # no other query of the last layer is read
        values = scaled(weights[f"V_{layer}"])
        if network.hypernetworks[place]:
            outputs = scaled(weights[f"V_{layer + 1}"])
            hidden = hypernetwork_layer(hidden, omega, values, outputs, network.values)
        else:
            hidden = attention_layer(hidden, omega, values, network.values)
        if network.layer_norm:
            hidden = normalised(hidden)
    return weights["a"] @ hidden.mean(axis=0) / arch.widths[-1] ** 0.5


def scaled(
    values: Float[Array, "head above below"],
) -> Float[Array, "head above below"]:
    """V_l/√(H_l N_l)."""
    heads, _, below = values.shape
    return values / (heads * below) ** 0.5


def attention_layer(
    hidden: Float[Array, "key below"],
    omega: Float[Array, "head key query"],
    values: Float[Array, "head above below"],
    kind: Values,
) -> Float[Array, "query above"]:
    """Σ_h Σ_s φ(V^h z_s) Ω^h_{st}, with scaled values."""
    moved = activation(jnp.einsum("hmn,kn->hkm", values, hidden), kind)
    return jnp.einsum("hkm,hkq->qm", moved, omega)


def hypernetwork_layer(
    hidden: Float[Array, "key below"],
    omega: Float[Array, "head key query"],
    values: Float[Array, "head inner below"],
    outputs: Float[Array, "head above inner"],
    kind: Values,
) -> Float[Array, "query above"]:
    """Σ_s W_out(Ω_st) φ(W_val(Ω_st) z_s), with scaled values and outputs."""
    by_head = jnp.einsum("hmn,kn->hkm", values, hidden)
    inner = activation(jnp.einsum("hkq,hkm->kqm", omega, by_head), kind)
    # Tokens are summed before W_out, of which there is one per head, not one per pair of tokens.
    return jnp.einsum("hum,hqm->qu", outputs, jnp.einsum("hkq,kqm->hqm", omega, inner))


def activation(values: Float[Array, "..."], kind: Values) -> Float[Array, "..."]:
    """u, or √2 max(u, 0)."""
    return values if kind == "linear" else 2**0.5 * jax.nn.relu(values)


def normalised(hidden: Float[Array, "token unit"]) -> Float[Array, "token unit"]:
    """(z − mean)/√(variance + 10⁻⁵) over the units of each token."""
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    variance = jnp.mean(centred**2, axis=1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + NORM_EPSILON)


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
    train: Split | None = None

    @cached_property
    def head_distances(self) -> HeadDistances | None:
        """How far heads are apart; computed when the table of the theory asks for it."""
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


AnyProblem = Problem | TokenProblem


def make_problem(recipe: Recipe, task: Task) -> AnyProblem:
    """Attend all inputs of a task and join them with the recipe's network, in float64.

    A network outside the theory keeps its tokens instead.
    """
    architecture = Architecture(
        heads=task.heads,
        widths=recipe.network.layer_widths(task.layers),
        variances=recipe.network.layer_variances(task.layers),
        channels=task.channels,
        outputs=task.outputs,
    )
    if not recipe.network.fits_theory:
        return make_token_problem(recipe, task, architecture)
    readout = recipe.network.readout
    learning = LearningProblem(
        architecture,
        attend_split(task.train, readout, task.pairs),
        jnp.asarray(task.train.labels),
        recipe.posterior.temperature,
        hyper_priors_of(recipe),
    )
    validation = task.validation
    return Problem(
        learning,
        attend_split(task.test, readout, task.pairs),
        task.test.labels,
        task.path_names,
        task.head_names,
        None if validation is None else attend_split(validation, readout, task.pairs),
        None if validation is None else validation.labels,
        task.trained if readout == "mean" else None,
        task.nearest_neighbour,
        task.train,
    )


def attend_split(
    split: Split, readout, pairs: tuple[bool, ...]
) -> Float[Array, "example path channel"]:
    """Attended inputs of a split, a few hundred examples at a time to bound memory.

    `pairs` says which layers of attention serve two layers of weights.
    """
    pieces = []
    for start in range(0, split.examples, ATTEND_EXAMPLES):
        part = slice(start, start + ATTEND_EXAMPLES)
        attention = tuple(
            pair_matrices(jnp.asarray(omega[part])) if is_pair else jnp.asarray(omega[part])
            for omega, is_pair in zip(split.attention, pairs, strict=True)
        )
        pieces.append(attended_inputs(jnp.asarray(split.inputs[part]), attention, readout))
    return jnp.concatenate(pieces)
