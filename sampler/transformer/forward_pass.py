"""The outputs of the network that is trained, as a function of its parameters and inputs."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.attention.logits import head_matrices
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.network import network_outputs
from sampler.token_network import TokenNetwork, predict_tokens
from sampler.transformer.trained_transformer import Transformer, theory_weights
from theory.attended import attended_inputs

# Networks with more paths are followed token by token, which then costs less.
MOST_PATHS = 1000


def transformer_outputs(
    parameters: Mapping[str, Array],
    inputs: Float[Array, "example token channel"],
    network: Transformer,
) -> Float[Array, " example *output"]:
    """f(x_0) of every example, without an axis of outputs where the readout has none.

        z^1 = W_in x_0,   z^{l+1} = Σ_h W_V^{l,h} z^l Ω^{l,h} / √H_l,   f = readout · z^{L+1} t*

    with t* the mean over tokens. Where the theory holds it is the theory's sum over paths.
    """
    weights = theory_weights(parameters, network, inputs.dtype)
    attention = tuple(
        attend(inputs, parameters[f"W_Q_{layer}"], parameters[f"W_K_{layer}"], of_layer)
        for layer, of_layer in enumerate(network.variants, start=1)
    )
    arch, pairs = network.architecture, network.hypernetworks
    if network.in_theory and arch.path_count <= MOST_PATHS:
        attended = attended_inputs(inputs, attention, "mean")
        outputs = network_outputs(weights, attended, arch)
    else:
        by_token = TokenNetwork(arch, pairs, network.values, "none", "mean")
        outputs = predict_tokens(weights, inputs, attention, by_token)
    return outputs.reshape(len(outputs), *parameters["readout"].shape[:-1])


def attend(
    inputs: Float[Array, "example token channel"],
    query_weights: Float[Array, "head key_channel channel"],
    key_weights: Float[Array, "head key_channel channel"],
    variants: tuple[AttentionVariant, ...],
) -> Float[Array, "example head key query"]:
    """Ω of the heads of a layer.

    Where all are softmax, W_Qᵀ W_K is joined first, so that each head multiplies the inputs once,
    and no array changes its order of axes: half the time of a training step.
    """
    if any(variant != Softmax() for variant in variants):
        return head_matrices("low_rank", (query_weights, key_weights), inputs, variants)
    heads, size, channels = query_weights.shape
    examples, tokens, _ = inputs.shape
    joined = jnp.einsum("hgi,hgj->ihj", query_weights, key_weights) / size**0.5
    queries = inputs.reshape(-1, channels) @ joined.reshape(channels, -1)
    logits = queries.reshape(examples, -1, channels) @ inputs.swapaxes(1, 2)
    rows = jax.nn.softmax(logits.reshape(examples, tokens, heads, tokens), axis=-1)
    return rows.transpose(0, 2, 3, 1)
