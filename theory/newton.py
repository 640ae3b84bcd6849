"""Damped Newton descent to a minimum, with a dense Hessian or with Hessian products only."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse.linalg

# A trial step is shortened until no coordinate moves further than this times its scale.
LARGEST_MOVE = 3.0
SUFFICIENT_DECREASE = 1e-4
HALVINGS = 40
# How well values are known relative to their size: mostly, and where K + 𝒯 1 is ill-conditioned.
ROUNDING, POOR_ROUNDING = 1e-13, 1e-9


@dataclass(frozen=True)
class Descent:
    """Where a descent ended: point, value, gradient norm, steps taken, and why it stopped."""

    point: np.ndarray
    value: float
    gradient_norm: float
    steps: int
    stopped: str  # "converged", "step limit", "stalled" or "not finite"


def descend(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    newton_direction: Callable[[np.ndarray, np.ndarray], np.ndarray],
    coordinate_scales: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    tolerance: float,
    max_steps: int,
) -> Descent:
    """Newton directions with backtracking until |gradient| ≤ tolerance.

    `coordinate_scales` gives, at a point, the distance over which each coordinate changes things.
    Near the minimum the value stops changing before the gradient does, so a step that lowers the
    gradient norm without raising the value beyond rounding is accepted too; one that halves it may
    raise the value by what rounding does to an ill-conditioned K + 𝒯 1.
    """
    point = np.asarray(start, dtype=float)
    value, gradient = value_and_gradient(point)
    if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
        return Descent(point, float(value), float("nan"), 0, "not finite")
    for step in range(max_steps):
        norm = float(np.linalg.norm(gradient))
        if norm <= tolerance:
            return Descent(point, float(value), norm, step, "converged")
        direction = newton_direction(point, gradient)
        furthest = np.max(np.abs(direction) / coordinate_scales(point))
        direction *= min(1.0, LARGEST_MOVE / max(furthest, 1e-300))
        slope, rounding = float(gradient @ direction), ROUNDING * (1.0 + abs(value))
        length = 1.0
        for _ in range(HALVINGS):
            trial = point + length * direction
            trial_value, trial_gradient = value_and_gradient(trial)
            lower = trial_value <= value + SUFFICIENT_DECREASE * length * slope
            size = np.linalg.norm(trial_gradient)
            flatter = trial_value <= value + rounding and size < norm
            much_flatter = trial_value <= value + POOR_ROUNDING * (1.0 + abs(value)) and (
                size <= norm / 2.0
            )
            if np.isfinite(trial_value) and (lower or flatter or much_flatter):
                break
            length /= 2.0
        else:
            return Descent(point, float(value), norm, step, "stalled")
        point, value, gradient = trial, trial_value, trial_gradient
    norm = float(np.linalg.norm(gradient))
    stopped = "converged" if norm <= tolerance else "step limit"
    return Descent(point, float(value), norm, max_steps, stopped)


def dense_direction(hessian: Callable[[np.ndarray], np.ndarray]):
    """Newton direction −|H|⁻¹ g from the eigenvalues of the Hessian, so it always descends."""

    def direction(point: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        eigenvalues, vectors = np.linalg.eigh(hessian(point))
        sizes = np.maximum(np.abs(eigenvalues), 1e-10 * np.abs(eigenvalues).max())
        return -vectors @ ((vectors.T @ gradient) / sizes)

    return direction


def truncated_direction(hessian_product: Callable[[np.ndarray, np.ndarray], np.ndarray]):
    """Newton direction by conjugate gradients, cut short at negative curvature.

    The relative residual falls with the gradient norm, which keeps convergence superlinear.
    """

    def direction(point: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(gradient)
        limit = min(0.1, norm**0.5) * norm
        solution, residual = np.zeros_like(gradient), -gradient
        search, square = residual.copy(), float(residual @ residual)
        for _ in range(4 * gradient.size):
            product = hessian_product(point, search)
            curvature = float(search @ product)
            if curvature <= 1e-14 * float(search @ search):
                return solution if solution.any() else -gradient
            length = square / curvature
            solution += length * search
            residual -= length * product
            previous, square = square, float(residual @ residual)
            if square**0.5 <= limit:
                break
            search = residual + (square / previous) * search
        return solution

    return direction


def smallest_eigenvalue(product: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    """Smallest eigenvalue of a symmetric operator known by its products (Lanczos)."""
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=product, dtype=float)
    start = np.random.default_rng(0).standard_normal(size)
    values = scipy.sparse.linalg.eigsh(
        operator, k=1, which="SA", v0=start, tol=1e-3, return_eigenvectors=False
    )
    return float(values[0])
