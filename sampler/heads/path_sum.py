"""Trained network and theory, f(x) = Σ_π m_π(x) over attention paths, without some of their heads.

Without a head the sum is over the paths that avoid it. With its mean in its place, each path
through it contributes its average over the examples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.network import path_weights
from sampler.problem import square_roots
from sampler.transformer.trained_transformer import TrainedValues
from theory import AttentionPaths, LearningProblem, Predictor, mean_without, predict

Head = tuple[int, int]  # layer and head, counted from 0
# Replacement of a removed head: zero, or its mean over examples.
Replacement = Literal["zero", "mean"]
Outputs = Float[np.ndarray, "example output"]


def all_heads(counts: Sequence[int]) -> list[Head]:
    """Every head of layers with these numbers, lowest layer first."""
    return [(layer, head) for layer, count in enumerate(counts) for head in range(count)]


def by_layer(heads: Iterable[Head]) -> dict[int, list[int]]:
    """The numbers of some heads by their layer, both ascending."""
    layers: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        layers.setdefault(layer, []).append(head)
    return layers


@dataclass(frozen=True)
class PathSum:
    """Contribution of every path of a trained network to the outputs of some examples.

    heads       H_1 … H_L
    brought     m_π(x), paths in flat order
    magnitudes  ‖V_l^h‖ of every head
    """

    heads: tuple[int, ...]
    brought: Float[np.ndarray, "example path output"]
    magnitudes: Float[np.ndarray, " head"]

    @classmethod
    def of_trained(
        cls, network: TrainedValues, attended: Float[Array | np.ndarray, "example path channel"]
    ) -> "PathSum":
        """The paths of a trained network: m_π(x) = w_1^π V_0 ξ^π(x) / √(Π N_1 D)."""
        architecture = network.architecture
        weights = {name: jnp.asarray(values) for name, values in network.weights.items()}
        lowest = np.asarray(path_weights(weights, architecture)[0])
        below = np.asarray(weights["V_0"])
        attended = np.asarray(attended)
        _, paths, channels = attended.shape
        by_path = lowest.reshape(paths, -1, lowest.shape[-1]) @ below
        scale = (paths * architecture.widths[0] * channels) ** 0.5
        brought = np.einsum("xpi,pci->xpc", attended, by_path, optimize=True) / scale
        return cls(architecture.heads, brought, network.magnitudes())

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return self.brought.shape[2]

    def without(self, removed: Sequence[Head], replacement: Replacement = "zero") -> Outputs:
        """f(x) without some heads; all other paths keep their weights."""
        paths = AttentionPaths(self.heads)
        kept = mean_without(self.brought, paths, removed)
        if replacement == "zero":
            return kept
        return kept + self.brought[:, paths.through(removed)].sum(axis=1).mean(axis=0)

    def slopes(self, along: Outputs) -> Float[np.ndarray, "example head"]:
        """Σ_c a_c(x) ∂f_c(x)/∂g_h, g_h being the gate of a head: the paths through it."""
        paths = AttentionPaths(self.heads)
        through = np.stack([paths.uses(*head) for head in all_heads(self.heads)], axis=1)
        return np.einsum("xpc,xc,ph->xh", self.brought, along, through, optimize=True)


@dataclass(frozen=True)
class ZeroedTheory:
    """The theory's predictor mean of some examples, with rows and columns of U_1 zeroed.

    With the smaller U_1 the readout of the other heads is learned again.

    factor  F of U_1 = F Fᵀ, rows path by path, with several outputs output by output
    """

    heads: tuple[int, ...]
    factor: Float[np.ndarray, "row rank"]
    predictor: Predictor

    @classmethod
    def at(
        cls,
        learning: LearningProblem,
        attended: Float[Array | np.ndarray, "example path channel"],
        overlap: Float[np.ndarray, "row row"],
    ) -> "ZeroedTheory":
        """The theory at U_1, on examples with these attended inputs."""
        predictor = Predictor.for_examples(learning, attended)
        return cls(learning.architecture.heads, square_roots(overlap), predictor)

    def without(self, removed: Sequence[Head], replacement: Replacement = "zero") -> Outputs:
        """m(x) without some heads, which are zeroed."""
        gone = AttentionPaths(self.heads).through(removed)
        rows = gone.repeat(len(self.factor) // len(gone))[:, None]
        mean, _ = predict(self.predictor, jnp.asarray(np.where(rows, 0.0, self.factor)))
        return np.asarray(mean)
