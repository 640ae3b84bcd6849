"""Sizes of a network with its data, from which memory and cost follow. Free of JAX."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.attention.layers import lowest_layers, mlp_shapes
from sampler.data.split import AnySplit, AttendedSplit, Split, StreamedSplit, attended_by_numpy
from sampler.data.task import Task
from sampler.mcmc.kept import evenly_spaced
from sampler.posterior.spaces import WEIGHTS
from sampler.settings.recipe import Recipe
from theory.architecture import STORED_TRAINING_BYTES, Architecture, stored_bytes

# Examples that the stiffness of all of them is estimated from.
MOST_EXAMPLES = 400


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network with its data, from which the cost of sampling is predicted.

    examples     P, training examples, or the rows that stand for them
    observed     examples whose predictor is read off every draw
    stiffness    largest eigenvalue of K/𝒯 in the limit of infinite width; NaN where it is not known
    logits       logit weights that are sampled
    added        weights of a network outside the theory beside those of its architecture and logits
    """

    architecture: Architecture
    examples: int
    observed: int
    stiffness: float = math.nan
    logits: int = 0
    added: int = 0

    @classmethod
    def of(cls, recipe: Recipe, task: Task, eigenvalue: float = math.nan) -> "Sizes":
        """Sizes for a recipe and its task; `eigenvalue` is that of `leading_eigenvalue`.

        In the limit of infinite width the eigenvalues of K are those of the Gram matrix, times
        σ_0² … σ_a².
        """
        architecture = recipe.network.architecture(task.heads, task.channels, task.outputs)
        examples = task.train.examples
        if recipe.has_theory:
            examples = architecture.rows_of(examples)
        scale = math.prod(architecture.variances) / recipe.posterior.temperature
        mlp = mlp_shapes(recipe.network.mlp, architecture.widths, task.pairs)
        added = sum(map(math.prod, mlp.values()))
        stiffness = eigenvalue * scale
        sizes = cls(architecture, examples, task.test.examples, stiffness, added=added)
        if task.learned is None:
            return sizes
        below = [architecture.widths[layer - 1] for layer in lowest_layers(task.pairs)]
        logits = task.learned.count(task.train.tokens, task.channels, below)
        return replace(sizes, logits=logits)

    def as_dict(self) -> dict[str, Any]:
        one = self.architecture
        return {
            "heads": one.heads, "widths": one.widths, "channels": one.channels,
            "outputs": one.outputs, "rows": self.examples, "test_examples": self.observed,
        }  # fmt: skip

    @property
    def weight_count(self) -> int:
        """Number of weights of the network, its logits left out."""
        return self.architecture.weight_count + self.added

    @property
    def path_pairs(self) -> int:
        """Number of path kernels to store: C_{ππ'} with π ≤ π' is enough for one output."""
        paths = self.architecture.path_count
        return paths * (paths + 1) // 2 if self.architecture.outputs == 1 else paths**2

    @property
    def stores_kernels(self) -> bool:
        """Whether path kernels are few enough to be stored; else K is assembled from features."""
        paths, outputs = self.architecture.path_count, self.architecture.outputs
        return stored_bytes(self.examples, None, paths, outputs) <= STORED_TRAINING_BYTES

    @property
    def kernel_operations(self) -> int:
        """Products that assemble K(U_1): O² P² for each pair of paths, or p_1 D P (P O² + p_1)."""
        one = self.architecture
        if self.stores_kernels:
            return one.outputs**2 * self.path_pairs * self.examples**2
        rows = self.examples * one.outputs**2 + one.order_parameter_sizes[0]
        return self.path_operations * self.examples * rows

    @property
    def contraction_operations(self) -> int:
        """Products of the weights along all paths above the input weights, Σ_l p_l N_l N_{l+1}."""
        one = self.architecture
        rows = one.order_parameter_sizes
        return sum(
            p * n * m for p, n, m in zip(rows[:-1], one.widths[:-1], one.widths[1:], strict=True)
        )

    @property
    def path_operations(self) -> int:
        """Products that give the predictor of one example from all path weights, p_1 D."""
        return self.architecture.order_parameter_sizes[0] * self.architecture.channels

    @property
    def forward_operations(self) -> int:
        """Products of a forward pass of all examples, contracted along the paths first."""
        inner = self.architecture.widths[0] + self.examples
        return self.contraction_operations + self.path_operations * inner

    def gradient_operations(self, space: str) -> int:
        """Operations of one gradient of the log posterior, leading order.

        Weights are contracted along the paths first, 2 (Σ_l p_l N_l N_{l+1} + p_1 N_1 D), then with
        the attended inputs, 2 P p_1 D. Order parameters assemble K, factorise it and invert the
        factor instead, 2 O² P² per pair of paths and 2 (P O)³. A gradient costs three times that.
        """
        if space == WEIGHTS:
            return 6 * self.forward_operations
        return 6 * (self.kernel_operations + (self.examples * self.architecture.outputs) ** 3)


def narrowness(one: Architecture) -> float:
    """max_l p_l / N_l: above 1 a layer is narrower than its order parameter."""
    return max(p / n for p, n in zip(one.order_parameter_sizes, one.widths, strict=True))


def leading_eigenvalue(task: Task, readout: str) -> float:
    """Largest eigenvalue of the Gram matrix Σ_π ξ^π(x)·ξ^π(x')/(D Π), estimated from some examples.

    The estimate is for all training examples.
    """
    blocks, attended, count = some_examples(task.train), [], 0
    while count < min(MOST_EXAMPLES, task.train.examples):
        attended.append(attended_by_numpy(next(blocks), readout, task.pairs))
        count += len(attended[-1])
    return eigenvalue_of_all(np.concatenate(attended), task.train.examples)


def some_examples(split: AnySplit) -> Iterator[Split | AttendedSplit]:
    """Examples of a split, evenly spaced where all are held, the first ones where they are not."""
    if isinstance(split, StreamedSplit):
        return split.blocks()
    return iter([split.part(evenly_spaced(split.examples, MOST_EXAMPLES))])


def eigenvalue_of_all(attended: Float[np.ndarray, "example path channel"], examples: int) -> float:
    """The largest eigenvalue of the Gram matrix of so many examples like these: it is extensive.

    NaN where the matrix overflows.
    """
    flat = attended.reshape(len(attended), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        gram = flat @ flat.T if len(flat) < flat.shape[1] else flat.T @ flat
    if not np.isfinite(gram).all():
        return math.nan
    return float(np.linalg.eigvalsh(gram)[-1] / flat.shape[1] * examples / len(flat))
