"""The trained network in the theory's terms: its attention as given, its other weights by name."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.attention.heads import layer_matrices, softmax_attention
from sampler.attention.variants import AttentionVariant, Softmax
from sampler.transformer.model_file import Parameters, TransformerShape
from theory.architecture import Architecture

# Examples at a time, where queries and keys of all heads are needed at once.
PIECE = 250


@dataclass(frozen=True)
class FrozenNetwork:
    """Weights that gradient descent made, in the place of those that the posterior is over.

    weights  V_0 [N_1, D], V_l [head, N_{l+1}, N_l] and a [output, N_a], see `theory_weights`
    """

    weights: Mapping[str, np.ndarray]

    @property
    def heads(self) -> tuple[int, ...]:
        """H_1 … H_L."""
        layers = sum(name.startswith("V_") for name in self.weights) - 1
        return tuple(len(self.weights[f"V_{layer}"]) for layer in range(1, layers + 1))

    @property
    def widths(self) -> tuple[int, ...]:
        """(N_1 … N_L, N_a)."""
        below = tuple(self.weights[f"V_{layer + 1}"].shape[2] for layer in range(len(self.heads)))
        return (*below, self.weights["a"].shape[1])

    @property
    def channels(self) -> int:
        """D."""
        return self.weights["V_0"].shape[1]

    @property
    def architecture(self) -> Architecture:
        """The network's own widths; its weights have no prior."""
        return Architecture(
            heads=self.heads,
            widths=self.widths,
            variances=(1.0,) * (len(self.heads) + 2),
            channels=self.channels,
            outputs=self.weights["a"].shape[0],
        )

    def overlap(self) -> Float[np.ndarray, "path path"]:
        """U_GD = w_1 w_1ᵀ/N_1, the overlap that the posterior of U_1 is about."""
        from sampler.network import overlaps

        return np.asarray(overlaps(self._arrays(), self.architecture)[0])

    def predictor(self, attended: Any) -> Float[np.ndarray, "example output"]:
        """f(x) of attended inputs [example, path, channel]."""
        from sampler.network import network_outputs

        return np.asarray(network_outputs(self._arrays(), attended, self.architecture))

    def magnitudes(self) -> Float[np.ndarray, " head"]:
        """‖V_l^h‖, the Frobenius norm of the values of each head, layer by layer."""
        values = (self.weights[f"V_{layer}"] for layer in range(1, len(self.heads) + 1))
        return np.concatenate([np.linalg.norm(of_layer, axis=(1, 2)) for of_layer in values])

    def _arrays(self) -> dict:
        import jax.numpy as jnp

        return {name: jnp.asarray(values) for name, values in self.weights.items()}

    def without(self, removed: Collection[tuple[int, int]]) -> "FrozenNetwork":
        """The network in which the outputs of heads (layer, head), counted from 0, are zero."""
        weights = dict(self.weights)
        for layer, head in removed:
            name = f"V_{layer + 1}"
            values = weights[name].copy()
            values[head] = 0.0
            weights[name] = values
        return replace(self, weights=weights)

    def keeping(self, kept: Sequence[Sequence[int]]) -> "FrozenNetwork":
        """The network with these heads alone, the sum over them divided by the √H_l of before."""
        weights = dict(self.weights)
        for layer, heads in enumerate(kept, start=1):
            values = weights[f"V_{layer}"]
            weights[f"V_{layer}"] = values[list(heads)] * np.sqrt(len(heads) / len(values))
        return replace(self, weights=weights)


def frozen_attention(
    parameters: Parameters,
    inputs: np.ndarray,
    variants: Sequence[tuple[AttentionVariant, ...]] = (),
) -> tuple[np.ndarray, ...]:
    """Ω of every layer, [example, head, key, query], float64, from inputs x_0 and W_Q, W_K.

    `variants` has that of every trained head, layer by layer; without it all are softmax. Heads
    of W_Q and W_K beyond those are extra ones: each attends as it would in the place of a trained
    head, in turn, and no trained head sees it.
    """
    layers = sum(name.startswith("W_V_") for name in parameters)
    return tuple(
        layer_attention(
            inputs, *(parameters[f"W_{kind}_{layer}"].astype(np.float64) for kind in "QK"), of_layer
        )
        for layer, of_layer in zip(range(1, layers + 1), variants or ((),) * layers, strict=True)
    )


def layer_attention(
    inputs: np.ndarray,
    query_weights: np.ndarray,
    key_weights: np.ndarray,
    variants: tuple[AttentionVariant, ...],
) -> np.ndarray:
    """Ω of one layer, the heads of all examples a few hundred at a time to bound memory."""
    if all(variant == Softmax() for variant in variants):
        return softmax_attention(inputs, query_weights, key_weights)
    heads, tokens = len(query_weights), inputs.shape[1]
    matrices = np.empty((len(inputs), heads, tokens, tokens))
    for start in range(0, len(inputs), PIECE):
        part = slice(start, start + PIECE)
        queries, keys = (
            np.einsum("hgi,xti->xhtg", weights, inputs[part], optimize=True)
            for weights in (query_weights, key_weights)
        )
        trained = len(variants)
        matrices[part, :trained] = layer_matrices(variants, queries[:, :trained], keys[:, :trained])
        for extra in range(trained, heads):
            place = extra % trained
            chosen = [*range(place), extra, *range(place + 1, trained)]
            found = layer_matrices(variants, queries[:, chosen], keys[:, chosen])
            matrices[part, extra] = found[:, place]
    return matrices


def theory_weights(parameters: Parameters, shape: TransformerShape) -> dict[str, np.ndarray]:
    """The weights V_0, V_l and a with which the theory's network is the trained one.

        V_0 = √D W_in,   V_l^h = √N_l W_V^{l,h},   a = √N_a readout

    since the theory divides by √D, √(H_l N_l) and √N_a, the trained network by √H_l alone. Weights
    drawn uniformly from ±1/√(fan-in) have variance 1/3 in these terms.
    """
    weights = {"V_0": np.sqrt(shape.channels) * parameters["W_in"].astype(np.float64)}
    for layer in range(1, shape.layers + 1):
        values = parameters[f"W_V_{layer}"].astype(np.float64)
        weights[f"V_{layer}"] = np.sqrt(shape.widths[layer - 1]) * values
    readout = np.atleast_2d(parameters["readout"].astype(np.float64))
    weights["a"] = np.sqrt(shape.widths[-1]) * readout
    return weights
