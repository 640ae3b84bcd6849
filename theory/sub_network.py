"""Sub-networks: the same data seen by a network with fewer heads."""

from collections.abc import Sequence
from dataclasses import replace

from jaxtyping import Array, Float

from theory.learning_problem import LearningProblem
from theory.paths import AttentionPaths


def sub_network(
    problem: LearningProblem,
    kept: Sequence[Sequence[int]],
    attended: Float[Array, "test path channel"],
) -> tuple[LearningProblem, Float[Array, "test kept_path channel"]]:
    """The same data seen by a network that has only the `kept` heads of each layer.

    Its H_l and Π are its own. Raises IndexError for a head that does not exist.
    """
    arch = problem.architecture
    chosen = AttentionPaths(arch.heads).subset(kept)
    smaller = replace(arch, heads=tuple(len(heads) for heads in kept))
    return (
        LearningProblem(smaller, problem.attended[:, chosen], problem.labels, problem.temperature),
        attended[:, chosen],
    )
