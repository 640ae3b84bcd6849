"""Classification accuracy of a predictor mean, where the labels are classes."""

import math

import numpy as np
from jaxtyping import Float


def accuracy(
    mean: Float[np.ndarray, "example output"], labels: Float[np.ndarray, "example output"] | None
) -> float:
    """Share of examples whose class the mean predicts; NaN where labels are not classes.

    One output: labels ±1, class by sign. Several: the largest label and the largest mean.
    """
    if not labels_are_classes(labels):
        return float("nan")
    return float(np.mean(correct(np.asarray(mean), np.asarray(labels))))


def binomial_error(share: float, examples: int) -> float:
    """√(a(1 − a)/n), the standard error of an accuracy a by the finite number n of examples."""
    # A mean of ones may exceed 1 by rounding.
    return math.sqrt(max(0.0, share * (1.0 - share)) / examples)


def labels_are_classes(labels: Float[np.ndarray, "example output"] | None) -> bool:
    """Whether labels name classes: ±1 for one output, one largest entry per row for several."""
    if labels is None:
        return False
    labels = np.asarray(labels)
    if labels.shape[1] == 1:
        return bool(np.all(np.abs(labels) == 1))
    largest = labels == labels.max(axis=1, keepdims=True)
    return bool(np.all(largest.sum(axis=1) == 1) and np.unique(labels).size == 2)


def correct(mean: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which examples are classified correctly; leading axes of `mean` are kept."""
    if labels.shape[1] == 1:
        return np.sign(mean[..., 0]) == labels[:, 0]
    return np.argmax(mean, axis=-1) == np.argmax(labels, axis=1)
