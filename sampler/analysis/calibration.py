"""Calibration: probabilities of the class +1, and the shares of labels +1 where they are predicted.

The model is a regression, y = f(x) + √𝒯 ε, used on labels ±1. Its predictive density p(y | x)
covers all numbers, of which two occur. The probability of the class +1 is that of +1 given that y
is one of the two,

    p₊ = p(y = +1 | x) / (p(y = +1 | x) + p(y = −1 | x)).

It follows from the same density as the log predictive density. The probability of a positive y does
not: there y may be any number. For one Gaussian of mean m and variance v + 𝒯, as theories and draws
have it (`scores`), p₊ = 1/(1 + exp(−2m/(v + 𝒯))).
"""

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from sampler.streams import Stream, stream

BINS = 10
REPLICATES = 1000


def probability_of_positive(
    mean: Float[np.ndarray, "*shape"], variance: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """p₊ = 1/(1 + exp(−2m/s)) of labels with mean m and variance s."""
    return expit(2.0 * mean / variance)


def labels_are_signs(labels: np.ndarray | None) -> bool:
    """Whether there are labels, and all of them are ±1."""
    return labels is not None and bool(np.all(np.abs(labels) == 1))


def surplus_by_bin(
    probability: Float[np.ndarray, "*leading example"],
    positive: Bool[np.ndarray, "*leading example"],
) -> Float[np.ndarray, "*leading bin"]:
    """Σ_i (p_i − [y_i = +1]) over the examples with p_i in the bin [b/B, (b + 1)/B), or 1."""
    *leading, examples = probability.shape
    rows = int(np.prod(leading))
    bins = np.minimum((probability * BINS).astype(int), BINS - 1).reshape(rows, examples)
    place = np.arange(rows)[:, None] * BINS + bins
    surplus = np.bincount(place.ravel(), (probability - positive).ravel(), rows * BINS)
    return surplus.reshape(*leading, BINS)


def calibration_error(
    probability: Float[np.ndarray, "*leading example output"],
    positive: Bool[np.ndarray, "*#leading example output"],
) -> Float[np.ndarray, "*leading"]:
    """ECE = Σ_b n_b/n |mean p in b − share of +1 in b| = Σ_b |Σ_{i in b} (p_i − [y_i = +1])|/n.

    Absolute values do not average out: with a finite test set it is biased upwards, above 0 even
    for a predictor that is calibrated.
    """
    flat = (*probability.shape[:-2], -1)
    positive = np.broadcast_to(positive, probability.shape)
    surplus = surplus_by_bin(probability.reshape(flat), positive.reshape(flat))
    size = probability.shape[-2] * probability.shape[-1]
    return np.asarray(np.abs(surplus).sum(axis=-1) / size)


def calibration_error_of_test_set(
    probability: Float[np.ndarray, "example output"], positive: Bool[np.ndarray, "example output"]
) -> float:
    """Error of the ECE by the finite test set: a bootstrap over test examples."""
    rng, examples = stream(0, Stream.TEST_SET_AGAIN), len(probability)
    chosen = rng.multinomial(examples, np.full(examples, 1 / examples), REPLICATES)
    resampled = np.abs(chosen @ surplus_by_bin(probability, positive)).sum(axis=1)
    return float(resampled.std(ddof=1)) / probability.size
