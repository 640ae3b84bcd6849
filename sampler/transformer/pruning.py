"""Removing heads: from the trained network, and from the theory of the same network.

A head is removed from the trained network by making its output zero, from the theory by making
the rows and columns of U_1 zero whose path goes through it, and from a refitted theory by solving
for the smaller network. No layer ever loses all of its heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from sampler.analysis.trained_columns import trained_predictor
from sampler.problem import Problem
from theory import AttentionPaths, Predictor, predict, solve_saddle_point, sub_network
from theory.accuracy import correct

Head = tuple[int, int]  # layer and head, counted from 0


@dataclass(frozen=True)
class PrunedNetworks:
    """Which test examples are classified correctly after heads were removed.

    problem  a problem with a trained network and labelled test examples
    factor   F of the theory's U_1 = F Fᵀ
    """

    problem: Problem
    factor: Float[np.ndarray, "path rank"]
    predictor: Predictor

    @classmethod
    def of(cls, problem: Problem, overlap: Float[np.ndarray, "path path"]) -> "PrunedNetworks":
        """Pruning of a problem whose saddle point has this U_1."""
        predictor = Predictor.for_examples(problem.learning, problem.attended_test)
        return cls(problem, np.linalg.cholesky(overlap), predictor)

    @property
    def heads(self) -> list[Head]:
        """All heads, layer by layer."""
        return [
            (layer, head)
            for layer, count in enumerate(self.problem.architecture.heads)
            for head in range(count)
        ]

    def trained(self, removed: Sequence[Head]) -> Bool[np.ndarray, " test"]:
        """The network of gradient descent, the outputs of these heads zero."""
        network = self.problem.trained.without(removed)
        return self._correct(trained_predictor(network, self.problem.attended_test))

    def zeroed(self, removed: Sequence[Head]) -> Bool[np.ndarray, " test"]:
        """The theory with zero rows and columns in its U_1, everything else as it was."""
        return self._correct(self.zeroed_mean(removed))

    def zeroed_mean(self, removed: Sequence[Head]) -> Float[np.ndarray, "test output"]:
        """The predictor mean behind `zeroed`."""
        paths = AttentionPaths(self.problem.architecture.heads)
        factor = self.factor.copy()
        for layer, head in removed:
            factor[paths.uses(layer, head)] = 0.0
        mean, _ = predict(self.predictor, jnp.asarray(factor))
        return np.asarray(mean)

    def refitted(self, removed: Sequence[Head]) -> Bool[np.ndarray, " test"] | None:
        """The theory of the smaller network; None if its saddle point does not converge."""
        smaller, attended = sub_network(
            self.problem.learning, self.kept(removed), self.problem.attended_test
        )
        solved = solve_saddle_point(smaller, starts=1)
        if not solved.converged:
            return None
        predictor = Predictor.for_examples(smaller, attended)
        mean, _ = predict(predictor, solved.order_parameters.factors[0])
        return self._correct(np.asarray(mean))

    def kept(self, removed: Sequence[Head]) -> tuple[tuple[int, ...], ...]:
        """The heads that remain, layer by layer."""
        return tuple(
            tuple(head for head in range(count) if (layer, head) not in removed)
            for layer, count in enumerate(self.problem.architecture.heads)
        )

    def removable(self, order: Sequence[Head]) -> list[Head]:
        """The order without those heads whose turn comes when they are the last of their layer."""
        left = list(self.problem.architecture.heads)
        removed = []
        for layer, head in order:
            if left[layer] > 1:
                left[layer] -= 1
                removed.append((layer, head))
        return removed

    def magnitudes(self) -> Float[np.ndarray, " head"]:
        """‖V_l^h‖, the Frobenius norm of the trained values of each head."""
        weights = self.problem.trained.weights
        return np.array([np.linalg.norm(weights[f"V_{layer + 1}"][h]) for layer, h in self.heads])

    def _correct(self, mean: np.ndarray) -> np.ndarray:
        return correct(mean, np.asarray(self.problem.labels_test))
