"""U_1 against the width: theories, samples of every space, and power laws of their difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy.special import chdtri

from sampler.analysis.predictors import AXIS, LEADING, NEXT, SAMPLED
from sampler.posterior.spaces import ORDER_PARAMETERS

WIDTHS, SPACE = "network.widths", "sampler.space"
PATHS = ("path", "path_")
ORDER_PARAMETER = "order_parameter"
# Widths from which a power is fitted, and how many it takes.
SMALLEST_FITTED_WIDTH, FEWEST_WIDTHS = 30, 3
SLOPES = (-5.0, 3.0)


@dataclass(frozen=True)
class PowerLaw:
    """difference ≈ prefactor · N^slope, with the standard error of the slope.

    `widths` are those that entered the fit; slope, error and prefactor are NaN where there are
    fewer than three, or no difference that can be told from Monte Carlo noise.
    """

    slope: float
    slope_error: float
    prefactor: float
    widths: tuple[int, ...]


def fit_power_law(
    widths: np.ndarray,
    difference: np.ndarray,
    mcse: np.ndarray,
    smallest_width: int = SMALLEST_FITTED_WIDTH,
) -> PowerLaw:
    """Least squares of theory − exact, with its sign, against c N^slope: min Σ (d − c N^s)²/MCSE².

    All points from `smallest_width` on enter, however small their difference: choosing the resolved
    ones would keep those that noise has made large. The error of the slope is inflated by
    √(χ²/degrees) where the points scatter more than their errors, since a power law is only the
    leading term.
    """
    used = np.asarray(widths) >= smallest_width
    width, gap, error = (np.asarray(a, float)[used] for a in (widths, difference, mcse))
    fitted = tuple(map(int, width))
    undefined = PowerLaw(np.nan, np.nan, np.nan, fitted)
    if len(fitted) < FEWEST_WIDTHS or not np.all(error > 0.0):
        return undefined
    centre = np.exp(np.log(width).mean())  # so that prefactor and slope are nearly independent
    logs, target = np.log(width / centre), gap / error

    def best_prefactor(slope: float) -> tuple[float, float]:
        """The prefactor at a slope, and χ² there."""
        shape = np.exp(slope * logs) / error
        best = float(shape @ target / (shape @ shape))
        return best, float(np.sum((target - best * shape) ** 2))

    from scipy.optimize import minimize_scalar  # only here: it takes long

    slopes = np.linspace(*SLOPES, 161)
    start = int(np.argmin([best_prefactor(slope)[1] for slope in slopes]))
    around = slopes[max(0, start - 1)], slopes[min(start + 1, len(slopes) - 1)]
    fit = minimize_scalar(lambda slope: best_prefactor(slope)[1], bounds=around, method="bounded")
    slope = float(fit.x)
    prefactor, chi_square = best_prefactor(slope)
    # Two numbers were fitted: by chance alone they gain more than this in one case of a thousand.
    if np.sum(target**2) - chi_square < chdtri(2, 1e-3):
        return undefined
    shape = np.exp(slope * logs) / error
    jacobian = np.stack([shape, prefactor * logs * shape], axis=1)
    scatter = max(1.0, chi_square / (len(fitted) - 2))
    slope_error = np.sqrt(scatter * np.linalg.inv(jacobian.T @ jacobian)[1, 1])
    return PowerLaw(slope, float(slope_error), float(prefactor * centre**-slope), fitted)


@dataclass(frozen=True)
class SampledByWidth:
    """U_1 of the samples of one space.

    values, errors  [width, path, path_]
    degrees         of freedom that the errors are known by, NaN where nothing is compared
    trusted         whether the samples passed their diagnostics
    expanded        whether the expansion in 1/N holds
    """

    widths: np.ndarray
    values: Float[np.ndarray, "width path path_"]
    errors: Float[np.ndarray, "width path path_"]
    degrees: Float[np.ndarray, " width"]
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
        points = dataset.stack(place=list(dataset["point"].dims), create_index=False)
        points = points.transpose("place", ...)
        # Theories are the same in every space: of each width the first point that has them.
        by_width = points["order_parameter"].groupby(points["width"].astype(int)).first()
        by_width = by_width.transpose(AXIS, "width", *PATHS).dropna(AXIS, how="all")
        predicted = {str(name): by_width.sel({AXIS: name}).values for name in by_width[AXIS].values}
        sampled = by_space(points) if predicted.pop(SAMPLED, None) is not None else {}
        if not predicted:
            return None
        names = [str(name) for name in dataset["path"].values]
        return cls(names, by_width["width"].values, predicted, sampled)

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


def by_space(points: xr.Dataset) -> dict[str, SampledByWidth]:
    """The samples of every space, in the order of their widths."""
    sampled = points["order_parameter"].sel({AXIS: SAMPLED}).transpose("place", *PATHS)
    there = sampled.notnull().any(PATHS).values
    points = points.assign(sampled=sampled).isel(place=there).sortby("width")
    nothing = np.full(points.sizes["place"], "", dtype=object)

    def texts(table: xr.Dataset, name: str) -> np.ndarray:
        return table[name].values if name in table else nothing[: table.sizes["place"]]

    spaces = {}
    for space in dict.fromkeys(texts(points, "sampled_space")):
        table = points.isel(place=texts(points, "sampled_space") == space)
        spaces[str(space)] = SampledByWidth(
            table["width"].values.astype(int),
            table["sampled"].values,
            table["order_parameter_error"].transpose("place", *PATHS).values,
            table["degrees"].sel(quantity=ORDER_PARAMETER).max(AXIS).values,
            texts(table, "diagnostics") != "fail",
            texts(table, "next_order_status") == "fine",
        )
    return spaces
