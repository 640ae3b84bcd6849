"""Theories and draws of one problem, as quantities are computed from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr

from sampler.analysis.draws import Draws
from sampler.analysis.kernels import kernel_at
from sampler.analysis.predictors import AXIS, of_predictor, predictors_of


@dataclass(frozen=True)
class TheoryAndDraws:
    """Theories and draws as they are compared.

    theory  the table of `theory.nc`; None without a theory
    tree    all of `draws.nc`
    own     name of a theory of the user's own → its predictions: a label of the axis `predictor`
    """

    theory: xr.Dataset | None
    tree: xr.DataTree
    own: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)

    @cached_property
    def table(self) -> xr.Dataset | None:
        """All predictions, the user's own on the axis of the others; None without any."""
        tables = []
        if self.theory is not None:
            names = [name for name, values in self.theory.items() if AXIS in values.dims]
            tables.append(self.theory[names])
        for name, arrays in self.own.items():
            given = {"temperature": self.draws.temperature, **arrays}
            mine = {key: self.like(key).copy(data=values) for key, values in given.items()}
            tables.append(xr.Dataset(mine).expand_dims({AXIS: [name]}))
        options = {"data_vars": "all", "coords": "minimal", "compat": "override", "join": "outer"}
        return xr.concat(tables, AXIS, **options) if tables else None

    def like(self, name: str) -> xr.DataArray:
        """A prediction of this name, as the theory has it or as a draw is labelled."""
        if self.theory is not None and name in self.theory:
            return self.theory[name].isel({AXIS: 0}, drop=True)
        if name.startswith("predictor_"):
            name = str(next(iter(self.draws.predictors)))
        drawn = name in self.draws and name != "temperature"
        return self.draws[name].isel(chain=0, draw=0, drop=True) if drawn else xr.DataArray(0.0)

    @cached_property
    def predictions(self) -> dict[str, xr.Dataset]:
        """Predictor → all that it predicts."""
        return {name: of_predictor(self.table, name) for name in predictors_of(self.table)}

    @cached_property
    def draws(self) -> Draws:
        """Estimates from the draws."""
        return Draws(self.tree)

    @cached_property
    def kernels(self) -> xr.DataArray | None:
        """K of batches of draws, between the examples whose features the theory has stored."""
        name, theory = "order_parameter", self.theory
        if theory is None or "kernel_features" not in theory or name not in self.draws:
            return None
        features = theory["kernel_features"]
        kernels = [kernel_at(features.values, one) for one in self.draws.batches(name).values]
        axes = (str(features.dims[0]), f"{features.dims[0]}_")
        numbers = dict.fromkeys(axes, features[axes[0]].values)
        return xr.DataArray(np.stack(kernels), numbers, ("batch", *axes))

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """Heads of every layer, as the theory has them; nothing where it has none."""
        scores = None if self.theory is None else self.theory.get("head_score")
        if scores is None:
            return ()
        heads = tuple(int(n) for n in np.isfinite(scores.values).any(axis=0).sum(axis=1))
        return heads if all(heads) else ()
