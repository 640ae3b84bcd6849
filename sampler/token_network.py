"""A network outside the theory: nonlinear values, norms, residuals, MLPs, logits of its stream.

There is no sum over attention paths, so its tokens are followed one by one.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.attention.layers import MlpLike, lowest_layers, mlp_shapes
from sampler.attention.learned import attention_numbers
from sampler.attention.padding import tokens_in_order
from sampler.attention.sampled import READ, AttendingTokens, SampledAttention
from sampler.network import Weights
from theory.architecture import Architecture, Values
from theory.nonlinear_kernels import activation

Matrices = tuple[Float[Array, "_head key _query"], ...]
# Inputs [example, token, channel], attention matrices [example, head, key, query] of each
# attention, and learned heads where there are such.
TokenArrays = tuple[Any, ...]
# Hidden vectors of all tokens that are held at a time, for each chain.
EXAMPLES_BYTES = 2**28
# Added to the variance of a normalised layer, as is usual.
NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class TokenNetwork:
    """A network whose tokens are followed one by one.

        z_t ← V_0 x_t/√D
        z_t ← Σ_h Σ_s φ(V_l^h z_s/√N_l) Ω^{l,h}_{st} / √H_l                       for l = 1 … L
        f = a z t* / √N_a

    values         φ: "linear", "relu", "erf" or "gelu" (`theory.nonlinear_kernels`)
    hypernetworks  one entry per attention; where true, it serves two layers of weights, of as many
                   heads,

                       z_t ← Σ_s W_out(Ω_st) φ(W_val(Ω_st) z_s),
                       W_val(ω) = Σ_h ω_h V_l^h/√(H N_l),  W_out(ω) = Σ_h ω_h V_{l+1}^h/√(H N_{l+1})

                   with Ω_st the vector over heads (arXiv 2406.05816; with the ReLU this is HYLA)
    mlp            width M and activation ψ of z ← W_2 ψ(W_1 z/√N)/√M after each attention, with
                   `mlp_in_l` [M, N] and `mlp_out_l` [N, M] of the prior variance σ_l² of V_l (the
                   upper layer of a hypernetwork); None where there is none
    norm           n(z) = (z − mean)/√(variance + 10⁻⁵) over the units of each token, without
                   learned scale. "before": attention, its logits, MLP and readout read n(z) in the
                   place of z; "after": z ← n(z) after each attention and each MLP; "none"
    residual       z ← (z + …)/√2 in the place of z ← … for each attention and each MLP, which keeps
                   the second moment
    readout        t*: "last", "first" or "mean"
    logits         name and shape of the logit weights of learned heads, standard normal, of which
                   `SampledAttention` makes Ω
    stream         whether these read z/√N_l (n(z)/√N_l where the norm is "before"), or inputs
    """

    architecture: Architecture
    hypernetworks: tuple[bool, ...]
    values: Values
    norm: Literal["none", "before", "after"]
    readout: Literal["last", "first", "mean"]
    residual: bool = False
    mlp: MlpLike | None = None
    logits: tuple[tuple[str, tuple[int, ...]], ...] = ()
    stream: bool = False

    @property
    def lowest_layers(self) -> tuple[int, ...]:
        """For each attention the first layer l of weights that it serves."""
        return lowest_layers(self.hypernetworks)

    @property
    def widths(self) -> tuple[int, ...]:
        return self.architecture.widths

    @property
    def variances(self) -> tuple[float, ...]:
        return self.architecture.variances

    @property
    def outputs(self) -> int:
        return self.architecture.outputs

    @property
    def sizes(self) -> "TokenNetwork":
        """This network with variances of 1: equal for all whose weights have equal shapes."""
        return replace(self, architecture=self.architecture.sizes)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of the architecture, of MLPs and of logits."""
        mlp = mlp_shapes(self.mlp, self.architecture.widths, self.hypernetworks)
        return self.architecture.weight_shapes | mlp | dict(self.logits)

    @property
    def weight_layers(self) -> dict[str, int]:
        """Place of the variance of each array, logits having none."""
        return self.architecture.weight_layers | self.mlp_layers

    @property
    def mlp_layers(self) -> dict[str, int]:
        """Place of the variance of each array of an MLP."""
        shapes = mlp_shapes(self.mlp, self.architecture.widths, self.hypernetworks)
        return {name: int(name.rpartition("_")[2]) for name in shapes}


def predict_tokens(
    weights: Weights,
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head key _query"], ...],
    network: TokenNetwork,
    heads: SampledAttention | None = None,
) -> Float[Array, "example output"]:
    """f(x) of every example: here, and nowhere else, examples are batched.

    As many at a time as hold their hidden vectors in `EXAMPLES_BYTES`; where these are not all, the
    gradient computes the vectors again instead of keeping them.

    attention  of all heads, or of those that are not learned, as in `AttendingTokens`
    heads      the learned ones
    """

    def outputs_of(example):
        return predict_example(weights, *example, network, heads)

    batch = max(1, EXAMPLES_BYTES // (inputs.dtype.itemsize * hidden_numbers(inputs, network)))
    if batch >= inputs.shape[0]:
        return jax.vmap(outputs_of)((inputs, attention))
    return jax.lax.map(jax.checkpoint(outputs_of), (inputs, attention), batch_size=batch)


def predict_split(
    weights: Weights, tokens: TokenArrays, network: TokenNetwork
) -> Float[Array, "example output"]:
    """f(x) of every example of a split, from its `token_arrays`."""
    inputs, attention, *heads = tokens
    return predict_tokens(weights, inputs, attention, network, *heads)


def hidden_numbers(inputs: Float[Array, "example token channel"], network: TokenNetwork) -> int:
    """Numbers of the largest hidden array of one example, values of all heads included."""
    arch, tokens = network.architecture, inputs.shape[1]
    per_layer = [arch.channels * tokens]
    if network.mlp is not None:
        per_layer.append(network.mlp.width * tokens)
    for layer, is_pair in zip(network.lowest_layers, network.hypernetworks, strict=True):
        units, heads = arch.widths[layer], arch.heads[layer - 1]
        per_layer.append(tokens * units * (tokens if is_pair else heads))
        if network.logits:
            read = arch.widths[layer - 1] if network.stream else arch.channels
            per_layer.append(attention_numbers("full", heads, tokens, read, 0))
    return max(per_layer)


def predict_example(
    weights: Weights,
    inputs: Float[Array, "token channel"],
    attention: Matrices,
    network: TokenNetwork,
    heads: SampledAttention | None = None,
) -> Float[Array, " output"]:
    """f(x) of one example, as `TokenNetwork` defines it."""
    arch = network.architecture
    hidden = inputs @ weights["V_0"].T / arch.channels**0.5
    for place, layer in enumerate(network.lowest_layers):
        is_pair, is_last = network.hypernetworks[place], place + 1 == len(network.hypernetworks)
        read = READ[network.readout] if is_last else slice(None)  # no other query is read above
        seen = as_seen(hidden, network)
        if heads is None:
            omega = attention[place][:, :, read]
        else:
            logits_of = seen / arch.widths[layer - 1] ** 0.5 if network.stream else inputs
            tokens = AttendingTokens(logits_of[None], tuple(fixed[None] for fixed in attention))
            omega = heads.columns(weights, tokens, place)[0]
        values = [scaled(weights[f"V_{layer + step}"]) for step in range(1 + is_pair)]
        attend = by_hypernetwork if is_pair else by_values
        hidden = joined(hidden[read], attend(*values, seen, omega, network.values), network)
        if network.mlp is not None:
            arrays = (weights[f"mlp_{name}_{layer + is_pair}"] for name in ("in", "out"))
            moved = by_mlp(*arrays, as_seen(hidden, network), network.mlp.activation)
            hidden = joined(hidden, moved, network)
    return weights["a"] @ as_seen(hidden, network).mean(axis=0) / arch.widths[-1] ** 0.5


def as_seen(hidden: Float[Array, "token unit"], network: TokenNetwork):
    """Return the hidden vectors as attention, MLP and readout read them."""
    return layer_normalised(hidden) if network.norm == "before" else hidden


def joined(
    hidden: Float[Array, "token _below"], branch: Float[Array, "token unit"], network: TokenNetwork
) -> Float[Array, "token unit"]:
    """Hidden vectors above an attention or an MLP, whose output is the branch."""
    new = (hidden + branch) / 2**0.5 if network.residual else branch
    return layer_normalised(new) if network.norm == "after" else new


def by_values(
    values: Float[Array, "head above below"],
    hidden: Float[Array, "key below"],
    omega: Float[Array, "head key query"],
    function: Values,
) -> Float[Array, "query above"]:
    """Σ_h Σ_s φ(V^h z_s/√N) Ω^h_{st}/√H, of values that are scaled already."""
    moved = activation(jnp.einsum("hmn,kn->hkm", values, hidden), function)
    return jnp.einsum("hkm,hkq->qm", moved, omega) / values.shape[0] ** 0.5


def by_hypernetwork(
    values: Float[Array, "head middle below"],
    outputs: Float[Array, "head above middle"],
    hidden: Float[Array, "key below"],
    omega: Float[Array, "head key query"],
    function: Values,
) -> Float[Array, "query above"]:
    """Σ_s W_out(Ω_st) φ(W_val(Ω_st) z_s), of weights that are scaled but for √H."""
    root = values.shape[0] ** 0.5
    by_head = jnp.einsum("hmn,kn->hkm", values, hidden)
    inner = activation(jnp.einsum("hkq,hkm->kqm", omega, by_head) / root, function)
    # Tokens are summed before W_out, of which there is one per head, not one per pair of tokens.
    summed = jnp.einsum("hkq,kqm->hqm", omega, inner)
    return jnp.einsum("hum,hqm->qu", outputs, summed) / root


def by_mlp(
    inner: Float[Array, "middle unit"],
    outer: Float[Array, "unit middle"],
    hidden: Float[Array, "token unit"],
    function: Values,
) -> Float[Array, "token unit"]:
    """W_2 ψ(W_1 z/√N)/√M."""
    middle, units = inner.shape
    return activation(hidden @ inner.T / units**0.5, function) @ outer.T / middle**0.5


def scaled(values: Float[Array, "head above below"]) -> Float[Array, "head above below"]:
    """V_l/√N_l."""
    return values / values.shape[2] ** 0.5


def layer_normalised(hidden: Float[Array, "token unit"]) -> Float[Array, "token unit"]:
    """(z − mean)/√(variance + 10⁻⁵) over the units of each token."""
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    variance = jnp.mean(centred**2, axis=1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + NORM_EPSILON)


def token_arrays(split: Any, readout: str, heads: SampledAttention | None = None) -> TokenArrays:
    """Examples as `predict_split` takes them; with learned heads the matrices of all others.

    Where the last token is read, padding is put before the first.
    """
    inputs, attention = split.inputs, split.attention
    if heads is not None:  # of sequences that have one length
        tokens = heads.tokens(inputs, attention)
        return tokens.inputs, tokens.fixed, heads
    if split.lengths is not None and readout == "last":
        behind = split.tokens - split.lengths[:, None]
        order = (np.arange(split.tokens) - behind) % split.tokens
        inputs, attention = tokens_in_order(inputs, attention, order)
    return jnp.asarray(inputs), tuple(map(jnp.asarray, attention))
