"""The log evidence: at the saddle point, and to next order in 1/N."""

import math

import numpy as np
from jaxtyping import Float

from theory.action_functional import RelativeCoordinates
from theory.architecture import Architecture
from theory.energy_derivatives import EnergyAt
from theory.laplace import Fluctuations
from theory.learning_problem import LearningProblem
from theory.overlaps import log_determinant
from theory.saddle_point import SaddlePoint, hessian_of_action
from theory.size_limits import examples_at_a_time


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

    −½ (A* − A_0) − ½ (ln det ∇²A − 2 ln volume − c_0) − (P O/2) ln 2π, with A* the action at its
    minimum (not divided by a width), ∇²A its Hessian in the coordinates of
    `theory.action_functional` and, summed over layers l = 1 … L + 1 with N_{L+1} = N_a,
        A_0  = Σ N_l p_l (1 − ln σ_l²)                            minimum of A without data
        ln volume = Σ [ p_l ln 2 − Σ_i i ln((B̂_l)_ii/σ_l) ],  i from 0, of the invariant measure
        c_0  = Σ [ ½ p_l (p_l + 1) ln N_l + ½ p_l (p_l − 1) ln 2 ]

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
                f"{size}, the size of that layer's order parameter; sample it instead"
            )
    order_parameters, coordinates = saddle.order_parameters, RelativeCoordinates(architecture)
    hessian = max(architecture.widths) * hessian_of_action(problem, order_parameters)
    factor = np.linalg.cholesky(0.5 * (hessian + hessian.T))
    point = coordinates.point_of(order_parameters.factors)
    curvature = float(log_determinant(factor)) - 2.0 * coordinates.log_invariant_volume(point)
    curvature -= sum(
        0.5 * size * (size + 1) * math.log(width) + 0.5 * size * (size - 1) * math.log(2.0)
        for width, size, _ in _layers(architecture)
    )
    return log_evidence_at_leading_order(problem, saddle.action) - 0.5 * curvature


def log_evidence_at_next_order(around: Fluctuations) -> float:
    """Log evidence ln p(y) with an error of order 1/N².

    −Ψ(θ̂) + ½ dim θ ln 2π − ½ ln det ∇²Ψ + c,
    c = −⅛ Ψ_ijkl S_ij S_kl + ⅛ d·S d + (1/12) Ψ_ijk Ψ_lmn S_il S_jm S_kn

    in the letters of `theory.laplace`. Holds p_1⁶ and p_1² (dim θ)² numbers a few times, so that it
    is for few coordinates.
    """
    size = around.point.size
    log_volume = float(np.linalg.slogdet(around.directions)[1])  # −½ ln det ∇²Ψ
    third, fourth = third_and_fourth(around)
    drift = around.drift
    correction = -fourth / 8.0 + drift @ drift / 8.0 + np.sum(third**2) / 12.0
    gaussian = 0.5 * size * math.log(2.0 * math.pi) + log_volume
    residual = around.posterior.problem.residual_log_likelihood
    return float(residual - around.value + gaussian + correction)


def third_and_fourth(
    around: Fluctuations,
) -> tuple[Float[np.ndarray, "direction direction direction"], float]:
    """Third derivatives Ψ_abc along directions of unit variance, and Σ_ac Ψ_aacc.

    By the chain rule from ∂ⁿE and the derivatives of U_1 along pairs of directions.
    """
    directions, slope = around.directions, around.energy.slope
    count = len(directions)
    second, drift, fourth_of_overlap, slope_third = derivatives_along_pairs(around)
    first = around.jacobian.reshape(count, -1)
    curvature, bend = around.flat_curvature, around.curved[0].reshape(-1)
    by_pair = third_of_energy(around.energy)
    half = np.tensordot(by_pair, first, (2, 1))  # [row_row, row_row, direction]
    half = np.tensordot(half, first, (1, 1))  # [row_row, direction, direction]
    third = np.tensordot(first, half, 1)
    bent = second @ (curvature @ first.T)  # ∂²E[∂_ab U, ∂_c U]
    third += bent + bent.transpose(0, 2, 1) + bent.transpose(2, 1, 0) + slope_third
    fourth = around.averages.fourth + 2.0 * np.vdot(around.averages.third, bend)
    fourth += 4.0 * np.einsum("xac,acx->", half, second)
    fourth += 4.0 * np.vdot(drift @ curvature, first) + bend @ curvature @ bend
    fourth += 2.0 * np.vdot(second @ curvature, second)
    fourth += np.vdot(slope, fourth_of_overlap)
    prior = around.posterior.coordinates.prior_derivatives(around.point)
    third = 0.5 * third
    third += np.einsum("i,ai,bi,ci->abc", prior[3], *(directions,) * 3, optimize=True)
    fourth = 0.5 * fourth + prior[4] @ np.sum(directions**2, axis=0) ** 2
    return third, float(fourth)


def third_of_energy(energy: EnergyAt) -> Float[np.ndarray, "row_row row_row row_row"]:
    """∂³E/∂U_ab ∂U_cd ∂U_ef, to be applied to symmetric matrices.

    2 tr(J_bc J_de J_fa) − 2 (j_a·J_bc J_de j_f and the same with the second or the third pair
    at the ends).
    """
    products, rows = energy.products, len(energy.projected)
    ends = np.einsum("ai,bcij->abcj", energy.projected, products, optimize=True)
    square = rows**2
    quadratic = np.einsum("abcj,fedj->abcdef", ends, ends, optimize=True)
    quadratic = quadratic.reshape(square, square, square)
    total = quadratic + quadratic.transpose(1, 0, 2) + quadratic.transpose(0, 2, 1)
    total = np.ascontiguousarray(total)  # added to in place below
    # tr(J_bc J_de J_fa) = tr(J_af J_ed J_cb): a from b on is enough.
    traces = total.reshape((rows,) * 6)
    for b in range(rows):
        chain = np.einsum("cij,dejk->cdeik", products[b], products, optimize=True)
        from_b = np.einsum("cdeik,faki->acdef", chain, products[:, b:], optimize=True)
        traces[b:, b] -= from_b
        traces[b, b + 1 :] -= from_b[1:].transpose(0, 4, 3, 2, 1)
    return -2.0 * total


def derivatives_along_pairs(around: Fluctuations) -> tuple[np.ndarray, ...]:
    """Derivatives of U_1 along two directions v_a each, from those along v_a and v_a ± v_c.

    Exact polarisation. Returns, with pairs of rows flat,
        ∂_a∂_c U_1         [direction, direction, row_row]
        Σ_a ∂_a²∂_c U_1    [direction, row_row]
        Σ_ac ∂_a²∂_c² U_1  [row_row]
        Σ ∂E/∂U_1 ∂_a∂_b∂_c U_1  [direction, direction, direction]
    """
    directions, slope = around.directions, around.energy.slope
    coordinates, point = around.posterior.coordinates, around.point
    count, square = len(directions), slope.size

    def derive(lines):
        """∂², ∂³ and ∂⁴U_1 along every line, and the gradient of Σ ∂E/∂U_1 ∂²U_1."""
        series = coordinates.series(point, lines, 4)
        factor, first, second = series.factors[0][:3]
        weights = [4.0 * slope @ second, 4.0 * slope @ first, 4.0 * slope @ factor]
        pulled = series.pull_back(weights) @ directions.T
        return [series.overlap(0, k).reshape(len(lines), -1) for k in (2, 3, 4)], pulled

    (single2, single3, single4), single_pulled = derive(directions)
    second = np.zeros((count, count, square))
    slope_third = np.zeros((count, count, count))
    drift, fourth = single3.copy(), single4.sum(axis=0)
    every = np.arange(count)
    second[every, every], slope_third[every, every] = single2, single_pulled
    left, right = np.triu_indices(count, 1)
    # Along both lines of a pair: five coefficients of B and F of every layer, and derivatives of U.
    numbers = 20 * point.size + 20 * square
    chunk = examples_at_a_time(len(left), 8 * numbers)
    for start in range(0, len(left), chunk):
        a, c = left[start : start + chunk], right[start : start + chunk]
        (plus2, plus3, plus4), pulled = derive(directions[a] + directions[c])
        (minus2, minus3, minus4), _ = derive(directions[a] - directions[c])
        second[a, c] = second[c, a] = 0.25 * (plus2 - minus2)
        np.add.at(drift, c, (plus3 - minus3 - 2.0 * single3[c]) / 6.0)
        np.add.at(drift, a, (plus3 + minus3 - 2.0 * single3[a]) / 6.0)
        fourth += np.sum(plus4 + minus4 - 2.0 * (single4[a] + single4[c]), axis=0) / 6.0
        slope_third[a, c] = 0.5 * (pulled - single_pulled[a] - single_pulled[c])
        slope_third[c, a] = slope_third[a, c]
    return second, drift, fourth, slope_third


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
