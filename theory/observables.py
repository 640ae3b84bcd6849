"""Quantities of an order parameter: accuracy, head scores, alignment, redundancy."""

import math

import numpy as np
from jaxtyping import Array, Bool, Float, Num

from theory.architecture import AttentionPaths


def accuracy(
    mean: Float[np.ndarray, "example output"], labels: Float[np.ndarray, "example output"] | None
) -> float:
    """Share of examples whose class the mean predicts; NaN where labels are not classes.

    One output: labels ±1, class by sign. Several: the largest label and the largest mean, in each
    of several groups of outputs where labels name a class in each.
    """
    if not labels_are_classes(labels):
        return math.nan
    return float(np.mean(correct(np.asarray(mean), np.asarray(labels))))


def binomial_error(share: float, examples: int) -> float:
    """Error of an accuracy p of n examples, √(p(1 − p)/n + 1/4n²)/(1 + 1/n).

    Half of Wilson's interval of one standard deviation: unlike √(p(1 − p)/n) it is not 0 where all
    examples agree (Wilson, 1927).
    """
    # A mean of ones may exceed 1 by rounding.
    variance = max(0.0, share * (1.0 - share)) / examples
    return math.sqrt(variance + 0.25 / examples**2) / (1.0 + 1.0 / examples)


def labels_are_classes(labels: Float[np.ndarray, "example output"] | None) -> bool:
    """Whether labels name classes: ±1 for one output, one largest entry per group for several."""
    return labels is not None and class_groups(np.asarray(labels)) > 0


def class_groups(labels: Num[np.ndarray, "example output"]) -> int:
    """Number of groups of outputs in each of which labels name a class; 0 where they do not.

    Groups are of equal size and follow one another, as many as a row has largest entries.
    """
    outputs = labels.shape[1]
    if outputs == 1:
        return int(np.all(np.abs(labels) == 1))
    largest = labels == labels.max(axis=1, keepdims=True)
    groups = int(largest[:1].sum())
    if outputs % groups or outputs == groups or np.unique(labels).size != 2:
        return 0
    by_group = largest.reshape(len(labels), groups, -1).sum(axis=2)
    return groups if np.all(by_group == 1) else 0


def correct(
    mean: Num[np.ndarray, "*batch example output"], labels: Num[np.ndarray, "example output"]
) -> Bool[np.ndarray, "*batch example"]:
    """Which examples are classified correctly, in every group of outputs."""
    if labels.shape[1] == 1:
        return (np.sign(mean) == labels)[..., 0]
    groups = class_groups(labels) or 1
    largest = (np.argmax(a.reshape(*a.shape[:-1], groups, -1), axis=-1) for a in (mean, labels))
    return np.all(np.equal(*largest), axis=-1)


def head_scores(
    overlap: Float[Array, "row row"] | Float[np.ndarray, "row row"], paths: AttentionPaths
) -> Float[np.ndarray, "layer head"]:
    """Share of |U_1| carried by the paths through each head, relative to the largest share.

    s(l, h) = Σ |U_1^{ππ'}| over entries whose row path or column path uses head h of layer l,
    divided by the largest over all heads of all layers, 0 for all where U_1 is 0; NaN where a layer
    has fewer heads. With several outputs the blocks of one path pair are added up. Source: arXiv
    2405.15926, head score.
    """
    outputs = len(overlap) // paths.count
    blocks = np.abs(np.asarray(overlap)).reshape(paths.count, outputs, paths.count, outputs)
    size = blocks.sum(axis=(1, 3))
    scores = np.full((len(paths.heads), max(paths.heads)), np.nan)
    for layer, count in enumerate(paths.heads):
        for head in range(count):
            uses = paths.uses(layer, head)
            scores[layer, head] = size[uses[:, None] | uses[None, :]].sum()
    largest = np.nanmax(scores)
    return scores / largest if largest > 0 else scores


def kernel_alignment(
    kernel: Float[Array | np.ndarray, "n n"],
    labels: Float[Array | np.ndarray, " n"],
    residual_squares: float | Float[Array, ""] = 0.0,
) -> Float[np.ndarray, " component"]:
    """Alignment |e_i·y| / |y| of the eigenvectors e_i of K, largest eigenvalue first.

    K is the training kernel without temperature; with several outputs both K and y run over
    (example, output), output fastest. Where rows represent the examples, y has the further sum of
    squares `residual_squares`. NaN where an eigenvalue is 0 to rounding: any basis of the space of
    those would do, each with other alignments. Source: arXiv 2405.15926, kernel–task alignment.
    """
    kernel, labels = np.asarray(kernel), np.asarray(labels)
    values, vectors = np.linalg.eigh(kernel)
    aligned = np.abs(labels @ vectors) / np.sqrt(labels @ labels + residual_squares)
    rounding = len(kernel) * np.finfo(kernel.dtype).eps * values[-1]
    return np.where(values > rounding, aligned, np.nan)[::-1]


def participation_ratio(overlap: Float[np.ndarray, "row row"]) -> float:
    """Effective number of paths (Σ λ_i)²/Σ λ_i² of the eigenvalues λ of U_1, from 1 to p_1."""
    return float(np.trace(overlap) ** 2 / np.sum(overlap * overlap.T))


def off_diagonal_share(overlap: Float[np.ndarray, "row row"]) -> float:
    """Share of Σ |U_1^{ππ'}| that lies off the diagonal: 0 if no two paths go together."""
    size = np.abs(overlap)
    return float(1.0 - np.trace(size) / size.sum())


def centred_kernel(
    kernel: Float[np.ndarray, "*batch example example"],
) -> Float[np.ndarray, "*batch example example"]:
    """Kernel K(x, x') of the features less their mean over examples."""
    rows = kernel - kernel.mean(axis=-1, keepdims=True)
    return rows - rows.mean(axis=-2, keepdims=True)
