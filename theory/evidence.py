"""The log evidence at the saddle point."""

import math

import numpy as np

from theory.action import action
from theory.architecture import Architecture
from theory.energy import LearningProblem
from theory.order_parameters import log_invariant_volume
from theory.saddle_point import SaddlePoint, hessian_of_action


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
    lowest = float(action(order_parameters, architecture, problem.energy))
    hessian = max(architecture.widths) * hessian_of_action(problem, order_parameters)
    factor = np.linalg.cholesky(0.5 * (hessian + hessian.T))
    log_determinant = 2.0 * float(np.sum(np.log(np.diagonal(factor))))
    curvature = log_determinant - 2.0 * log_invariant_volume(order_parameters)
    curvature -= sum(
        0.5 * size * (size + 1) * math.log(width) + 0.5 * size * (size - 1) * math.log(2.0)
        for width, size, _ in _layers(architecture)
    )
    without_data = action_without_data(architecture)
    constant = problem.labels.size * math.log(2.0 * math.pi)
    return -0.5 * (lowest - without_data + curvature + constant)


def is_regular(architecture: Architecture) -> bool:
    """Whether every layer is at least as wide as its order parameter is large."""
    return all(width >= size for width, size, _ in _layers(architecture))


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
