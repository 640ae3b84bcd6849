"""A trained network as the theory sees it, whole and with heads removed.

A head is removed from the trained network by making its output zero, from the theory by making
the rows and columns of U_1 zero whose path goes through it, and from a refitted theory by solving
for the smaller network. No layer ever loses all of its heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sampler.network import overlaps
from sampler.network import predict as predict_from_paths
from sampler.transformer.frozen import FrozenNetwork
from theory import (
    Architecture,
    AttentionPaths,
    LearningProblem,
    Predictor,
    predict,
    solve_saddle_point,
    sub_network,
)
from theory.observables import correct


def architecture_of(network: FrozenNetwork) -> Architecture:
    """The trained network's own widths; its weights have no prior."""
    return Architecture(
        heads=network.heads,
        widths=network.widths,
        variances=(1.0,) * (len(network.heads) + 2),
        channels=network.channels,
        outputs=network.weights["a"].shape[0],
    )


def as_arrays(network: FrozenNetwork) -> dict:
    return {name: jnp.asarray(values) for name, values in network.weights.items()}


def trained_overlap(network: FrozenNetwork) -> np.ndarray:
    """U_GD = w_1 w_1ᵀ/N_1 [path, path]: the overlap that the posterior of U_1 is about."""
    return np.asarray(overlaps(as_arrays(network), architecture_of(network))[0])


def trained_predictor(network: FrozenNetwork, attended) -> np.ndarray:
    """f of the trained network on attended inputs, [example, output]."""
    return np.asarray(predict_from_paths(as_arrays(network), attended, architecture_of(network)))


Head = tuple[int, int]  # layer and head, counted from 0
Kept = Sequence[Sequence[int]]


def zeroed_mean(
    predictor: Predictor, factor: np.ndarray, gone: Bool[np.ndarray, " path"]
) -> Float[np.ndarray, "example output"]:
    """The predictor mean at U_1 = F Fᵀ whose rows and columns of some paths are zero."""
    rows = np.repeat(gone, len(factor) // len(gone))[:, None]
    mean, _ = predict(predictor, jnp.asarray(np.where(rows, 0.0, factor)))
    return np.asarray(mean)


def refitted_mean(
    learning: LearningProblem, kept: Kept, attended: Float[Array, "example path channel"]
) -> Float[np.ndarray, "example output"] | None:
    """The predictor mean of the theory with these heads alone; None without a saddle point."""
    smaller, seen = sub_network(learning, kept, attended)
    solved = solve_saddle_point(smaller, starts=1)
    if not solved.converged:
        return None
    mean, _ = predict(Predictor.for_examples(smaller, seen), solved.order_parameters.factors[0])
    return np.asarray(mean)


@dataclass(frozen=True)
class PrunedNetworks:
    """Which test examples are classified correctly after heads were removed.

    learning      the learning problem of the theory
    network       what gradient descent made of the same weights
    attended_test, labels_test    test examples
    overlap       U_1 of the theory, rows path by path, with several outputs output by output
    """

    learning: LearningProblem
    network: FrozenNetwork
    attended_test: Float[Array, "test path channel"]
    labels_test: Float[np.ndarray, "test output"]
    overlap: Float[np.ndarray, "row row"]

    @cached_property
    def factor(self) -> Float[np.ndarray, "row rank"]:
        """F of the theory's U_1 = F Fᵀ."""
        return np.linalg.cholesky(self.overlap)

    @cached_property
    def predictor(self) -> Predictor:
        """The theory's predictor of the test examples."""
        return Predictor.for_examples(self.learning, self.attended_test)

    @property
    def heads(self) -> list[Head]:
        """All heads, layer by layer."""
        return [
            (layer, head)
            for layer, count in enumerate(self.learning.architecture.heads)
            for head in range(count)
        ]

    def trained(self, removed: Sequence[Head]) -> Bool[np.ndarray, " test"]:
        """The network of gradient descent, the outputs of these heads zero."""
        remaining = self.network.without(removed)
        return self._correct(trained_predictor(remaining, self.attended_test))

    def zeroed(self, removed: Sequence[Head]) -> Bool[np.ndarray, " test"]:
        """The theory with zero rows and columns in its U_1, everything else as it was."""
        return self._correct(self.zeroed_mean(removed))

    def zeroed_mean(self, removed: Sequence[Head]) -> Float[np.ndarray, "test output"]:
        """The predictor mean behind `zeroed`."""
        paths = AttentionPaths(self.learning.architecture.heads)
        gone = np.zeros(paths.count, bool)
        for layer, head in removed:
            gone |= paths.uses(layer, head)
        return zeroed_mean(self.predictor, self.factor, gone)

    def refitted(self, removed: Sequence[Head]) -> Bool[np.ndarray, " test"] | None:
        """The theory of the smaller network; None if its saddle point does not converge."""
        mean = refitted_mean(self.learning, self.kept(removed), self.attended_test)
        return None if mean is None else self._correct(mean)

    def kept(self, removed: Sequence[Head]) -> tuple[tuple[int, ...], ...]:
        """The heads that remain, layer by layer."""
        return tuple(
            tuple(head for head in range(count) if (layer, head) not in removed)
            for layer, count in enumerate(self.learning.architecture.heads)
        )

    def removable(self, order: Sequence[Head]) -> list[Head]:
        """The order without those heads whose turn comes when they are the last of their layer."""
        left = list(self.learning.architecture.heads)
        removed = []
        for layer, head in order:
            if left[layer] > 1:
                left[layer] -= 1
                removed.append((layer, head))
        return removed

    def magnitudes(self) -> Float[np.ndarray, " head"]:
        """‖V_l^h‖, the Frobenius norm of the trained values of each head."""
        weights = self.network.weights
        return np.array([np.linalg.norm(weights[f"V_{layer + 1}"][h]) for layer, h in self.heads])

    def _correct(self, mean: np.ndarray) -> np.ndarray:
        return correct(mean, self.labels_test)
