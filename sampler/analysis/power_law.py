"""Power laws in the width, fitted to differences with errors."""

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

SMALLEST_FITTED_WIDTH = 30
FEWEST_FITTED = 3
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
    fitted = tuple(int(one) for one in width)
    undefined = PowerLaw(float("nan"), float("nan"), float("nan"), fitted)
    if len(fitted) < FEWEST_FITTED or not np.all(error > 0.0):
        return undefined
    centre = np.exp(np.log(width).mean())  # so that prefactor and slope are nearly independent
    logs, target = np.log(width / centre), gap / error

    def prefactor_of(slope: float) -> tuple[float, float]:
        """Best prefactor at a slope, and χ² there."""
        shape = np.exp(slope * logs) / error
        best = float(shape @ target / (shape @ shape))
        return best, float(np.sum((target - best * shape) ** 2))

    from scipy.optimize import minimize_scalar

    slopes = np.linspace(*SLOPES, 161)
    start = int(np.argmin([prefactor_of(slope)[1] for slope in slopes]))
    around = slopes[max(0, start - 1)], slopes[min(start + 1, len(slopes) - 1)]
    found = minimize_scalar(lambda slope: prefactor_of(slope)[1], bounds=around, method="bounded")
    slope = float(found.x)
    prefactor, chi_square = prefactor_of(slope)
    # Two numbers were fitted: by chance alone they gain more than this in one case of a thousand.
    if np.sum(target**2) - chi_square < chdtri(2, 1e-3):
        return undefined
    shape = np.exp(slope * logs) / error
    jacobian = np.stack([shape, prefactor * logs * shape], axis=1)
    scatter = max(1.0, chi_square / (len(fitted) - 2))
    slope_error = np.sqrt(scatter * np.linalg.inv(jacobian.T @ jacobian)[1, 1])
    return PowerLaw(slope, float(slope_error), float(prefactor * centre**-slope), fitted)
