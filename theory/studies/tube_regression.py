"""ε-insensitive regression: its solver, and its optimality as a complementarity problem.

Errors inside a tube of half-width ε round the regressor cost nothing, errors beyond it cost C per
unit:  min_w ½|w|² + C Σ_i max(|y_i − f(k_i)| − ε, 0),   f = w·features.  The solution is
f(k_i) = Σ_j G_ij β_j with the β that minimises the dual, and the optimality conditions are, with
r = y − Gβ:

    β_i = 0            |r_i| ≤ ε             inside the tube or on its edge
    0 < |β_i| < C      r_i = ε sign β_i      on the edge
    |β_i| = C          r_i sign β_i ≥ ε      outside or on the edge

**Complementarity.** With multipliers α_i of the upper edge of the tube and α̃_i of
the lower one, errors ξ_i and ξ̃_i beyond them, and f = G(α − α̃):

    0 ≤ α_i  ⊥  ε + ξ_i − (y_i − f_i) ≥ 0        0 ≤ ξ_i  ⊥  C − α_i ≥ 0
    0 ≤ α̃_i  ⊥  ε + ξ̃_i + (y_i − f_i) ≥ 0        0 ≤ ξ̃_i  ⊥  C − α̃_i ≥ 0

where a ⊥ b says a·b = 0. Together: find z = (α, α̃, ξ, ξ̃) ≥ 0 with w = M z + q ≥ 0 and z·w = 0,

        ⎛  G  −G   1   0 ⎞        ⎛ ε − y ⎞
    M = ⎜ −G   G   0   1 ⎟    q = ⎜ ε + y ⎟
        ⎜ −1   0   0   0 ⎟        ⎜   C   ⎟
        ⎝  0  −1   0   0 ⎠        ⎝   C   ⎠

a linear complementarity problem. M + Mᵀ is positive semi-definite: its solutions are a convex set,
with a single f, and for ε > 0 no key has both multipliers.

In terms of attention f is A V, what attention gives to the keys themselves, and the multipliers are
α − α̃ = h V. The conditions then read: a token whose output misses its label by less than ε has
value 0; one with a value 0 < |v_i| < C/h(k_i) misses it by exactly ε, on the side of the sign of
v_i; one that misses it by more has the largest value there is, |v_i| = C/h(k_i). A key with many
others near it has a large h, and so may have a small value only.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# Added to the unit diagonal of the rescaled kernel, so that a singular one can be solved with; the
# shift is undone by proximal steps and a last Newton step without it.
SHIFT = 1e-7
PROXIMAL_STEPS = 100
NEWTON_STEPS = 50


@dataclass(frozen=True)
class TubeRegression:
    """Coefficients β, how far they violate the optimality conditions, and how far rounding may.

    `residual` is the largest violation, `rounding` the largest rounding error of y − Gβ, both in
    units of y.
    """

    coefficients: Float[np.ndarray, " key"]
    residual: float
    rounding: float


def solve_tube_regression(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    bound: float,
) -> TubeRegression:
    """The β that minimises ½βᵀGβ − yᵀβ + ε|β|₁ over |β_i| ≤ C.

    Where G is singular β need not be unique; Gβ is. Active sets on G + δ1 (Nocedal and Wright,
    Numerical Optimization, section 16.5) inside proximal steps, which find the solution of the
    singular problem too, then Newton's method on the conditions themselves, which leaves rounding
    errors only. Raises ValueError for a kernel without positive diagonal, a negative tube or a
    bound that is not positive, and RuntimeError where the conditions are not met to rounding.
    """
    scales = np.diag(kernel)
    if not (np.all(np.isfinite(kernel)) and np.all(scales > 0)):
        raise ValueError(
            f"kernel: diagonal from {scales.min():.3g} to {scales.max():.3g}; must be positive and "
            "finite; scale the keys down"
        )
    if not (np.isfinite(tube) and tube >= 0):
        raise ValueError(f"tube = {tube!r}: must be 0 or more and finite")
    if not bound > 0:
        raise ValueError(f"bound = {bound!r}: must be positive; any error is free otherwise")
    # β = u/√G_ii: the kernel of u has a unit diagonal, however different the normalisers are.
    scales = 1.0 / np.sqrt(scales)
    rescaled = scales[:, None] * kernel * scales
    shifted = rescaled + SHIFT * np.eye(len(labels))
    target, width, limits = labels * scales, tube * scales, bound / scales
    point = np.zeros(len(labels))
    for _ in range(PROXIMAL_STEPS):
        point = _active_sets(shifted, target + SHIFT * point, width, limits, point)
        refined = _newton(rescaled, target, width, limits, point)
        at_bound = np.abs(refined) >= limits
        coefficients = scales * refined
        coefficients[at_bound] = bound * np.sign(refined[at_bound])
        coefficients = np.clip(coefficients, -bound, bound)  # beyond it by rounding only
        residual = violation(kernel, labels, tube, bound, coefficients)
        allowed = rounding_of_fit(kernel, labels, tube, coefficients)
        if residual <= allowed:
            return TubeRegression(coefficients, residual, allowed)
    raise RuntimeError(
        f"residual = {residual:.3g} after {PROXIMAL_STEPS} proximal steps: must be at most "
        f"{allowed:.3g}; lower the bound, widen the tube, or move keys apart that are nearly equal"
    )


def violation(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    bound: float,
    coefficients: Float[np.ndarray, " key"],
) -> float:
    """Return the largest violation of the optimality conditions by β, in units of y.

    Infinite where some |β_i| exceeds C.
    """
    if np.any(np.abs(coefficients) > bound):
        return float("inf")
    errors = labels - kernel @ coefficients
    outwards = errors * np.sign(coefficients) - tube
    wrong = np.where(np.abs(coefficients) == bound, np.maximum(-outwards, 0.0), np.abs(outwards))
    wrong = np.where(coefficients == 0.0, np.maximum(np.abs(errors) - tube, 0.0), wrong)
    return float(wrong.max())


def rounding_of_fit(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    coefficients: Float[np.ndarray, " key"],
) -> float:
    """The largest rounding error of y − Gβ − ε, a sum of one term per key."""
    terms = np.abs(kernel) @ np.abs(coefficients) + np.abs(labels) + tube
    return float((len(labels) + 2) * np.finfo(float).eps * terms.max())


def _active_sets(kernel, target, width, limits, start) -> np.ndarray:
    """Minimiser for a positive definite kernel: every step lowers the dual and keeps the limits."""
    point, sign = start.copy(), np.sign(start)
    free = (point != 0) & (np.abs(point) < limits)
    # Each set of free coordinates is left for good; far fewer are met than the 3ⁿ there are.
    for _ in range(100 * len(target)):
        if free.any():
            step = np.zeros_like(point)
            wanted = target - kernel @ point - width * sign
            step[free] = np.linalg.solve(kernel[np.ix_(free, free)], wanted[free])
            new = point + step
            highest, lowest = np.where(sign > 0, limits, 0.0), np.where(sign > 0, 0.0, -limits)
            stop = np.where(new > highest, highest, lowest)
            crossed = free & ((new > highest) | (new < lowest))
            if crossed.any():
                shares = np.full(len(point), np.inf)
                shares[crossed] = (stop - point)[crossed] / step[crossed]
                first = int(np.argmin(shares))
                point = point + shares[first] * step
                point[first], free[first] = stop[first], False
                continue
            point = new
        errors = target - kernel @ point
        outwards = errors * np.sign(point) - width
        wrong = np.where(point == 0, np.abs(errors) - width, -outwards)
        wrong[free] = 0.0
        worst = int(np.argmax(wrong))
        if wrong[worst] <= rounding_of_fit(kernel, target, float(width.max()), point):
            break
        free[worst] = True
        if point[worst] == 0:
            sign[worst] = np.sign(errors[worst])
    return point


def _newton(kernel, target, width, limits, start) -> np.ndarray:
    """Semi-smooth Newton steps: each solves the conditions for the sets that the last one shows."""
    point, previous = start, None
    for _ in range(NEWTON_STEPS):
        moved = point + (target - kernel @ point)
        sign, size = np.sign(moved), np.abs(moved) - width
        place = np.where(size <= 0, 0, np.where(size >= limits, 2, 1)) * sign
        if previous is not None and np.array_equal(place, previous):
            break
        previous, free = place, np.abs(place) == 1
        point = np.where(np.abs(place) == 2, np.copysign(limits, sign), np.where(free, point, 0.0))
        wanted = (target - kernel @ point - width * sign)[free]
        # Least squares: equal keys make the matrix singular and leave the sum of their β only.
        point[free] += np.linalg.lstsq(kernel[np.ix_(free, free)], wanted, rcond=None)[0]
    return point


@dataclass(frozen=True)
class ComplementarityProblem:
    """Linear complementarity problem: find z ≥ 0 with w = M z + q ≥ 0 and z·w = 0."""

    matrix: Float[np.ndarray, "unknown unknown"]
    offset: Float[np.ndarray, " unknown"]

    def slack(self, unknowns: Float[np.ndarray, " unknown"]) -> Float[np.ndarray, " unknown"]:
        """The second factor, w = M z + q."""
        return self.matrix @ unknowns + self.offset


def complementarity_problem(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    bound: float,
) -> ComplementarityProblem:
    """M and q of the regression with kernel G, labels y, tube ε and bound C."""
    one, nothing = np.eye(len(labels)), np.zeros_like(kernel)
    matrix = np.block(
        [
            [kernel, -kernel, one, nothing],
            [-kernel, kernel, nothing, one],
            [-one, nothing, nothing, nothing],
            [nothing, -one, nothing, nothing],
        ]
    )
    offset = np.concatenate([tube - labels, tube + labels, np.full(2 * len(labels), bound)])
    return ComplementarityProblem(matrix, offset)


def unknowns_of(
    kernel: Float[np.ndarray, "key key"],
    labels: Float[np.ndarray, " key"],
    tube: float,
    coefficients: Float[np.ndarray, " key"],
) -> Float[np.ndarray, " unknown"]:
    """The z = (α, α̃, ξ, ξ̃) of β = α − α̃: positive and negative part, errors beyond the tube."""
    errors = labels - kernel @ coefficients
    parts = (coefficients, -coefficients, errors - tube, -errors - tube)
    return np.maximum(np.concatenate(parts), 0.0)
