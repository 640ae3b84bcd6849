"""A network outside the theory: values with a ReLU, or normalised between layers.

There is no sum over attention paths, so its tokens are followed one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.attention.padding import tokens_in_order
from sampler.posterior.density import (
    Position,
    observed_hyper_parameters,
    weights_at,
)
from sampler.posterior.pointwise import LabelledExamples, given_weights
from sampler.recipes.sections import paired
from sampler.tasks.splits import Split
from theory.activations import activation
from theory.architecture import Architecture, Values

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
        z^{l+1}_t = Σ_h Σ_s φ(V_l^h z^l_s/√N_l) Ω^{l,h}_{st} / √H_l
        f = a z^{L+1} t* / √N_a

    values         φ: "linear", "relu", "erf" or "gelu" (`theory.activations`)
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


def predict_split(weights: Weights, tokens: tuple, network: TokenNetwork):
    """f(x) of every example of a split, from its `arrays`."""
    return predict_tokens(weights, *tokens, network)


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
            values = values / values.shape[0] ** 0.5
            outputs = scaled(weights[f"V_{layer + 1}"]) / values.shape[0] ** 0.5
            by_head = jnp.einsum("hmn,kn->hkm", values, hidden)
            inner = activation(jnp.einsum("hkq,hkm->kqm", omega, by_head), network.values)
            # Σ_s W_out(Ω_st) φ(W_val(Ω_st) z_s): tokens are summed before W_out, of which there is
            # one per head, not one per pair of tokens.
            hidden = jnp.einsum("hum,hqm->qu", outputs, jnp.einsum("hkq,kqm->hqm", omega, inner))
        else:
            moved = activation(jnp.einsum("hmn,kn->hkm", values, hidden), network.values)
            hidden = jnp.einsum("hkm,hkq->qm", moved, omega) / values.shape[0] ** 0.5
        if network.layer_norm:
            hidden = layer_normalised(hidden)
    return weights["a"] @ hidden.mean(axis=0) / arch.widths[-1] ** 0.5


def scaled(values: Float[Array, "head above below"]) -> Float[Array, "head above below"]:
    """V_l/√N_l."""
    return values / values.shape[2] ** 0.5


def layer_normalised(hidden: Float[Array, "token unit"]) -> Float[Array, "token unit"]:
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
    def of(cls, split: Split, readout: str) -> "TokenSplit":
        """The tokens of a split; where the last is read, padding is put before the first."""
        inputs, attention = split.inputs, split.attention
        if split.lengths is not None and readout == "last":
            behind = split.tokens - split.lengths[:, None]
            order = (np.arange(split.tokens) - behind) % split.tokens
            inputs, attention = tokens_in_order(inputs, attention, order)
        return cls(jnp.asarray(inputs), tuple(map(jnp.asarray, attention)))

    @property
    def arrays(self) -> tuple:
        """The arguments of `predict_tokens` after the weights."""
        return self.inputs, self.attention

    def astype(self, dtype) -> "TokenSplit":
        attention = tuple(jnp.asarray(omega, dtype) for omega in self.attention)
        return TokenSplit(jnp.asarray(self.inputs, dtype), attention)


def observe_tokens(
    key: Array,
    position: Position,
    temperature: Float[Array, ""],
    variances: Float[Array, " layer"],
    test: tuple,
    validation: tuple | None = None,
    training: LabelledExamples | None = None,
    *,
    network: TokenNetwork,
    keep_weights: bool,
) -> dict[str, Array]:
    """f on the test set and, where there is one, on the validation set.

    And what the draw says of the training labels.
    """
    weights = weights_at(position, network.architecture)
    observables = {"predictor": predict_tokens(weights, *test, network)}
    if validation is not None:
        observables["predictor_validation"] = predict_tokens(weights, *validation, network)
    observables |= observed_hyper_parameters(position, temperature, variances)
    if training is not None:
        outputs = predict_split(weights, training.inputs, network)
        here = observables.get("temperature", temperature)
        observables |= given_weights(key, outputs, training.labels, here)
    return observables | (weights if keep_weights else {})
