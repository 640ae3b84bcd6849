"""The log evidence: at the saddle point, and to next order in 1/N."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from theory.architecture import Architecture
from theory.energy_derivatives import EnergyAt
from theory.laplace import Fluctuations
from theory.learning_problem import LearningProblem
from theory.order_parameters import log_invariant_volume
from theory.saddle_point import SaddlePoint, hessian_of_action

PAIRS_AT_A_TIME = 1024


def log_evidence_at_leading_order(problem: LearningProblem, action: float) -> float:
    """Log evidence ln p(y) at leading order, −½ (A* − A_0) − (P O/2) ln 2π.

    A* is the minimum of the action, max(N_1 … N_a) times `action` of a saddle point, and A_0 that
    without data. Fluctuations of the order parameters are of the next order and left out. It exists
    at every width.
    """
    excess = max(problem.architecture.widths) * action - action_without_data(problem.architecture)
    constant = problem.examples * problem.architecture.outputs * math.log(2.0 * math.pi)
    return -0.5 * (excess + constant)


def log_evidence_at_saddle(problem: LearningProblem, saddle: SaddlePoint) -> float:
    """Log evidence ln p(y) with an error of order 1/N (1/N² for fixed data), exact without data.

    −½ (A* − A_0) − ½ (ln det H − 2 ln J − h_0) − (P O/2) ln 2π, with A* the action at its minimum
    (not divided by a width), H its Hessian in log-Cholesky coordinates and, summed over layers
    l = 1 … L + 1 with N_{L+1} = N_a,
        A_0  = Σ N_l p_l (1 − ln σ_l²)                            minimum of A without data
        ln J = Σ [ p_l ln 2 − Σ_i i ln (F_l)_ii ],  i from 0      invariant measure
        h_0  = Σ [ ½ p_l (p_l + 1) ln N_l + ½ p_l (p_l − 1) ln 2 ]

    Raises ValueError when the saddle point is not converged, or a layer is narrower than its order
    parameter (N_l < p_l): the density expanded here does not exist there.
    """
    architecture = problem.architecture
    if not saddle.converged:
        raise ValueError(f"no log evidence without a minimum of the action: {saddle.explain()}")
    for layer, (width, size, _) in enumerate(_layers(architecture), start=1):
        if width < size:
            raise ValueError(
                f"width {layer} = {width}: the log evidence at the saddle point needs at least "
                f"{size}, the size of that layer's order parameter; use importance draws instead"
            )
    order_parameters = saddle.order_parameters
    hessian = max(architecture.widths) * hessian_of_action(problem, order_parameters)
    factor = np.linalg.cholesky(0.5 * (hessian + hessian.T))
    log_determinant = 2.0 * float(np.sum(np.log(np.diagonal(factor))))
    curvature = log_determinant - 2.0 * log_invariant_volume(order_parameters)
    curvature -= sum(
        0.5 * size * (size + 1) * math.log(width) + 0.5 * size * (size - 1) * math.log(2.0)
        for width, size, _ in _layers(architecture)
    )
    return log_evidence_at_leading_order(problem, saddle.action) - 0.5 * curvature


def log_evidence_at_next_order(around: Fluctuations) -> float:
    """Log evidence ln p(y) with an error of order 1/N².

    −Φ(x̂) + (d/2) ln 2π − ½ ln det ∇²Φ + c,
    c = −⅛ Φ_ijkl S_ij S_kl + ⅛ t·S t + (1/12) Φ_ijk Φ_lmn S_il S_jm S_kn

    in the letters of `theory.laplace`. Holds p_1⁶ and p_1² d² numbers a few times, so that it
    is for few coordinates.
    """
    size = around.point.size
    log_volume = float(np.linalg.slogdet(around.directions)[1])  # −½ ln det ∇²Φ
    third, fourth = third_and_fourth(around)
    drift = around.drift
    correction = -fourth / 8.0 + drift @ drift / 8.0 + np.sum(third**2) / 12.0
    gaussian = 0.5 * size * math.log(2.0 * math.pi) + log_volume
    residual = around.posterior.problem.residual_log_likelihood
    return float(residual - around.value + gaussian + correction)


def third_and_fourth(
    around: Fluctuations,
) -> tuple[Float[np.ndarray, "direction direction direction"], float]:
    """Third derivatives Φ_abc along directions of unit variance, and Σ_ac Φ_aacc.

    By the chain rule from ∂ⁿE and the derivatives of U_1 along pairs of directions.
    """
    directions, slope = around.directions, around.energy.slope
    count = len(directions)
    along = along_pairs(around)
    first = around.jacobian.reshape(count, -1)
    bound, mean = around.bound_curvature, around.curved[0].reshape(-1)
    by_pair = third_of_energy(around.energy)
    half = np.tensordot(by_pair, first, (2, 1))  # [row_row, row_row, direction]
    half = np.tensordot(half, first, (1, 1))  # [row_row, direction, direction]
    third = np.tensordot(first, half, 1)
    bent = along.second @ (bound @ first.T)  # ∂²E[∂_ab U, ∂_c U]
    third += bent + bent.transpose(0, 2, 1) + bent.transpose(2, 1, 0) + along.slope_third
    fourth = around.averages.fourth + 2.0 * np.vdot(around.averages.third, mean)
    fourth += 4.0 * np.einsum("xac,acx->", half, along.second)
    fourth += 4.0 * np.vdot(along.drift @ bound, first) + mean @ bound @ mean
    fourth += 2.0 * np.vdot(along.second @ bound, along.second)
    fourth += np.vdot(slope, along.fourth)
    prior = around.posterior.coordinates.prior_derivatives(around.point)
    third = 0.5 * third
    third += np.einsum("i,ai,bi,ci->abc", prior[3], *(directions,) * 3, optimize=True)
    fourth = 0.5 * fourth + prior[4] @ np.sum(directions**2, axis=0) ** 2
    return third, float(fourth)


def third_of_energy(energy: EnergyAt) -> Float[np.ndarray, "row_row row_row row_row"]:
    """∂³E/∂U_ab ∂U_cd ∂U_ef, to be applied to symmetric matrices.

    2 tr(S_bc S_de S_fa) − 2 (s_a·S_bc S_de s_f and the same with the second or the third pair
    at the ends).
    """
    products, rows = energy.products, len(energy.projected)
    ends = np.einsum("ai,bcij->abcj", energy.projected, products, optimize=True)
    square = rows**2
    quadratic = np.einsum("abcj,fedj->abcdef", ends, ends, optimize=True)
    quadratic = quadratic.reshape(square, square, square)
    total = quadratic + quadratic.transpose(1, 0, 2) + quadratic.transpose(0, 2, 1)
    total = np.ascontiguousarray(total)  # added to in place below
    # tr(S_bc S_de S_fa) = tr(S_af S_ed S_cb): a from b on is enough.
    traces = total.reshape((rows,) * 6)
    for b in range(rows):
        chain = np.einsum("cij,dejk->cdeik", products[b], products, optimize=True)
        found = np.einsum("cdeik,faki->acdef", chain, products[:, b:], optimize=True)
        traces[b:, b] -= found
        traces[b, b + 1 :] -= found[1:].transpose(0, 4, 3, 2, 1)
    return -2.0 * total


@dataclass(frozen=True)
class AlongPairs:
    """Derivatives of U_1 along two directions each, a of unit variance.

    second       ∂_a∂_b U_1
    drift        Σ_a ∂_a²∂_c U_1
    fourth       Σ_ac ∂_a²∂_c² U_1
    slope_third  Σ M ∂_a∂_b∂_c U_1
    """

    second: Float[np.ndarray, "direction direction row_row"]
    drift: Float[np.ndarray, "direction row_row"]
    fourth: Float[np.ndarray, "row row"]
    slope_third: Float[np.ndarray, "direction direction direction"]


def along_pairs(around: Fluctuations) -> AlongPairs:
    """Mixed derivatives from those along v_a, v_a + v_b and v_a − v_b: exact polarisation."""
    directions, slope = around.directions, around.energy.slope
    coordinates, point = around.posterior.coordinates, around.point
    count, square = len(directions), slope.size

    def derivatives(lines):
        series = coordinates.series(point, lines, 4)
        factor, first, second = series.factors[0][:3]
        weights = [4.0 * slope @ second, 4.0 * slope @ first, 4.0 * slope @ factor]
        pulled = series.pull_back(weights) @ directions.T
        return [series.overlap(0, k).reshape(len(lines), -1) for k in (2, 3, 4)], pulled

    (own2, own3, own4), own_pulled = derivatives(directions)
    second = np.zeros((count, count, square))
    slope_third = np.zeros((count, count, count))
    drift, fourth = own3.copy(), own4.sum(axis=0)
    every = np.arange(count)
    second[every, every], slope_third[every, every] = own2, own_pulled
    left, right = np.triu_indices(count, 1)
    for start in range(0, len(left), PAIRS_AT_A_TIME):
        a, c = (index[start : start + PAIRS_AT_A_TIME] for index in (left, right))
        (plus2, plus3, plus4), pulled = derivatives(directions[a] + directions[c])
        (minus2, minus3, minus4), _ = derivatives(directions[a] - directions[c])
        second[a, c] = second[c, a] = 0.25 * (plus2 - minus2)
        np.add.at(drift, c, (plus3 - minus3 - 2.0 * own3[c]) / 6.0)
        np.add.at(drift, a, (plus3 + minus3 - 2.0 * own3[a]) / 6.0)
        fourth += np.sum(plus4 + minus4 - 2.0 * own4[a] - 2.0 * own4[c], axis=0) / 6.0
        slope_third[a, c] = slope_third[c, a] = 0.5 * (pulled - own_pulled[a] - own_pulled[c])
    return AlongPairs(second, drift, fourth.reshape(slope.shape), slope_third)


def action_without_data(architecture: Architecture) -> float:
    """A_0 = Σ N_l p_l (1 − ln σ_l²), the minimum of the entropy terms.

    It lies at U_l = σ_a² σ_L² ··· σ_l² · 1; only σ_l² of each layer itself enters.
    """
    return sum(
        width * size * (1.0 - math.log(variance)) for width, size, variance in _layers(architecture)
    )


def _layers(architecture: Architecture):
    """(N_l, p_l, σ_l²), l = 1 … L + 1."""
    return zip(
        architecture.widths,
        architecture.order_parameter_sizes,
        architecture.order_parameter_variances,
        strict=True,
    )
