"""Examples enter a posterior through a triangle: any number of them as Π D rows, exactly.

With the attended inputs of all examples as X = [example, path · channel] and X = Q R, every network
of the theory predicts f(X) = Q f(R), because it is linear in ξ. So for labels y_∥ = Qᵀ y
    |f(X) − y|² = |f(R) − y_∥|² + y_⊥²,      y_⊥² = |y|² − |y_∥|²,
    E(U_1) = ln det(K_R + 𝒯) + y_∥ᵀ (K_R + 𝒯)⁻¹ y_∥ + (P − r) O ln 𝒯 + y_⊥²/𝒯:
the rows of R, y_∥, y_⊥² and P are all that theory and posterior see. Nothing is left
out or rounded away; other than the Gram matrix, R has the condition number of X.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import KNOWN, Architecture, AttentionPaths, HyperPriors
from theory.energy import Compressed, LearningProblem

# Rows of a block that is folded in at a time, relative to its columns.
ROWS_PER_COLUMN = 8


@dataclass(frozen=True)
class Triangle:
    """The triangle R of all examples so far, of the columns [X | y].

    matrix    R [row, column], upper triangular with no negative number on its diagonal, with as
              many rows as columns (zeros while examples are fewer)
    examples  P, how many were folded in
    paths, channels, outputs  sizes of the columns
    """

    matrix: Float[np.ndarray, "column column"]
    examples: int
    paths: int
    channels: int
    outputs: int

    @classmethod
    def empty(cls, paths: int, channels: int, outputs: int) -> "Triangle":
        """A triangle of no examples."""
        size = paths * channels + outputs
        return cls(np.zeros((size, size)), 0, paths, channels, outputs)

    @property
    def features(self) -> int:
        """Number of columns of X, Π D."""
        return self.paths * self.channels

    @property
    def patience(self) -> int:
        """Examples that are best folded in together: many more than rows are left of them."""
        return ROWS_PER_COLUMN * len(self.matrix)

    def fold(
        self,
        attended: Float[np.ndarray, "example path channel"],
        labels: Float[np.ndarray, "example output"],
    ) -> "Triangle":
        """Return the triangle with further examples: R of [R; X | y], some rows at a time."""
        examples = len(labels)
        columns = [np.reshape(attended, (examples, self.features)), labels]
        block = np.concatenate(columns, axis=1, dtype=float)
        matrix = self.matrix
        for start in range(0, examples, self.patience):
            part = block[start : start + self.patience]
            matrix = np.linalg.qr(np.concatenate([matrix, part]), mode="r")
        # A triangle is unique but for the signs of its rows.
        signs = np.where(np.diagonal(matrix) < 0, -1.0, 1.0)
        return replace(self, matrix=signs[:, None] * matrix, examples=self.examples + examples)

    def fold_all(
        self,
        blocks: Iterable[
            tuple[Float[np.ndarray, "_example path channel"], Float[np.ndarray, "_example output"]]
        ],
    ) -> Iterator["Triangle"]:
        """The triangle after every so many examples of all blocks, the last one of all of them."""
        triangle, waiting, count = self, [], 0
        for attended, labels in blocks:
            waiting.append((np.asarray(attended), np.asarray(labels)))
            count += len(labels)
            if count >= self.patience:
                triangle = triangle.fold(*map(np.concatenate, zip(*waiting, strict=True)))
                waiting, count = [], 0
                yield triangle
        if waiting:
            yield triangle.fold(*map(np.concatenate, zip(*waiting, strict=True)))

    @property
    def rows(self) -> Float[np.ndarray, "row path channel"]:
        """Rows of R as attended inputs."""
        size = self.features
        return self.matrix[:size, :size].reshape(size, self.paths, self.channels)

    @property
    def labels(self) -> Float[np.ndarray, "row output"]:
        """Labels of the rows, y_∥ = Qᵀ y."""
        size = self.features
        return self.matrix[:size, size : size + self.outputs]

    @property
    def squares(self) -> float:
        """Sum of squares y_⊥² of the labels below the rows, without cancellation."""
        size = self.features
        return float(np.sum(self.matrix[size:, size : size + self.outputs] ** 2))

    def learning_problem(
        self,
        architecture: Architecture,
        temperature: float,
        hyper_priors: HyperPriors = KNOWN,
    ) -> LearningProblem:
        """The problem of learning all examples, by the rows that stand for them."""
        return LearningProblem(
            architecture,
            jnp.asarray(self.rows),
            jnp.asarray(self.labels),
            temperature,
            hyper_priors,
            Compressed(self.examples, self.squares),
        )


def compress(problem: LearningProblem) -> LearningProblem:
    """Return the problem with the rows of its triangle as examples, where there are fewer of them.

    A problem whose examples are rows already, such as that of a sub-network, is compressed further.
    """
    attended, labels = np.asarray(problem.attended, float), np.asarray(problem.labels, float)
    examples, paths, channels = attended.shape
    if problem.architecture.rows_of(examples) == examples:
        return problem
    triangle = Triangle.empty(paths, channels, labels.shape[1])
    triangle = triangle.fold(attended, labels)
    dtype = problem.attended.dtype
    return replace(
        problem,
        attended=jnp.asarray(triangle.rows, dtype),
        labels=jnp.asarray(triangle.labels, dtype),
        compressed=Compressed(problem.examples, problem.residual_squares + triangle.squares),
    )


def sub_network(
    problem: LearningProblem,
    kept: Sequence[Sequence[int]],
    attended: Float[Array, "test path channel"],
) -> tuple[LearningProblem, Float[Array, "test kept_path channel"]]:
    """Return the data as a network sees them that has only the `kept` heads of each layer.

    Its H_l and Π are its own, and so are the rows of its examples. Raises IndexError for a head
    that does not exist.
    """
    arch = problem.architecture
    chosen = AttentionPaths(arch.heads).subset(kept)
    smaller = replace(arch, heads=tuple(len(heads) for heads in kept))
    part = replace(
        problem,
        architecture=smaller,
        attended=jnp.asarray(np.asarray(problem.attended)[:, chosen]),
        hyper_priors=KNOWN,
    )
    return compress(part), jnp.asarray(np.asarray(attended)[:, chosen])


def heads_closed(
    problem: LearningProblem,
    removed: Collection[tuple[int, int]],
    attended: Float[Array, "test path channel"],
) -> tuple[LearningProblem, Float[Array, "test path channel"]]:
    """Return the data as a network sees them whose heads (layer, head) send nothing.

    ξ^π → ξ^π Π_l g_l with g_l = 0 for a head removed and √(H_l/k_l) for the k_l heads that are
    left: the network of `sub_network`, its predictor, evidence and order parameters of the paths
    left, in the shape of the whole one. What is compiled and found for that one serves again.
    Raises ValueError where a layer has no head left.
    """
    heads = problem.architecture.heads
    gone = [{head for at, head in removed if at == layer} for layer in range(len(heads))]
    left = [count - len(some) for count, some in zip(heads, gone, strict=True)]
    if not all(left):
        raise ValueError(f"heads left by layer: {left}: a layer without any sends nothing on")
    gates = np.ones(1)
    for count, some, kept in zip(heads, gone, left, strict=True):
        opened = [0.0 if head in some else math.sqrt(count / kept) for head in range(count)]
        gates = np.multiply.outer(gates, opened).reshape(-1)
    by_path = jnp.asarray(gates)[None, :, None]
    part = replace(problem, attended=problem.attended * by_path, hyper_priors=KNOWN)
    return part, jnp.asarray(attended) * by_path
