"""Theories and draws of one problem, as quantities are computed from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Float

from sampler.analysis.draws_table import (
    PREDICTIONS,
    stored_draws,
    stored_labels,
    stored_predictors,
    stored_weights,
)
from sampler.analysis.estimates import RepetitionWeights, batch_means
from sampler.analysis.kernels import kernel_at
from sampler.analysis.predictors import AXIS, prediction, predictors_of
from sampler.analysis.scores import LabelMoments

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
        temperature = {"temperature": np.asarray(self.temperature)}
        return stored | {name: temperature | dict(arrays) for name, arrays in self.own.items()}

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """Name → [chain, draw, …] of everything sampled but weights and statistics."""
        return stored_draws(self.tree)

    @cached_property
    def weights(self) -> RepetitionWeights:
        """Weights of repetitions; None where the chains are Markov chains."""
        return stored_weights(self.tree)

    @cached_property
    def temperature(self) -> float:
        """The temperature that was given; where it was sampled, its prior median."""
        return float(self.tree["constant_data"]["temperature"])

    @cached_property
    def labels_test(self) -> Float[np.ndarray, "test_example output"] | None:
        """The test labels; None where there are none."""
        return stored_labels(self.tree)

    @cached_property
    def predictors(self) -> dict[str, np.ndarray]:
        """Draws of f on the test set, or of its mean and variance given U_1."""
        return stored_predictors(self.tree)

    @cached_property
    def test_moments(self) -> LabelMoments | None:
        """Moments of test labels; None without them, and of draws that are not finite."""
        draws, labels = self.predictors, self.labels_test
        if labels is None or not draws or not all(np.isfinite(v).all() for v in draws.values()):
            return None
        collapsed = "predictor_mean" in draws
        mean = draws["predictor_mean" if collapsed else "predictor"]
        variance = draws["predictor_variance"] if collapsed else np.zeros_like(mean)
        shape = (*mean.shape[:2], *labels.shape)
        temperature = draws.get("temperature", self.temperature)
        return LabelMoments.of(
            mean.reshape(shape), variance.reshape(shape), temperature, self.weights
        )

    @cached_property
    def kernels(self) -> Float[np.ndarray, "batch example example"] | None:
        """K of batches of draws, between the examples whose features the theory has stored."""
        overlaps = self.draws.get("order_parameter")
        if self.theory is None or "kernel_features" not in self.theory or overlaps is None:
            return None
        features = self.theory["kernel_features"].values
        batches = batch_means(overlaps, weights=self.weights)
        return np.stack([kernel_at(features, batch) for batch in batches])

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """Heads of every layer, as the theory has them; nothing where it has none."""
        scores = None if self.theory is None else self.theory.get("head_score")
        if scores is None:
            return ()
        heads = tuple(int(n) for n in np.isfinite(scores.values).any(axis=0).sum(axis=1))
        return heads if all(heads) else ()

    def axes_of(self, name: str, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Axes of a quantity in one draw, with their coordinates; numbered where it is not stored.

        A quantity from outside the package has numbered axes.
        """
        places = [(self.theory, name), (self.tree["posterior"], name)]
        if PREDICTIONS in self.tree.children:
            places.append((self.tree[PREDICTIONS], "predictor"))
        for table, variable in places:
            if table is not None and variable in table:
                values = table[variable]
                axes = [str(axis) for axis in values.dims if axis not in (AXIS, "chain", "draw")]
                if tuple(values.sizes[axis] for axis in axes) == shape:
                    return {axis: values[axis].values for axis in axes}
        return {f"{name}_{place}": np.arange(size) for place, size in enumerate(shape)}
