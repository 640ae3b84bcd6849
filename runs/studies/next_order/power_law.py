"""Least squares of a power law of the width, of differences with their errors."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import chdtri

FEWEST_WIDTHS = 3
SLOPES = (-5.0, 3.0)


@dataclass(frozen=True)
class PowerLaw:
    """difference ≈ prefactor · N^slope, with the standard error of the slope.

    NaN for fewer than three widths, or where no difference can be told from Monte Carlo noise.
    """

    slope: float
    slope_error: float
    prefactor: float


UNDEFINED = PowerLaw(np.nan, np.nan, np.nan)


def fit_power_law(widths: np.ndarray, difference: np.ndarray, mcse: np.ndarray) -> PowerLaw:
    """Least squares of theory − exact, with its sign, against c N^slope: min Σ (d − c N^s)²/MCSE².

    All points enter, however small their difference: choosing the resolved ones would keep those
    that noise has made large. The error of the slope is inflated by √(χ²/degrees) where the points
    scatter more than their errors, since a power law is only the leading term.
    """
    width, gap, error = (np.asarray(of, float) for of in (widths, difference, mcse))
    if len(width) < FEWEST_WIDTHS or not np.all(error > 0.0):
        return UNDEFINED
    centre = np.exp(np.log(width).mean())  # so that prefactor and slope are nearly independent
    logs, target = np.log(width / centre), gap / error

    def best_prefactor(slope: float) -> tuple[float, float]:
        """The prefactor at a slope, and χ² there."""
        shape = np.exp(slope * logs) / error
        best = float(shape @ target / (shape @ shape))
        return best, float(np.sum((target - best * shape) ** 2))

    slopes = np.linspace(*SLOPES, 161)
    start = int(np.argmin([best_prefactor(slope)[1] for slope in slopes]))
    around = slopes[max(0, start - 1)], slopes[min(start + 1, len(slopes) - 1)]
    fit = minimize_scalar(lambda slope: best_prefactor(slope)[1], bounds=around, method="bounded")
    slope = float(fit.x)
    prefactor, chi_square = best_prefactor(slope)
    # Two numbers were fitted: by chance alone they gain more than this in one case of a thousand.
    if np.sum(target**2) - chi_square < chdtri(2, 1e-3):
        return UNDEFINED
    shape = np.exp(slope * logs) / error
    jacobian = np.stack([shape, prefactor * logs * shape], axis=1)
    scatter = max(1.0, chi_square / (len(width) - 2))
    slope_error = np.sqrt(scatter * np.linalg.inv(jacobian.T @ jacobian)[1, 1])
    return PowerLaw(slope, float(slope_error), float(prefactor * centre**-slope))
