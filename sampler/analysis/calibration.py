"""Calibration: probabilities of the class +1, and how often labels are +1 where they are predicted.

The model is a regression, y = f(x) + √𝒯 ε, used on labels ±1. Of all numbers that its predictive
density p(y | x) covers only two occur, and the probability of the class +1 is that of +1 given that
it is one of them,

    p₊ = p(y = +1 | x) / (p(y = +1 | x) + p(y = −1 | x)).

It is made of the same density as the log predictive density, which a Φ(m/√s) is not: that one asks
for the sign of a y that may be any number. For one Gaussian of mean m and variance s = v + 𝒯, which
theories and draws have alike (`scores`), it is p₊ = 1/(1 + exp(−2m/s)).

Draws that know their own mean m_d and variance v_d given U_1 have a density beside that one, the
mixture p(y | x) = ⟨N(y; m_d, v_d + 𝒯)⟩ over draws d, whose log predictive density is a quantity of
its own. Draws of all weights know only f_d, and a mixture of Gaussians as narrow as √𝒯 would rest
on the few draws that come close to a label: they have none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from sampler.analysis.estimates import (
    Estimate,
    RepetitionWeights,
    batch_means,
    bootstrap,
    mean_over_batches,
)
from sampler.analysis.scores import error_of_mean, log_normal_density
from sampler.streams import Stream, stream

BINS = 10
REPLICATES = 1000
DRAWN_TOGETHER = 10**6  # labels, to bound memory
EXAMPLES_TOGETHER = 100  # the same


@dataclass(frozen=True)
class ReliabilityBin:
    """Examples whose probability of +1 is in [low, high), and the share of them labelled +1."""

    low: float
    high: float
    count: int
    mean_probability: float
    fraction: float
    error: float

    def interval(self) -> tuple[float, float]:
        """Interval of the share, to one standard deviation."""
        return wilson_interval(round(self.fraction * self.count), self.count)


def wilson_interval(positive: int, count: int, deviations: float = 1.0) -> tuple[float, float]:
    """Wilson's interval, z standard deviations wide, of a share seen in `count` examples.

    (f + z²/2n ± z √(f(1 − f)/n + z²/4n²)) / (1 + z²/n)

    Unlike √(f(1 − f)/n) it has a width where all examples agree (Wilson, 1927).
    """
    share, square = positive / count, deviations**2
    middle = share + square / (2 * count)
    half = deviations * math.sqrt(share * (1.0 - share) / count + square / (2 * count) ** 2)
    scale = 1.0 + square / count
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def bin_of(probability: np.ndarray) -> np.ndarray:
    """Bins of equal width, [b/B, (b + 1)/B); 1 belongs to the last one.

    The boundaries are the same for every predictor, so that theory, GP and samples can be held
    against each other bin by bin; bins of equal mass could not.
    """
    return np.minimum((probability * BINS).astype(int), BINS - 1)


def reliability(
    probability: Float[np.ndarray, "*shape"], positive: Bool[np.ndarray, "*shape"]
) -> tuple[ReliabilityBin, ...]:
    """Bins that have examples: what was predicted there, and what share of labels is +1.

    `error` is half the Wilson interval of one standard deviation, by the finite number of examples.
    """
    place_of, bins = bin_of(probability), []
    for place in np.unique(place_of).tolist():
        inside = place_of == place
        count, right = int(inside.sum()), int(positive[inside].sum())
        low, high = wilson_interval(right, count)
        edges, mean = (place / BINS, (place + 1) / BINS), float(probability[inside].mean())
        bins.append(ReliabilityBin(*edges, count, mean, right / count, (high - low) / 2))
    return tuple(bins)


def surplus_by_bin(
    probability: Float[np.ndarray, "*leading example"],
    positive: Bool[np.ndarray, "*leading example"],
) -> Float[np.ndarray, "*leading bin"]:
    """Σ_i (p_i − [y_i = +1]) over the examples whose p is in the bin."""
    *leading, examples = probability.shape
    rows = int(np.prod(leading))
    place = np.arange(rows)[:, None] * BINS + bin_of(probability).reshape(rows, examples)
    surplus = np.bincount(place.ravel(), (probability - positive).ravel(), rows * BINS)
    return surplus.reshape(*leading, BINS)


def calibration_error(
    probability: Float[np.ndarray, "*leading example output"],
    positive: Bool[np.ndarray, "*#leading example output"],
) -> Float[np.ndarray, "*leading"]:
    """ECE = Σ_b n_b/n |mean p in b − share of +1 in b| = Σ_b |Σ_{i in b} (p_i − [y_i = +1])|/n.

    Absolute values do not average out: with a finite test set it is biased upwards, above 0 even
    for a predictor that is calibrated. `error_if_calibrated` says by how much.
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


def error_if_calibrated(probability: Float[np.ndarray, "example output"]) -> tuple[float, float]:
    """Mean and standard deviation of the ECE over labels drawn from the predicted probabilities.

    An ECE a few deviations above that mean is not chance (Bröcker and Smith, 2007).
    """
    rng, errors = stream(0, Stream.CALIBRATED_LABELS), []
    together = max(1, DRAWN_TOGETHER // probability.size)
    for first in range(0, REPLICATES, together):
        count = min(REPLICATES - first, together)
        copies = np.broadcast_to(probability, (count, *probability.shape))
        errors += calibration_error(copies, rng.random(copies.shape) < copies).tolist()
    return float(np.mean(errors)), float(np.std(errors, ddof=1))


# Averaged densities below this, relative to the largest one, count as this.
SMALLEST = float(np.finfo(np.float64).tiny)


def probability_of_positive(
    mean: Float[np.ndarray, "*shape"], variance: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """p₊ = 1/(1 + exp(−2m/s)) of labels with mean m and variance s."""
    return expit(2.0 * mean / variance)


def labels_are_signs(labels: np.ndarray | None) -> bool:
    """Whether there are labels, and all of them are ±1."""
    return labels is not None and bool(np.all(np.abs(labels) == 1))


def mixture_density(
    draws: Mapping[str, np.ndarray],
    labels: Float[np.ndarray, "example output"],
    temperature: float | Float[np.ndarray, "chain draw"],
    weights: RepetitionWeights = None,
) -> Estimate:
    """Log predictive density of the mixture over draws, mean over labels.

    draws: `predictor_mean` and `predictor_variance` [chain, draw, …].
    """
    shape, temperature = labels.shape, np.asarray(temperature, dtype=np.float64)
    mean, variance = (
        draws[name].reshape(*draws[name].shape[:2], *shape)
        for name in ("predictor_mean", "predictor_variance")
    )
    parts, largest = [], []
    for first in range(0, shape[0], EXAMPLES_TOGETHER):
        block = (..., slice(first, first + EXAMPLES_TOGETHER), slice(None))
        m, v = (np.asarray(values[block], dtype=np.float64) for values in (mean, variance))
        of_draw = log_normal_density((labels[block] - m) ** 2, v + temperature[..., None, None])
        # Relative to the largest one, or all densities far from a label would be 0.
        largest.append(of_draw.max(axis=(0, 1)))
        parts.append(batch_means(np.exp(of_draw - largest[-1]), weights=weights))
    batches, scale = np.concatenate(parts, axis=1), np.concatenate(largest)

    def by_label(means: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(means, SMALLEST)) + scale

    density = bootstrap(lambda means: by_label(means).mean(axis=(-2, -1)), batches, weights=weights)
    of_examples = by_label(mean_over_batches(batches, weights)).mean(axis=-1)
    return replace(density, test_error=error_of_mean(of_examples))
