"""Probabilities of +1, and the calibration error of a calibrated predictor."""

from collections.abc import Iterable

import numpy as np

from runs.studies.numbers import estimate
from sampler.analysis.calibration import calibration_error, probability_of_positive


def probabilities(comparison, theory, predictors: Iterable[str]) -> dict:
    """Probabilities of +1 at the test examples, by predictor: each with its own temperature."""
    mean, variance = (comparison.elements(f"predictor_{name}") for name in ("mean", "variance"))
    noisy = variance["predicted"] + theory["temperature"]
    predicted = probability_of_positive(mean["predicted"], noisy)
    noisy = variance["sampled"] + theory.attrs["temperature"]
    sampled = probability_of_positive(mean["sampled"], noisy)
    return {
        who: sampled if who == "sampled" else predicted.sel(predictor=who) for who in predictors
    }


def error_if_calibrated(probability: np.ndarray) -> dict:
    """The calibration error, which is above 0, of labels drawn from a predictor's probabilities."""
    drawn = np.random.default_rng(0).random((1000, *probability.shape)) < probability
    copies = np.broadcast_to(probability, drawn.shape)
    errors = calibration_error(copies[..., None], drawn[..., None])
    return estimate(errors.mean(), errors.std(ddof=1), "over drawn labels")
