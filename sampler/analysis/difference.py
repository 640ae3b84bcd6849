"""Distance between theory and samples in one quantity, as far as the draws resolve it.

Let Δ be the difference of exact and predicted numbers, a vector, and Δ̂ that of means over draws and
predicted numbers, with a Monte Carlo error of covariance Σ. The size |Δ|² is estimated without bias
by

    |Δ̂|² − tr Σ,

which may be negative. |Δ̂|² is a sum of squares of Gaussian numbers with mean, variance and third
cumulant

    |Δ|² + tr Σ,   2 tr Σ² + 4 ΔᵀΣΔ,   8 (tr Σ³ + 3 (ΔᵀΣΔ)²/|Δ|²),

and is close to the shifted and scaled χ² that has them (Hall, 1983; Buckley and Eagleson, 1988),
with tr Σ³ ≈ (tr Σ²)²/tr Σ. The interval has the sizes |Δ| at which |Δ̂|² is in neither tail of
2.5 %, cut off at 0. Σ is estimated from batch means: tr Σ² without the bias of few batches (Bai and
Saranadasa, 1996), so that correlated elements count by their correlation.

Differences are relative to the size of the exact numbers, estimated in the same way. Its own noise
enters to first order: ΔᵀΣΔ/|Δ|² is taken along Δ/|Δ| less the relative difference times the unit
vector of exact numbers.

A difference is found in two ways. The first is an interval that does not reach 0; then its size is
estimated. Among many elements a difference in a few is not found so. The second is the largest pull
max |Δ̂_i|/√Σ_ii of all elements: above `largest_by_chance` it is more than noise (Bonferroni's
limit, of Student's t with the degrees of freedom of the errors), and the size has an upper limit.
Theory and samples agree if neither finds a difference. Without a difference the first errs in 2.5 %
of all quantities (4 % where the errors come from some ten repetitions alone), the second in less
than 0.3 %, whatever the number of elements. Single elements have the same limit, that of all
elements at once. Each quantity, predictor and point of a sweep is judged by itself, without a
correction for their number.

A bound is one number everywhere: `SquaredDistance.bound`, of all elements or of a single one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import chdtr, gammaincinv, ndtr, stdtrit

from sampler.analysis.estimates import Estimate
from sampler.analysis.text import NO_BREAK, Number, percent

TAIL = 0.025
# The largest of all pulls is called more than noise as rarely as a Gaussian number is so many
# deviations from its mean.
RARE = 3.0
# With fewer independent batches their covariance does not determine a tail of 2.5 %.
FEWEST_DEGREES = 7
RELATIVE = "%"
RESOLVED, DIFFERS, AGREES = "resolved", "differs", "agrees"
TOO_FEW, NOT_TRUSTED = "not enough draws", "not trusted"
UNDECIDED = {
    TOO_FEW: "not enough draws",
    NOT_TRUSTED: "diagnostics failed",
}


@dataclass(frozen=True)
class Noise:
    """Monte Carlo noise of Δ̂, by rows whose products sum to Σ.

    trace            tr Σ
    trace_of_square  tr Σ²
    degrees          of freedom that Σ is known by, 3 where there are fewer: their distribution has
                     no variance, and no difference is stated
    """

    rows: Float[np.ndarray, "row element"]
    trace: float
    trace_of_square: float
    degrees: float | int

    @classmethod
    def of(
        cls, deviations: Float[np.ndarray, "row element"], trace: float, degrees: float | int
    ) -> "Noise":
        """Return the noise of deviations, scaled so that tr Σ is `trace`."""
        n = max(degrees, 3)
        rows = deviations * np.sqrt(trace / np.sum(deviations**2))
        gram = rows @ rows.T
        square = n**2 / ((n - 1) * (n + 2)) * (float(np.sum(gram**2)) - trace**2 / n)
        # Between all elements alike and independent, and all of them the same number.
        square = min(max(square, trace**2 / rows.shape[1]), trace**2)
        return cls(rows, trace, square, n)


@dataclass(frozen=True)
class SquaredDistance:
    """|Δ̂|² of the draws, and its distribution at any true size |Δ|.

    square  |Δ̂|²
    along   ΔᵀΣΔ/|Δ|², the variance along the difference
    """

    square: float
    noise: Noise
    along: float

    @classmethod
    def of(
        cls,
        gap: Float[np.ndarray, " element"],
        direction: Float[np.ndarray, " element"],
        noise: Noise,
    ) -> "SquaredDistance":
        """Return the squared distance of samples and theory.

        direction: of the variance `along`, Δ̂ or its part that changes a relative difference.
        """
        square, of_noise = float(gap @ gap), noise.trace_of_square
        # The noise of Δ̂ itself is along the large eigenvalues of Σ: taken away on average, and
        # where little is left, the typical eigenvalue replaces it.
        share = float(direction @ direction) / square if square > 0.0 else 1.0
        signal = max(float(np.sum((noise.rows @ direction) ** 2)) - share * of_noise, 0.0)
        typical, spread = of_noise / noise.trace, np.sqrt(2.0 * of_noise)
        along = (signal + typical * spread) / (max(square - noise.trace, 0.0) + spread)
        return cls(square, noise, along)

    @property
    def excess(self) -> float:
        """|Δ̂|² − tr Σ."""
        return self.square - self.noise.trace

    def below(self, square: float, true: float) -> float:
        """P(|Δ̂|² ≤ square) where |Δ|² is `true`."""
        trace, of_square = self.noise.trace, self.noise.trace_of_square
        first = true + trace
        second = 2.0 * of_square + 4.0 * self.along * true
        third = 8.0 * (of_square**2 / trace + 3.0 * self.along**2 * true)
        shape = 8.0 * second**3 / third**2
        wider = self.noise.degrees / (self.noise.degrees - 2.0)  # as Student's t than a Gaussian
        at = shape + np.sqrt(2.0 * shape) * (square - first) / np.sqrt(second * wider)
        # chi2.cdf, without the checks of its arguments, which take a hundred times as long.
        return float(chdtr(shape, max(at, 0.0)))

    def limit(self, square: float, probability: float) -> float:
        """The |Δ| at which |Δ̂|² is at most `square` with this probability; 0 if there is none."""

        from scipy.optimize import brentq  # only here: it takes long

        def surplus(true: float) -> float:
            return self.below(square, true) - probability

        if surplus(0.0) <= 0.0:
            return 0.0
        high = max(square, self.noise.trace)
        while surplus(high) > 0.0:
            high *= 2.0
        return float(np.sqrt(brentq(surplus, 0.0, high, xtol=1e-14 * high)))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of |Δ|, cut off at 0."""
        return self.limit(self.square, 1.0 - TAIL), self.limit(self.square, TAIL)

    @property
    def bound(self) -> float:
        """Upper end of the interval, not below the resolution of the draws.

        Where noise alone happens to make |Δ̂|² small, the interval ends too soon, even at 0.
        """
        shape = self.noise.trace**2 / self.noise.trace_of_square
        median = self.noise.trace * (2.0 * gammaincinv(shape / 2.0, 0.5)) / shape  # of χ²
        return self.limit(max(self.square, median), TAIL)

    @property
    def error(self) -> float:
        """Standard error of the root of `excess`, where that is positive."""
        size = max(self.excess, 0.0)
        spread = np.sqrt(2.0 * self.noise.trace_of_square + 4.0 * self.along * size)
        return float(spread / (2.0 * np.sqrt(size))) if size else float("nan")


def statement(row: Mapping[str, Any], short: bool = False) -> str:
    """A difference as text in a row of a comparison's table; short: for a cell of a table.

    Empty where nothing is compared.
    """
    if short or row["state"] in ("", *UNDECIDED):
        return size_text(row, short)
    return f"{noun(row['unit'])} {size_text(row)}"


def noun(unit: str) -> str:
    return "relative error" if unit == RELATIVE else "difference"


def size_text(row: Mapping[str, Any], short: bool = False) -> str:
    """Size of a difference, or its 95 % upper limit, or the reason why neither is known.

    Of elements that are further off than noise the largest pull: how many Monte Carlo errors the
    worst one is off, with the size that noise gives it.
    """
    state = row["state"]
    if not state or state in UNDECIDED:
        return UNDECIDED.get(state, "")
    if state == RESOLVED:
        return str(amount(row["difference"], row["unit"], row["difference_error"]))
    pull = ""
    if state == DIFFERS:
        limit = Number(largest_by_chance(row["compared"], row["degrees"]), digits=2)
        pull = f", largest pull {Number(row['largest_mcse'], digits=2)}"
        pull += "" if short else f" (noise: up to {limit})"
    sure = "" if short else f" (95{NO_BREAK}%)"
    return f"< {amount(row['below'], row['unit'])}{sure}{pull}"


def amount(value: float | int, unit: str, error: float | None = None) -> Number:
    """A difference in its unit, with its error."""
    if unit == RELATIVE:
        return percent(value, error, digits=2)
    return Number(value, error, 1.0, f"{NO_BREAK}{unit}", digits=2)


def largest_by_chance(elements: float | int, degrees: float | int) -> float:
    """MCSE exceeded by the largest of these errors as rarely as 3 by one error of known size.

    degrees: of freedom that the MCSE are known by; infinite without any, where nothing is known.
    """
    if not degrees > 0.0:
        return float("inf")
    return float(-stdtrit(degrees, ndtr(-RARE) / max(1, elements)))


def relative_elements(
    theory: Float[np.ndarray, "row row"], sampled: Estimate
) -> tuple[Float[np.ndarray, "row row"], Float[np.ndarray, "row row"]]:
    """(exact − theory)/√(U_ii U_jj) of every element of an order parameter, and its error.

    Of an element of the diagonal it is relative to that element; off it, in the unit that no
    element exceeds in size, since an element near 0 has none of its own. Errors are to first
    order, those of the unit included.
    """
    value, mcse = np.asarray(sampled.value), np.asarray(sampled.mcse)
    size = np.diagonal(value)
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = np.sqrt(np.outer(size, size))
        relative = (value - theory) / unit
        rows, _ = sampled.rows(np.ones(value.shape, dtype=bool))
        rows = rows.reshape(-1, *value.shape)
        # The correlation of batch means, with the errors of single elements.
        scale = np.where(mcse > 0.0, mcse / np.sqrt(np.sum(rows**2, axis=0)), mcse)
        square = np.zeros(value.shape)
        for row in rows:
            moved = scale * row
            of_size = np.diagonal(moved) / size
            square += (moved / unit - 0.5 * relative * (of_size[:, None] + of_size)) ** 2
    return relative, np.sqrt(square)


def element_bound(gap: float, mcse: float, degrees: float | int) -> float:
    """The 95 % upper limit of the difference of a single element, in its own unit."""
    noise = Noise.of(np.array([[mcse]]), mcse**2, degrees)
    return SquaredDistance.of(np.array([gap]), np.array([gap]), noise).bound


def difference_of(
    theory: Float[np.ndarray, "*element"] | np.floating | float,
    sampled: Estimate,
    unit: str = RELATIVE,
    symmetric: bool = False,
) -> dict[str, Any]:
    """All elements of a quantity taken together, as columns of a comparison; none without any.

    The norm of a matrix is Frobenius'. The difference is relative to the size of the quantity, or
    in the unit of the numbers where that is named. symmetric: elements are counted once.

    state        one of RESOLVED, DIFFERS, AGREES, TOO_FEW or NOT_TRUSTED
    difference   root of `square` with its standard `difference_error`; 0 where that is negative
    square       |Δ̂|² − tr Σ, negative where there is less difference than noise
    low, high    95 % interval of |Δ|; `below`: its 95 % upper limit
    compared     how many elements are defined; of a symmetric matrix its upper triangle
    largest_mcse
                 of their absolute values, in Monte Carlo standard errors
    degrees      of freedom that these errors are known by
    """
    theory, value, mcse = map(np.asarray, (theory, sampled.value, sampled.mcse))
    shown = np.asarray(np.isfinite(theory) & np.isfinite(value) & np.isfinite(mcse) & (mcse > 0.0))
    if not shown.any():
        return {}
    gap = (value - theory)[shown]
    deviations, degrees = sampled.rows(shown)
    noise = Noise.of(deviations, float(np.sum(mcse[shown] ** 2)), degrees)
    distance, size = SquaredDistance.of(gap, gap, noise), 1.0
    if unit == RELATIVE:
        mean = value[shown]
        own = SquaredDistance.of(mean, mean, noise)
        size = np.sqrt(own.excess) if own.interval[0] > 0.0 else float("nan")
        if size > 0.0:
            ratio = max(distance.excess, 0.0) / size**2
            distance = SquaredDistance.of(gap, gap - ratio * mean, noise)
    low, high = distance.interval
    below = distance.bound / size
    each = shown & np.triu(np.ones(shown.shape, dtype=bool)) if symmetric else shown
    pulls = np.abs(value - theory)[each] / mcse[each]
    # Unequal weights of repetitions widen the interval. Whether there are enough is asked of their
    # number: weights look most equal where the largest ones are missing.
    means = sampled.repetitions - 1 if sampled.repetitions else degrees
    if means < FEWEST_DEGREES or not np.isfinite(size):
        state = TOO_FEW
    elif low > 0.0:
        state = RESOLVED
    elif pulls.max() > largest_by_chance(pulls.size, degrees):
        state = DIFFERS
    else:
        state = TOO_FEW if unit == RELATIVE and below >= 1.0 else AGREES
    numbers = {
        "difference": np.sqrt(max(distance.excess, 0.0)) / size,
        "difference_error": distance.error / size,
        "square": distance.excess / size**2,
        "low": low / size,
        "high": high / size,
        "below": below,
        "compared": pulls.size,
        "largest_mcse": pulls.max(),
        "degrees": degrees,
    }
    return {name: float(value) for name, value in numbers.items()} | {"state": state}
