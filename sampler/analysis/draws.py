"""Draws of one posterior as they are averaged: `draws.nc` with the weights of repetitions bound.

`draws.mean("order_parameter") - theory["order_parameter"]` is by how much the samples are above
every predictor of a table of the theory, with their Monte Carlo error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.estimates import Averages, Estimate, PredictorEstimates
from sampler.analysis.names import is_overlap
from sampler.analysis.scores import LabelMoments, with_output
from sampler.mcmc.collected_draws import LOG_PRIOR, POINTWISE, PREDICTORS
from sampler.posterior.data import SPECTRUM

# Groups of ArviZ for draws besides the posterior.
PREDICTIONS, COORDINATES, VALIDATION = "predictions", "unconstrained_posterior", "validation"
BARTLETT = "bartlett_"
# Group of elements that the problem fixes.
FIXED = "fixed"
# Attribute of draws in which chains may differ by an exchange of heads.
EXCHANGEABLE = "exchangeable_heads"


@dataclass(frozen=True)
class Draws:
    """Draws [chain, draw, …] by name, and their estimates.

    tree  the content of `draws.nc`
    """

    tree: xr.DataTree

    def group(self, name: str) -> xr.Dataset | None:
        """A group of the file; None where there is none."""
        return self.tree[name].to_dataset() if name in self.tree.children else None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Quantities with a posterior mean: order parameters, predictors, a sampled temperature.

        Order parameters have none where chains may differ by an exchange of heads.
        """
        exchangeable = bool(self.tree["posterior"].attrs.get(EXCHANGEABLE, 0))
        groups = (self.group("posterior"), self.group(PREDICTIONS))
        names = [str(name) for table in groups if table is not None for name in table]
        return tuple(name for name in names if is_judged(name, exchangeable))

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> xr.DataArray:
        """Draws in double precision; of predictors all that are stored."""
        drawn = self.tree[group_of(name)][name]
        return drawn.transpose("chain", "draw", ...).astype(np.float64)

    @cached_property
    def statistics(self) -> dict[str, np.ndarray]:
        """Sampler statistics of the draws [chain, draw]."""
        table = self.group("sample_stats")
        return {} if table is None else {str(n): v.values for n, v in table.items()}

    @cached_property
    def averages(self) -> Averages:
        """How these draws are averaged."""
        return Averages.of(self.statistics)

    @property
    def attributes(self) -> dict[str, Any]:
        """How they were drawn, and their evidence."""
        return self.tree["sample_stats"].attrs

    # --- estimates

    def mean(self, name: str) -> Estimate:
        """The posterior mean, labelled as one draw is."""
        return self.averages.mean(self[name])

    def variance(self, name: str) -> Estimate:
        """The posterior variance."""
        return self.averages.variance(self[name])

    def batches(self, name: str) -> xr.DataArray:
        """Means of consecutive batches of draws, or of each repetition, [batch, …]."""
        return self.averages.batches(self[name])

    def bootstrap(self, statistic: Callable[[xr.DataArray], Any], name: str) -> Estimate:
        """A function of the posterior mean, with its bootstrap error over batches.

        statistic  maps means [replicate, …] to numbers [replicate, …]
        """
        return self.averages.bootstrap(statistic, self.batches(name))

    @cached_property
    def predictors(self) -> xr.Dataset:
        """Draws of f on the test set, or of its mean and variance given the rest."""
        return xr.Dataset({name: self[name] for name in self.names if name in PREDICTORS})

    @cached_property
    def predictor(self) -> PredictorEstimates | None:
        """Posterior mean and variance of f on the test set; None where it was not drawn."""
        return self.averages.predictor(self.predictors) if self.predictors else None

    @cached_property
    def temperature(self) -> float:
        """The temperature that was given; where it was sampled, its prior median."""
        return float(self.tree["constant_data"]["temperature"])

    @cached_property
    def labels_test(self) -> xr.DataArray | None:
        """The test labels [test_example, output]; None where there are none."""
        table = self.group("predictions_constant_data")
        return None if table is None else with_output(table["labels_test"])

    @cached_property
    def test_moments(self) -> LabelMoments | None:
        """Moments of test labels; None without them, and of draws that are not finite."""
        draws, noise = self.predictors, self.temperature
        finite = all(np.isfinite(values).all() for values in draws.values())
        if self.labels_test is None or not draws or not finite:
            return None
        if "temperature" in self:
            noise = self["temperature"].sel(draw=draws["draw"])
            noise = noise.drop_vars(noise.coords)
        if "predictor_mean" in draws:
            mean, variance = draws["predictor_mean"], draws["predictor_variance"]
        else:
            mean, variance = draws["predictor"], xr.zeros_like(draws["predictor"])
        return LabelMoments.of(with_output(mean), with_output(variance), noise, self.averages)

    @cached_property
    def validation_moments(self) -> LabelMoments | None:
        """Moments of the labels of the validation split; None without one."""
        table = self.group(VALIDATION)
        return None if table is None else LabelMoments.of_table(table, self.averages)

    # --- what diagnostics judge

    @property
    def judged(self) -> dict[str, np.ndarray]:
        """Draws by name, in double precision; except predictors that follow from judged numbers."""
        table = self.group(PREDICTIONS)
        without = PREDICTORS if table is not None and not table.attrs.get("judged", 1) else ()
        return {name: self[name].values for name in self.names if name not in without}

    @property
    def fixed(self) -> dict[str, np.ndarray]:
        """Name → which elements of a draw the problem fixes."""
        table = self.group(FIXED)
        return {} if table is None else {str(n): v.values.astype(bool) for n, v in table.items()}


def group_of(name: str) -> str:
    """The group of `draws.nc` that draws of this name are in."""
    if name in PREDICTORS:
        return PREDICTIONS
    if name.startswith(BARTLETT):
        return COORDINATES
    return name if name in (*POINTWISE, LOG_PRIOR) else "posterior"


def is_judged(name: str, exchangeable: bool = False) -> bool:
    """Whether draws of this name are neither weights nor coordinates of the sampler.

    exchangeable  whether chains may differ by an exchange of heads, which changes order parameters
                  but not their eigenvalues
    """
    if is_overlap(name):
        return not exchangeable
    return name.startswith(SPECTRUM) or name in (*PREDICTORS, "temperature")
