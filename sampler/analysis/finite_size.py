"""How theory and exact posterior part at finite width: the power law of their difference in N."""

from dataclasses import dataclass

import numpy as np

# A difference counts where it is this many Monte Carlo errors, and the layers are this wide.
RESOLVED_MCSE = 3.0
SMALLEST_FITTED_WIDTH = 30


@dataclass(frozen=True)
class PowerLaw:
    """|difference| ≈ prefactor · N^slope, with the standard error of the slope.

    `widths` are those that entered the fit; slope and error are NaN with fewer than three.
    """

    slope: float
    slope_error: float
    prefactor: float
    widths: tuple[int, ...]


def fit_power_law(widths: np.ndarray, difference: np.ndarray, mcse: np.ndarray) -> PowerLaw:
    """Weighted straight line through ln |theory − exact| against ln N.

    Points with N < 30 or |difference| < 3 MCSE are left out. Weights are the Monte Carlo errors of
    ln |difference|; the error of the slope is inflated by √(χ²/degrees) where the points scatter
    more than that, since a power law is only the leading term.
    """
    widths, size = np.asarray(widths, dtype=float), np.abs(np.asarray(difference, dtype=float))
    mcse = np.asarray(mcse, dtype=float)
    used = (widths >= SMALLEST_FITTED_WIDTH) & (size > RESOLVED_MCSE * mcse)
    fitted = tuple(int(width) for width in widths[used])
    if used.sum() < 3:
        return PowerLaw(float("nan"), float("nan"), float("nan"), fitted)
    x, y, error = np.log(widths[used]), np.log(size[used]), mcse[used] / size[used]
    weights = 1.0 / error**2
    centre = np.average(x, weights=weights)
    spread = np.sum(weights * (x - centre) ** 2)
    slope = np.sum(weights * (x - centre) * y) / spread
    intercept = np.average(y, weights=weights) - slope * centre
    chi_square = np.sum(weights * (y - intercept - slope * x) ** 2)
    scatter = max(1.0, np.sqrt(chi_square / (used.sum() - 2)))
    slope_error = scatter / np.sqrt(spread)
    return PowerLaw(float(slope), float(slope_error), float(np.exp(intercept)), fitted)
