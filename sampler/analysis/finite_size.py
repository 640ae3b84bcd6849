"""U_1 against the width: theories, samples of every space, and power laws of their difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from sampler.analysis.power_law import PowerLaw, fit_power_law
from sampler.analysis.predictors import AXIS, LEADING, NEXT, SAMPLED
from sampler.posterior.spaces import ORDER_PARAMETERS

WIDTHS, SPACE = "network.widths", "sampler.space"
PATHS = ("path", "path_")
# Of fewer sampled widths no power is fitted.
FEWEST_WIDTHS = 3


@dataclass(frozen=True)
class SampledByWidth:
    """U_1 of the samples of one space.

    values, errors  [width, path, path_]
    trusted         whether the samples passed their diagnostics
    expanded        whether the expansion in 1/N holds
    """

    widths: np.ndarray
    values: Float[np.ndarray, "width path path_"]
    errors: Float[np.ndarray, "width path path_"]
    trusted: Bool[np.ndarray, " width"]
    expanded: Bool[np.ndarray, " width"]


@dataclass(frozen=True)
class FiniteSize:
    """U_1 by width.

    predicted  predictor → U_1 [width, path, path_] at all `widths`, NaN where it is not known
    sampled    space → the samples
    """

    paths: Sequence[str]
    widths: np.ndarray
    predicted: dict[str, Float[np.ndarray, "width path path_"]]
    sampled: dict[str, SampledByWidth]

    @classmethod
    def of(cls, dataset: xr.Dataset) -> "FiniteSize | None":
        """From the Dataset of a sweep.

        None unless the points differ by width (and space) alone, layers have one width, and some
        point is solved.
        """
        swept = set(dataset["point"].dims)
        if not {WIDTHS} <= swept <= {WIDTHS, SPACE} or dataset[WIDTHS].dtype.kind not in "iu":
            return None
        if "order_parameter" not in dataset:
            return None
        points = dataset.stack(place=list(dataset["point"].dims)).transpose("place", ...)
        every = points["width"].values.astype(int)
        predictors = [str(name) for name in dataset[AXIS].values]
        matrices = points["order_parameter"].transpose("place", AXIS, *PATHS)
        widths, predicted = np.unique(every), {}
        for name in predictors:
            of_points = matrices.sel({AXIS: name}).values
            if name != SAMPLED and np.isfinite(of_points).any():
                predicted[name] = np.stack([first_finite(of_points[every == w]) for w in widths])
        if not predicted:
            return None
        sampled = {} if SAMPLED not in predictors else by_space(points, every)
        return cls([str(name) for name in dataset["path"].values], widths, predicted, sampled)

    def difference(self, predictor: str, space: str = ORDER_PARAMETERS) -> np.ndarray:
        """Predicted − sampled [width, path, path_], at the widths of the samples."""
        samples = self.sampled[space]
        places = np.searchsorted(self.widths, samples.widths)
        return self.predicted[predictor][places] - samples.values

    def power_laws(self, predictor: str) -> list[PowerLaw]:
        """A power law for every diagonal element of U_1, of the points whose samples are trusted.

        Of the next order where the expansion holds, too; none of few widths, nor of any other.
        """
        samples = self.sampled.get(ORDER_PARAMETERS)
        if samples is None or len(samples.widths) < FEWEST_WIDTHS:
            return []
        if predictor not in (LEADING, NEXT) or predictor not in self.predicted:
            return []
        used = samples.trusted & (samples.expanded if predictor == NEXT else True)
        difference, errors = self.difference(predictor)[used], samples.errors[used]
        if not np.isfinite(difference).any():
            return []
        return [
            fit_power_law(samples.widths[used], difference[:, i, i], errors[:, i, i])
            for i in range(len(self.paths))
        ]


def first_finite(matrices: Float[np.ndarray, "point path path_"]) -> np.ndarray:
    """The first matrix that is known, of points that differ in their space alone."""
    known = [one for one in matrices if np.isfinite(one).any()]
    return known[0] if known else matrices[0]


def by_space(points: xr.Dataset, widths: np.ndarray) -> dict[str, SampledByWidth]:
    """The samples of every space, in the order of their widths."""
    values = points["order_parameter"].sel({AXIS: SAMPLED}).transpose("place", *PATHS).values
    errors = points["order_parameter_error"].transpose("place", *PATHS).values
    nothing = np.full(len(widths), "", dtype=object)

    def texts(name: str) -> np.ndarray:
        return points[name].values if name in points else nothing

    known = np.isfinite(values).any(axis=(1, 2))
    spaces, found = texts("sampled_space"), {}
    for space in dict.fromkeys(spaces[known]):
        at = np.flatnonzero(known & (spaces == space))
        at = at[np.argsort(widths[at])]
        found[str(space)] = SampledByWidth(
            widths[at],
            values[at],
            errors[at],
            texts("diagnostics")[at] != "fail",
            texts("next_order_status")[at] == "fine",
        )
    return found
