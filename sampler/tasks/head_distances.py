"""How far apart the heads of a layer are: distances of matrices and of what they put out."""

import itertools
from dataclasses import dataclass

import numpy as np

from sampler.tasks.task import Split

# Examples at a time: outputs of all heads are as large as the inputs, times the heads.
PIECE = 128


@dataclass(frozen=True)
class HeadDistances:
    """Mean and standard deviation over pairs of heads of all layers; NaN where none has two.

    matrices  ‖A_h − A_h'‖_F, averaged over examples
    outputs   ‖(A_h − A_h') X‖_F of the inputs X, averaged over examples
    """

    matrices: tuple[float, float]
    outputs: tuple[float, float]

    @classmethod
    def of(cls, split: Split) -> "HeadDistances":
        """Distances on the examples of a split; the output of a head is that for values X."""
        matrices, outputs = [], []
        for attention in split.attention:
            for one, other in itertools.combinations(range(attention.shape[1]), 2):
                difference = attention[:, one] - attention[:, other]
                matrices.append(np.sqrt((difference**2).sum(axis=(1, 2))).mean())
                outputs.append(output_distance(difference, split.inputs))
        return cls(spread(matrices), spread(outputs))


def output_distance(difference: np.ndarray, inputs: np.ndarray) -> float:
    """Mean over examples of the Frobenius norm of Δᵀ X, Δ [example, key, query]."""
    found = []
    for start in range(0, len(inputs), PIECE):
        part = slice(start, start + PIECE)
        moved = np.swapaxes(difference[part], 1, 2) @ inputs[part]
        found.append(np.sqrt((moved**2).sum(axis=(1, 2))))
    return float(np.concatenate(found).mean())


def spread(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation; the latter is 0 for one pair."""
    if not values:
        return float("nan"), float("nan")
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
