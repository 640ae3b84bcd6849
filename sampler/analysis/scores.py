"""Scores of predictions: of a mean and a variance at every example, and of draws with errors.

Theories and draws are scored by the same density, one Gaussian N(y; m, v + 𝒯) at every label, with
mean and variance of the posterior: scores then differ by what is predicted alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from sampler.analysis.estimates import (
    Estimate,
    RepetitionWeights,
    batch_means,
    bootstrap,
    centre_of,
)
from sampler.analysis.names import predictor_dimensions, squeeze_output
from theory.observables import accuracy, correct, labels_are_classes

DENSITY, ACCURACY, SQUARED_ERROR = "log_predictive_density", "accuracy", "squared_error"
SCORES = (DENSITY, ACCURACY, SQUARED_ERROR)


def log_normal_density(squared_error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """ln N(y; m, s) of squared errors (y − m)² and variances s."""
    return -0.5 * (np.log(2 * np.pi * variance) + squared_error / variance)


def example_scores(mean, variance, labels, temperature) -> dict[str, np.ndarray]:
    """Scores [..., example] of means and variances [..., example, output], outputs averaged.

    (y − m)²,   ln N(y; m, v + 𝒯),   and, where labels are classes, whether m finds the class
    """
    error = (labels - mean) ** 2
    density = log_normal_density(error, variance + temperature)
    scores = {DENSITY: density.mean(axis=-1), SQUARED_ERROR: error.mean(axis=-1)}
    if labels_are_classes(labels):
        scores[ACCURACY] = correct(mean, labels).astype(np.float64)
    return scores


def error_of_mean(by_example: np.ndarray) -> float:
    """Standard error of the mean over a finite number of examples."""
    count = by_example.size
    return float(by_example.std(ddof=1) / np.sqrt(count)) if count > 1 else np.nan


Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class LabelMoments:
    """Mean and variance of a label over the posterior, from batches of draws.

    Given U_1 or all weights a label has mean m and variance v + 𝒯; over draws it has the mean E[m]
    and the variance E[v + 𝒯] + Var[m].

    batches  [batch, example, output, part] of m, (m − centre)² and v + 𝒯; `whole` over all draws
    draws    how many there are
    """

    batches: Float[np.ndarray, "batch example output part"]
    whole: Float[np.ndarray, "example output part"]
    centre: Float[np.ndarray, "example output"]
    draws: int
    weights: RepetitionWeights = None

    @classmethod
    def of(
        cls,
        mean: Float[np.ndarray, "chain draw example output"],
        variance: Float[np.ndarray, "chain draw example output"],
        temperature: float | Float[np.ndarray, "chain draw"],
        weights: RepetitionWeights = None,
    ) -> "LabelMoments":
        """Return the moments of draws that know their own mean and variance."""
        centre, temperature = centre_of(mean, weights), np.asarray(temperature)
        noise = temperature[..., None, None] if temperature.ndim else temperature
        parts = np.stack([mean, (mean - centre) ** 2, variance + noise], axis=-1)
        draws = mean.shape[0] * mean.shape[1]
        return cls(
            batch_means(parts, weights=weights), centre_of(parts, weights), centre, draws, weights
        )

    def moments(self, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of labels from means over draws [..., example, output, part]."""
        shift = means[..., 0] - self.centre
        between = np.maximum(means[..., 1] - shift**2, 0.0)
        between = between * (self.draws / max(self.draws - 1, 1))
        return means[..., 0], means[..., 2] + between

    @property
    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance [example, output] over all draws."""
        return self.moments(self.whole)

    def estimate(self, statistic: Statistic) -> Estimate:
        """A function of mean and variance, with its bootstrap error over batches of draws."""
        estimate = bootstrap(
            lambda means: statistic(*self.moments(means)), self.batches, weights=self.weights
        )
        mean, variance = self.posterior
        return replace(estimate, value=np.asarray(statistic(mean[None], variance[None]))[0])


def moment_columns(
    mean: Float[np.ndarray, "example output"],
    variance: Float[np.ndarray, "example output"],
    labels: Float[np.ndarray, "example output"] | None,
) -> dict:
    """Columns of `theory.nc`: mean and variance of f on the test set, the accuracy of the mean."""
    axes = predictor_dimensions(mean.shape[1])
    return {
        "predictor_mean": (axes, squeeze_output(mean)),
        "predictor_variance": (axes, squeeze_output(variance)),
        "accuracy": ((), accuracy(mean, labels)),
    }
