"""Do predicted probabilities come true? Reliability bins and the expected calibration error."""

import numpy as np
from jaxtyping import Bool, Float

BINS = 10
REPLICATES = 1000
DRAWN_TOGETHER = 10**6  # labels, to bound memory


def wilson_interval(
    fraction: Float[np.ndarray, " bin"], count: np.ndarray, deviations: float = 1.0
) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """Where a share lies of which `fraction` was seen in `count` examples, z standard deviations.

    (f + z²/2n ± z √(f(1 − f)/n + z²/4n²)) / (1 + z²/n)

    Unlike √(f(1 − f)/n) it has a width where all examples agree (Wilson, 1927).
    """
    square = deviations**2 / count
    centre = (fraction + square / 2) / (1 + square)
    half = deviations * np.sqrt((fraction * (1 - fraction) + square / 4) / count) / (1 + square)
    return centre - half, centre + half


def bin_of(probability: np.ndarray) -> np.ndarray:
    """Bins of equal width, [b/B, (b + 1)/B); 1 belongs to the last one.

    The boundaries are the same for every predictor, so that theory, GP and samples can be held
    against each other bin by bin; bins of equal mass could not.
    """
    return np.minimum((probability * BINS).astype(int), BINS - 1)


def reliability(
    probability: Float[np.ndarray, "*shape"], positive: Bool[np.ndarray, "*shape"]
) -> list[dict]:
    """Bins that have examples: what was predicted there, and what share of labels is +1.

    `error` is half the Wilson interval of one standard deviation, by the finite number of examples.
    """
    bins, found = bin_of(probability), []
    for place in np.unique(bins):
        inside = bins == place
        count, fraction = int(inside.sum()), float(positive[inside].mean())
        low, high = wilson_interval(np.array([fraction]), np.array([count]))
        found.append(
            {
                "low": place / BINS,
                "high": (place + 1) / BINS,
                "count": count,
                "mean_probability": float(probability[inside].mean()),
                "fraction": fraction,
                "error": float(high[0] - low[0]) / 2,
            }
        )
    return found


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
    positive: Bool[np.ndarray, "*leading example output"],
) -> Float[np.ndarray, "*leading"]:
    """ECE = Σ_b n_b/n |mean p in b − share of +1 in b| = Σ_b |Σ_{i in b} (p_i − [y_i = +1])|/n.

    Absolute values do not average out: with a finite test set it is biased upwards, above 0 even
    for a predictor that is calibrated. `calibration` says by how much.
    """
    flat = (*probability.shape[:-2], -1)
    surplus = surplus_by_bin(probability.reshape(flat), positive.reshape(flat))
    size = probability.shape[-2] * probability.shape[-1]
    return np.asarray(np.abs(surplus).sum(axis=-1) / size)


def calibration(
    probability: Float[np.ndarray, "example output"], positive: Bool[np.ndarray, "example output"]
) -> dict[str, float]:
    """ECE, its error by the finite test set, and what it would be if the predictor were calibrated.

    The error is a bootstrap over test examples. `if_calibrated` is the mean of the ECE over labels
    drawn from the predicted probabilities, `if_calibrated_deviation` its standard deviation
    (Bröcker and Smith, 2007): an ECE a few deviations above that mean is not chance.
    """
    rng, examples = np.random.default_rng(0), len(probability)
    chosen = rng.multinomial(examples, np.full(examples, 1 / examples), REPLICATES)
    resampled = np.abs(chosen @ surplus_by_bin(probability, positive)).sum(axis=1)
    ideal: list[float] = []
    while len(ideal) < REPLICATES:
        count = min(REPLICATES - len(ideal), max(1, DRAWN_TOGETHER // probability.size))
        copies = np.broadcast_to(probability, (count, *probability.shape))
        ideal += calibration_error(copies, rng.random(copies.shape) < copies).tolist()
    return {
        "value": float(calibration_error(probability, positive)),
        "error": float(resampled.std(ddof=1)) / probability.size,
        "if_calibrated": float(np.mean(ideal)),
        "if_calibrated_deviation": float(np.std(ideal, ddof=1)),
    }
