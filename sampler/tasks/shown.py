"""What figures show of a task: which training examples, sorted by label."""

import numpy as np
from jaxtyping import Float, Int

from sampler.tasks.splits import AnySplit, StreamedSplit


def evenly_chosen(train: AnySplit, count: int) -> Int[np.ndarray, " chosen"] | None:
    """Numbers of up to so many examples, evenly from all of them sorted by label.

    None where the examples are not held.
    """
    if isinstance(train, StreamedSplit):
        return None
    order = sorted_by_label(train.labels)
    places = np.linspace(0, len(order) - 1, min(len(order), count)).round().astype(int)
    return order[places]


def sorted_by_label(labels: Float[np.ndarray, "example output"]) -> Int[np.ndarray, " example"]:
    """Numbers of the examples: largest label first for one output, else class by class."""
    keys = -labels[:, 0] if labels.shape[1] == 1 else labels.argmax(axis=1)
    return np.argsort(keys, kind="stable")
