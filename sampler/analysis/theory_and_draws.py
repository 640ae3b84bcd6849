"""Theories and draws of one problem, as quantities are computed from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr

from sampler.analysis.draws import Draws
from sampler.analysis.kernels import kernel_at
from sampler.analysis.predictors import prediction, predictors_of

Prediction = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class TheoryAndDraws:
    """Theories and draws as they are compared.

    theory  the table of `theory.nc`; None without a theory
    tree    all of `draws.nc`
    own     name of a theory of the user's own → what it predicts
    """

    theory: xr.Dataset | None
    tree: xr.DataTree
    own: Mapping[str, Prediction] = field(default_factory=dict)

    @cached_property
    def predictions(self) -> dict[str, Prediction]:
        """Predictor → all that it predicts, by name."""
        stored = {name: prediction(self.theory, name) for name in predictors_of(self.theory)}
        temperature = {"temperature": np.asarray(self.draws.temperature)}
        return stored | {name: temperature | dict(arrays) for name, arrays in self.own.items()}

    @cached_property
    def draws(self) -> Draws:
        """What is estimated from the draws."""
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
