"""Softmax attention as support-vector regression.

Errors inside a tube of half-width ε round the regressor cost nothing, errors beyond it cost C per
unit:  min_w ½|w|² + C Σ_i max(|y_i − f(k_i)| − ε, 0),   f = w·features.  The solution is
f(k_i) = Σ_j G_ij β_j with the β that minimises the dual, and the optimality conditions are, with
r = y − Gβ:

    β_i = 0            |r_i| ≤ ε             inside the tube or on its edge
    0 < |β_i| < C      r_i = ε sign β_i      on the edge
    |β_i| = C          r_i sign β_i ≥ ε      outside or on the edge

ε-insensitive regression (`tube_regression`) of one label per key and channel, with the kernel
G_ij = s(k_i, k_j) / (h(k_i) h(k_j)) of `attention_kernel`, has the solution

    f(x) = Σ_j β_j s(x, k_j) / (h(x) h(k_j)) = Σ_j A(x, k_j) v_j,    v_j = β_j / h(k_j),

the attention of query x over the keys with values v: for every x, with no bias term, whatever the
labels. Channels are independent regressions. A key whose labels lie strictly inside the tube in
every channel has value 0 and can be removed from the sum over values, though not from h; the keys
with any β ≠ 0 are the support vectors.

Conversely, any values V are the solution of a regression: take β = V h and the labels
y = Gβ + ε sign β with any C > max|β|. For softmax and distinct keys it is the only solution; where
G is singular other β give the same f.

Source: arXiv 2406.13781; there with a bias b, which adds b to every value, since rows of A sum
to 1.

A query that sees the keys S attends exactly as the regressor over S alone does: with
h_S(x) = Σ_{j∈S} s(x, k_j), the values are v_j = β_j^S / h_S(k_j). One set of values, shared by all
queries, is therefore as many regressions as there are sets of visible keys:

    β_j^S = v_j h_S(k_j),    y^S = G^S β^S + ε sign β^S,    G^S_ij = s(k_i, k_j)/(h_S(k_i) h_S(k_j))

The signs are those of v in every one of them, so a key is a support vector of all the regressions
that contain it or of none; sizes of β and labels differ from set to set. It follows that no single
list of labels yields a masked attention in general: the same labels regressed on two sets give a
key two values.

One regression for all queries needs the kernel m_ij s(k_i, k_j)/(h_i h_j), h_i over what query i
sees, to be symmetric and positive semi-definite. For all keys alike that is so if and only if the
mask splits the tokens into groups that see all of their own and nothing else: equal keys make the
kernel the mask up to positive factors, and a symmetric 0-1 matrix with i ~ j ~ k but not i ~ k has
a 3 × 3 minor of determinant −1; of groups, on the other hand, the kernel is made block by block.
Padding is such a mask, causal and windowed masks are not. (This project's own derivation.)
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from theory.studies.attention_kernel import (
    Similarity,
    attention_kernel,
    attention_matrix,
    normalisers,
    require_visible_keys,
)

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
    """How far β is from the optimality conditions: the largest wrong label error, in units of y.

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
class SupportVectorAttention:
    """Attention whose values solve a regression.

    `residual` is the largest violation of the optimality conditions, `rounding` what rounding can
    add to y − f(k) whenever it is computed, both in units of the labels.
    """

    keys: Float[np.ndarray, "key channel"]
    labels: Float[np.ndarray, "key value_channel"]
    coefficients: Float[np.ndarray, "key value_channel"]
    tube: float
    similarity: Similarity
    residual: float
    rounding: float

    @property
    def values(self) -> Float[np.ndarray, "key value_channel"]:
        """Values v_j = β_j / h(k_j)."""
        return self.coefficients / normalisers(self.keys, self.similarity)[:, None]

    @property
    def support_vectors(self) -> tuple[int, ...]:
        """The keys with β_j ≠ 0 in any channel."""
        return tuple(int(key) for key in np.flatnonzero(self.coefficients.any(axis=1)))

    def regressor(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Regressor f(x) = Σ_j β_j s(x, k_j) / (h(x) h(k_j))."""
        return attention_kernel(queries, self.keys, self.similarity) @ self.coefficients

    def attend(
        self, queries: Float[np.ndarray, "query channel"]
    ) -> Float[np.ndarray, "query value_channel"]:
        """Σ_j A(x, k_j) v_j, which is the regressor."""
        return attention_matrix(queries, self.keys, self.similarity) @ self.values


def support_vector_attention(
    keys: Float[np.ndarray, "key channel"],
    labels: Float[np.ndarray, "key value_channel"],
    tube: float,
    bound: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> SupportVectorAttention:
    """The attention that regresses labels at the keys: min ½βᵀGβ − yᵀβ + ε|β|₁ over |β| ≤ C.

    Raises ValueError for keys too large for float64, a negative tube or a bound that is not
    positive, and RuntimeError where the optimality conditions are not met to rounding.
    """
    kernel = attention_kernel(keys, keys, similarity)
    channels = [solve_tube_regression(kernel, column, tube, bound) for column in labels.T]
    return SupportVectorAttention(
        keys=keys,
        labels=labels,
        coefficients=np.stack([channel.coefficients for channel in channels], axis=1),
        tube=tube,
        similarity=similarity,
        residual=max(channel.residual for channel in channels),
        rounding=max(channel.rounding for channel in channels),
    )


def regression_of_attention(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    tube: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> tuple[Float[np.ndarray, "key value_channel"], Float[np.ndarray, "key value_channel"]]:
    """Coefficients β = V h and labels y = Gβ + ε sign β of a regression solved by these values.

    They solve it for every C ≥ max|β|.
    """
    coefficients = values * normalisers(keys, similarity)[:, None]
    fit = attention_kernel(keys, keys, similarity) @ coefficients
    return coefficients, fit + tube * np.sign(coefficients)


@dataclass(frozen=True)
class VisibleRegression:
    """The regression behind the queries that see one set of keys, named by their indices."""

    visible: tuple[int, ...]
    queries: tuple[int, ...]
    coefficients: Float[np.ndarray, "_visible value_channel"]
    labels: Float[np.ndarray, "_visible value_channel"]


def masked_regressions(
    keys: Float[np.ndarray, "key channel"],
    values: Float[np.ndarray, "key value_channel"],
    mask: Bool[np.ndarray, "query key"],
    tube: float,
    similarity: Similarity = Similarity.SOFTMAX,
) -> tuple[VisibleRegression, ...]:
    """One regression per set of visible keys, in the order in which queries first see them.

    Raises ValueError where a query sees no key.
    """
    require_visible_keys(mask)
    queries: dict[tuple[int, ...], list[int]] = {}
    for query, row in enumerate(mask):
        visible = tuple(int(key) for key in np.flatnonzero(row))
        queries.setdefault(visible, []).append(query)
    return tuple(
        VisibleRegression(
            visible,
            tuple(seeing),
            *regression_of_attention(keys[list(visible)], values[list(visible)], tube, similarity),
        )
        for visible, seeing in queries.items()
    )


def is_one_regression(mask: Bool[np.ndarray, "token token"]) -> bool:
    """Whether the mask splits the tokens into groups: one regression then holds for all queries.

    Each token must see itself, and tokens that see one another must see the same keys.
    """
    seen = mask[:, None, :] == mask[None, :, :]
    return bool(np.all(np.diag(mask)) and np.all(mask == mask.T) and np.all(seen.all(-1) | ~mask))
