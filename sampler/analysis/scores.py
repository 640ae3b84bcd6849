"""Scores of predictions: of a mean and a variance at every example, and of draws with errors.

Theories and draws are scored by the same density, one Gaussian N(y; m, v + 𝒯) at every label, with
mean and variance of the posterior: scores then differ by the predictions alone. Examples and
outputs are axes by name; any others, as that of predictors, stay.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import xarray as xr

from sampler.analysis.estimates import OF_CHAINS, Averages, Estimate
from sampler.analysis.names import predictor_dimensions, squeeze_output
from theory.observables import accuracy, correct, labels_are_classes

DENSITY, ACCURACY, SQUARED_ERROR = "log_predictive_density", "accuracy", "squared_error"
SCORES = (DENSITY, ACCURACY, SQUARED_ERROR)
OUTPUT, PART = "output", "part"
MOMENTS = ("predictor_mean", "predictor_variance")

Statistic = Callable[[xr.DataArray, xr.DataArray], xr.DataArray]


def log_normal_density(squared_error, variance):
    """ln N(y; m, s) of squared errors (y − m)² and variances s."""
    return -0.5 * (np.log(2 * np.pi * variance) + squared_error / variance)


def with_output(values: xr.DataArray) -> xr.DataArray:
    """Values with the axis of outputs, last, which is left out where there is one output.

    Axes have names and no numbers, which scores need none of: to compare these takes longer.
    """
    bare = values.drop_vars(values.coords)
    return bare if OUTPUT in bare.dims else bare.expand_dims(OUTPUT, -1)


def labelled(values, like: xr.DataArray) -> xr.DataArray:
    """Numbers [example, output] with the axes of these labels."""
    return xr.DataArray(np.asarray(values).reshape(like.shape), like.coords, like.dims)


def density(mean: xr.DataArray, variance: xr.DataArray, labels: xr.DataArray) -> xr.DataArray:
    """ln N(y; m, s) of every example, outputs averaged; s the variance of labels, v + 𝒯."""
    return log_normal_density((mean - labels) ** 2, variance).mean(OUTPUT)


def squared_error(mean: xr.DataArray, _: xr.DataArray, labels: xr.DataArray) -> xr.DataArray:
    """(y − m)² of every example, outputs averaged."""
    return ((mean - labels) ** 2).mean(OUTPUT)


def hits(mean: xr.DataArray, _: xr.DataArray, labels: xr.DataArray) -> xr.DataArray:
    """1 where a mean finds the class of the example, else 0; of labels that are classes."""
    core = [labels.dims, labels.dims]
    found = xr.apply_ufunc(
        correct, mean, labels, input_core_dims=core, output_core_dims=[labels.dims[:1]]
    )
    return found.astype(np.float64)


def example_scores(
    mean: xr.DataArray, variance: xr.DataArray, labels: xr.DataArray
) -> dict[str, xr.DataArray]:
    """Every score by example; the accuracy where labels are classes. variance: of labels."""
    functions = {DENSITY: density, SQUARED_ERROR: squared_error}
    if labels_are_classes(labels.values):
        functions[ACCURACY] = hits
    return {name: function(mean, variance, labels) for name, function in functions.items()}


def error_of_mean(of_examples: np.ndarray | xr.DataArray) -> float:
    """Standard error of the mean over a finite number of examples."""
    values = np.asarray(of_examples)
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


@dataclass(frozen=True)
class LabelMoments:
    """Mean and variance of a label over the posterior, from batches of draws.

    Given U_1 or all weights a label has mean m and variance v + 𝒯; over draws it has the mean E[m]
    and the variance E[v + 𝒯] + Var[m].

    batches  [part, batch, example, output] of m, (m − centre)² and v + 𝒯; `whole` over all draws
    draws    how many there are
    """

    batches: xr.DataArray
    whole: xr.DataArray
    centre: xr.DataArray
    draws: int
    averages: Averages

    @classmethod
    def of(
        cls,
        mean: xr.DataArray,
        variance: xr.DataArray,
        temperature: float | xr.DataArray,
        averages: Averages = OF_CHAINS,
    ) -> "LabelMoments":
        """Return the moments of draws with mean and variance.

        mean, variance  [chain, draw, example, output]; temperature: also [chain, draw]
        """
        centre = averages.centre(mean)
        parts = [mean, (mean - centre) ** 2, variance + temperature]
        whole = xr.concat([averages.centre(part) for part in parts], PART)
        batches = xr.concat([averages.batches(part) for part in parts], PART)
        draws = mean.sizes["chain"] * mean.sizes["draw"]
        return cls(batches.transpose("batch", ..., PART), whole, centre, draws, averages)

    @classmethod
    def of_table(cls, table: xr.Dataset, averages: Averages = OF_CHAINS) -> "LabelMoments":
        """The moments of a table of draws with their temperature."""
        bare = table.drop_vars(table.coords)
        return cls.of(*(bare[name] for name in (*MOMENTS, "temperature")), averages)

    def moments(self, means: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
        """Mean and variance of labels from means of the parts over draws."""
        mean, square, within = (means.isel({PART: place}) for place in range(3))
        between = np.maximum(square - (mean - self.centre) ** 2, 0.0)
        between = between * (self.draws / max(self.draws - 1, 1))
        return mean, within + between

    @property
    def posterior(self) -> tuple[xr.DataArray, xr.DataArray]:
        """Mean and variance [example, output] over all draws."""
        return self.moments(self.whole)

    @cached_property
    def resampled(self) -> tuple[xr.DataArray, xr.DataArray]:
        """Mean and variance [replicate, example, output] at means of batches drawn again."""
        return self.moments(self.averages.resampled(self.batches))

    def estimate(self, statistic: Statistic) -> Estimate:
        """A function of mean and variance, with its bootstrap error over batches of draws."""
        found = self.averages.of_replicates(statistic(*self.resampled), len(self.batches))
        return replace(found, value=statistic(*self.posterior))


def moment_columns(mean: np.ndarray, variance: np.ndarray, labels: np.ndarray | None) -> dict:
    """Columns of `theory.nc`: mean and variance of f on the test set, the accuracy of the mean."""
    axes = predictor_dimensions(mean.shape[1])
    return {
        "predictor_mean": (axes, squeeze_output(mean)),
        "predictor_variance": (axes, squeeze_output(variance)),
        "accuracy": ((), accuracy(mean, labels)),
    }
