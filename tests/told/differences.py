"""What is to be told of a difference between a prediction and samples, from its definition."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

from tests.told.expected import Expected


@dataclass(frozen=True)
class Distance:
    """|x̄ − t|² of Gaussian numbers x̄, and its law at any true |μ − t|, by three cumulants.

    trace, of_square  tr Σ and tr Σ²
    along             variance of x̄ along the difference
    """

    square: float
    trace: float
    of_square: float
    along: float
    degrees: float

    def chance_below(self, square: float, size: float) -> float:
        """P(|x̄ − t|² ≤ square) where |μ − t| is `size`."""
        mean = size**2 + self.trace
        variance = 2 * self.of_square + 4 * self.along * size**2
        third = 8 * (self.of_square**2 / self.trace + 3 * self.along**2 * size**2)
        shape = 8 * variance**3 / third**2
        # As Student's t is wider than a Gaussian.
        deviation = np.sqrt(variance * self.degrees / (self.degrees - 2))
        return chi2.cdf(shape + np.sqrt(2 * shape) * (square - mean) / deviation, shape)

    def end(self, square: float, chance: float) -> float:
        """The size at which |x̄ − t|² is at most `square` with this probability."""
        if self.chance_below(square, 0.0) <= chance:
            return 0.0
        most = 10 * np.sqrt(square + self.trace)
        return brentq(lambda size: self.chance_below(square, size) - chance, 0.0, most, rtol=1e-14)

    @property
    def ends(self) -> tuple[float, float, float]:
        """Both ends of the 95 % interval, and the bound that such draws can give as a rule."""
        shape = self.trace**2 / self.of_square
        median = self.trace * chi2.ppf(0.5, shape) / shape
        low, high = self.end(self.square, 0.975), self.end(self.square, 0.025)
        return low, high, self.end(max(self.square, median), 0.025)


def difference(
    theory, sampled: Expected, means: int, unit: str = "%", symmetric: bool = False
) -> dict:
    """The cells of a prediction against samples, all elements together.

    means: independent ones, less one, which nothing is said of less than seven of.
    """
    theory, value, error = map(np.asarray, (theory, sampled.value, sampled.error))
    shown = np.isfinite(theory) & np.isfinite(value) & (error > 0)
    gap, trace = (value - theory)[shown], np.sum(error[shown] ** 2)
    rows = error[shown][None] if sampled.rows is None else sampled.rows[:, shown]
    rows = rows * np.sqrt(trace / np.sum(rows**2))
    degrees = max(sampled.degrees, 3)
    # tr Σ² without the bias of few batches, between independent elements and equal ones.
    square = np.sum((rows @ rows.T) ** 2) - trace**2 / degrees
    square *= degrees**2 / ((degrees - 1) * (degrees + 2))
    square = np.clip(square, trace**2 / shown.sum(), trace**2)

    def distance(gap, direction) -> Distance:
        size = gap @ gap
        noise = square * (direction @ direction) / size if size else square
        signal = max(np.sum((rows @ direction) ** 2) - noise, 0.0)
        spread = np.sqrt(2 * square)
        along = (signal + square / trace * spread) / (max(size - trace, 0.0) + spread)
        return Distance(size, trace, square, along, degrees)

    whole, size = distance(gap, gap), 1.0
    if unit == "%":
        own = distance(value[shown], value[shown])
        size = np.sqrt(own.square - trace) if own.ends[0] > 0 else np.nan
        if size > 0:
            share = max(whole.square - trace, 0.0) / size**2
            whole = distance(gap, gap - share * value[shown])
    excess = whole.square - trace
    low, high, below = whole.ends
    spread = np.sqrt(2 * square + 4 * whole.along * max(excess, 0.0))
    each = shown & np.triu(np.ones(shown.shape, bool)) if symmetric else shown
    pulls = np.abs(value - theory)[each] / error[each]
    enough = means >= 7 and np.isfinite(size)
    state = "agrees" if unit != "%" or below < size else "not enough draws"
    if pulls.max() > largest_by_chance(len(pulls), sampled.degrees):
        state = "differs"
    state = "resolved" if low > 0 else state
    state = state if enough else "not enough draws"
    return {
        "difference": np.sqrt(max(excess, 0.0)) / size,
        "difference_error": spread / (2 * np.sqrt(excess)) / size if excess > 0 else np.nan,
        "square": excess / size**2,
        "low": low / size,
        "high": high / size,
        "below": below / size,
        "compared": each.sum(),
        "largest_mcse": pulls.max(),
        "degrees": sampled.degrees,
        "state": state,
    }


def largest_by_chance(count: int, degrees: float) -> float:
    """What the largest of so many errors exceeds as rarely as a Gaussian one exceeds 3 deviations.

    The errors are known by so many degrees of freedom (Bonferroni's limit of Student's t).
    """
    return t.isf(norm.sf(3.0) / count, degrees)


def relative_elements(theory: np.ndarray, sampled: Expected) -> tuple[np.ndarray, np.ndarray]:
    """(s − t)_ij/√(s_ii s_jj) of an order parameter, and its error by derivatives along rows."""

    def relative(value):
        size = np.diagonal(value, axis1=-2, axis2=-1)
        return (value - theory) / np.sqrt(size[..., :, None] * size[..., None, :])

    # Correlations are those of batch means, sizes those of the errors of single elements.
    rows = sampled.rows * sampled.error / np.sqrt(np.sum(sampled.rows**2, axis=0))
    step = 1e-3
    moved = (relative(sampled.value + step * rows) - relative(sampled.value - step * rows)) / 2
    return relative(sampled.value), np.sqrt(np.sum(moved**2, axis=0)) / step
