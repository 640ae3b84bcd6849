"""The saddle point of the action: Newton steps, then the search from one or several starts."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg

from theory.action_functional import ActionByProducts, DenseAction
from theory.architecture import Architecture
from theory.learning_problem import LearningProblem
from theory.overlaps import OrderParameters
from theory.size_limits import DENSE_ACTION_COORDINATES, hessian_fits

# A trial step is shortened until no coordinate moves further than this times its scale.
LARGEST_MOVE = 3.0
SUFFICIENT_DECREASE = 1e-4
HALVINGS = 40
# How well values are known relative to their size: mostly, and where K + 𝒯 1 is ill-conditioned.
ROUNDING, POOR_ROUNDING = 1e-13, 1e-9
RANDOM_SPREAD = 0.5


class SaddlePointStatus(Enum):
    """Outcome of a search; only `CONVERGED` may be shown as the theory's prediction."""

    CONVERGED = "converged"
    STEP_LIMIT = "step limit reached before the gradient met the tolerance"
    STALLED = "no step lowers the action although the gradient exceeds the tolerance"
    NOT_A_MINIMUM = "gradient met the tolerance at a point that is not a minimum"
    NOT_FINITE = "the action is not finite"


# Arguments of `solve_saddle_point` are in backticks.
REMEDY = {
    SaddlePointStatus.STEP_LIMIT: "raise `max_steps`",
    SaddlePointStatus.STALLED: "rounding decides here: raise `tolerance`, or the temperature",
    SaddlePointStatus.NOT_A_MINIMUM: "raise `starts`",
    SaddlePointStatus.NOT_FINITE: "rescale inputs and labels, or raise the temperature",
}


@dataclass(frozen=True)
class Descent:
    """End of a descent: point, value, gradient norm, steps taken, and how it ended."""

    point: np.ndarray
    value: float
    gradient_norm: float
    steps: int
    status: SaddlePointStatus

    @property
    def converged(self) -> bool:
        """Whether the gradient met the tolerance."""
        return self.status is SaddlePointStatus.CONVERGED


def descend(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    newton_direction: Callable[[np.ndarray, np.ndarray], np.ndarray],
    scales_at: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    tolerance: float,
    max_steps: int,
) -> Descent:
    """Newton directions with backtracking until |gradient| ≤ tolerance.

    `scales_at` gives, at a point, the distance over which each coordinate changes things. Near the
    minimum the value stops changing before the gradient does, so a step that lowers the gradient
    norm without raising the value beyond rounding is accepted as well; one that halves it may raise
    the value by what rounding does to an ill-conditioned K + 𝒯 1.
    """
    point = np.asarray(start, dtype=float)
    value, gradient = value_and_gradient(point)
    if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
        return Descent(point, float(value), float("nan"), 0, SaddlePointStatus.NOT_FINITE)
    for step in itertools.count():
        norm = float(np.linalg.norm(gradient))
        ended = partial(Descent, point, float(value), norm, step)
        if norm <= tolerance:
            return ended(SaddlePointStatus.CONVERGED)
        if step >= max_steps:
            return ended(SaddlePointStatus.STEP_LIMIT)
        direction = newton_direction(point, gradient)
        if not np.all(np.isfinite(direction)):
            return ended(SaddlePointStatus.NOT_FINITE)
        furthest = np.max(np.abs(direction) / scales_at(point))
        direction *= min(1.0, LARGEST_MOVE / max(furthest, 1e-300))
        slope, size = float(gradient @ direction), 1.0 + abs(value)
        highest, poor_highest = value + ROUNDING * size, value + POOR_ROUNDING * size
        for halvings in range(HALVINGS):
            length = 0.5**halvings
            trial = point + length * direction
            trial_value, trial_gradient = value_and_gradient(trial)
            trial_norm = np.linalg.norm(trial_gradient)
            lower = trial_value <= value + SUFFICIENT_DECREASE * length * slope
            flatter = trial_value <= highest and trial_norm < norm
            much_flatter = trial_value <= poor_highest and trial_norm <= norm / 2.0
            if np.isfinite(trial_value) and (lower or flatter or much_flatter):
                break
        else:
            return ended(SaddlePointStatus.STALLED)
        point, value, gradient = trial, trial_value, trial_gradient


def products_of(
    action: DenseAction | ActionByProducts,
) -> Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """Hessian products of an action that has them, as one without a dense Hessian does."""
    assert isinstance(action, ActionByProducts)
    return action.hessian_products


def dense_direction(hessian: Callable[[np.ndarray], np.ndarray]):
    """Newton direction −|∇²A|⁻¹ ∇A from the eigenvalues of the Hessian, so it always descends.

    NaN where the Hessian is not finite.
    """

    def direction(point: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        matrix = hessian(point)
        if not np.all(np.isfinite(matrix)):
            return np.full_like(gradient, np.nan)
        eigenvalues, vectors = np.linalg.eigh(matrix)
        sizes = np.maximum(np.abs(eigenvalues), 1e-10 * np.abs(eigenvalues).max())
        return -vectors @ ((vectors.T @ gradient) / sizes)

    return direction


def truncated_direction(
    hessian_products: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]],
):
    """Newton direction by conjugate gradients, cut short at negative curvature.

    `hessian_products` gives, at a point, the product of the Hessian there with a vector. The
    relative residual falls with the gradient norm, which keeps convergence superlinear.
    """

    def direction(point: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(gradient)
        limit = min(0.1, norm**0.5) * norm
        solution, residual = np.zeros_like(gradient), -gradient
        search, square = residual.copy(), float(residual @ residual)
        product_with = hessian_products(point)
        for _ in range(4 * gradient.size):
            product = product_with(search)
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
    """Smallest eigenvalue of a symmetric operator, from its products with vectors (Lanczos).

    An eigenvalue lies within 1 % of the returned value, and its error is of second order in that.
    """
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=product, dtype=float)
    start = np.random.default_rng(0).standard_normal(size)
    # With SciPy's 20 vectors twice as many products are needed: they are what takes the time.
    vectors = min(size, 80)
    values = scipy.sparse.linalg.eigsh(
        operator, k=1, which="SA", ncv=vectors, v0=start, tol=1e-2, return_eigenvectors=False
    )
    return float(values[0])


@dataclass(frozen=True)
class SaddlePoint:
    """The minimum of the action, and how the search for it ended.

    order_parameters            U_1 … U_L, U_a at the minimum
    action                      A / max(N_1 … N_L, N_a)
    gradient_norm               |∂(A / max width)| in coordinates of `theory.action_functional`
    smallest_hessian_eigenvalue of A / max width in the same coordinates
    tolerance                   the limit that gradient_norm had to meet
    steps                       Newton steps from the start that led to it
    start_disagreement          largest coordinate difference among converged starts, NaN for one
    """

    order_parameters: OrderParameters
    action: float
    gradient_norm: float
    smallest_hessian_eigenvalue: float
    tolerance: float
    steps: int
    start_disagreement: float
    status: SaddlePointStatus

    @property
    def converged(self) -> bool:
        """Whether the order parameters are a minimum of the action to within the tolerance."""
        return self.status is SaddlePointStatus.CONVERGED

    def explain(self) -> str:
        """One line: status, value, limit and, if it failed, the remedy."""
        text = (
            f"saddle point {self.status.value}: |gradient| = {self.gradient_norm:.1e} "
            f"(limit {self.tolerance:.0e}) after {self.steps} Newton steps, "
            f"smallest Hessian eigenvalue {self.smallest_hessian_eigenvalue:.3g}"
        )
        return text if self.converged else f"{text}; {REMEDY[self.status]}"


def make_action(problem: LearningProblem) -> DenseAction | ActionByProducts:
    """A / max width of a problem, with the derivatives that are cheaper for its size."""
    if hessian_fits(problem.architecture):
        return DenseAction(problem)
    return ActionByProducts(problem.architecture, problem.energy)


def hessian_of_action(problem: LearningProblem, order_parameters: OrderParameters) -> np.ndarray:
    """Second derivatives of A / max width in the coordinates of the action."""
    action = make_action(problem)
    return action.hessian(action.coordinates.point_of(order_parameters.factors))


def solve_saddle_point(
    problem: LearningProblem,
    *,
    tolerance: float | None = None,
    max_steps: int = 100,
    starts: int = 1,
    seed: int = 0,
    initial: OrderParameters | None = None,
    on_start: Callable[[int], None] = lambda ended: None,
) -> SaddlePoint:
    """Minimise the action by damped Newton steps in its coordinates, in float64.

    The first start is `initial` or the GP limit, `starts − 1` more are random around it; the lowest
    converged minimum counts. Up to 500 coordinates Newton equations use the exact Hessian, and
    `tolerance`, the limit on |∂(A / max width)|, is 1e-10 by default; above, conjugate gradients on
    exact Hessian products, and 1e-8. Never raises for a search that fails: `status` is then the
    reason. `on_start` is called with the number of starts that came to their end.
    """
    if problem.attended.dtype != jnp.float64:
        raise ValueError(
            f"the saddle point needs float64, got {problem.attended.dtype}: "
            "enable 64-bit numbers with jax.enable_x64(True) and pass a float64 problem"
        )
    return minimise_action(
        make_action(problem),
        problem.architecture,
        dense=hessian_fits(problem.architecture),
        constant=problem.residual_energy,
        tolerance=tolerance,
        max_steps=max_steps,
        starts=starts,
        seed=seed,
        initial=initial,
        on_start=on_start,
    )


def minimise_action(
    action: DenseAction | ActionByProducts,
    architecture: Architecture,
    *,
    dense: bool,
    constant: float = 0.0,
    tolerance: float | None = None,
    max_steps: int = 100,
    starts: int = 1,
    seed: int = 0,
    initial: OrderParameters | None = None,
    on_start: Callable[[int], None] = lambda ended: None,
) -> SaddlePoint:
    """Minimise an action from all starts, as `solve_saddle_point` does.

    dense     whether Newton equations use the Hessian, or products with it
    constant  to be added to this action
    """
    if starts < 1:
        raise ValueError(f"starts = {starts}: must be at least 1")
    count = architecture.coordinate_count
    if tolerance is None:
        tolerance = 1e-10 if count <= DENSE_ACTION_COORDINATES else 1e-8
    if dense:
        direction = dense_direction(action.hessian)
    else:
        direction = truncated_direction(products_of(action))
    coordinates, rng = action.coordinates, np.random.default_rng(seed)
    first = np.zeros(count) if initial is None else coordinates.point_of(initial.factors)
    others = [first + RANDOM_SPREAD * rng.standard_normal(count) for _ in range(starts - 1)]
    descents: list[Descent] = []
    for start in (first, *others):
        ends = tolerance, max_steps
        functions = action.value_and_gradient, direction, coordinates.scales_at
        descents.append(descend(*functions, start, *ends))
        on_start(len(descents))
    finite = [end for end in descents if end.status is not SaddlePointStatus.NOT_FINITE]
    converged = [end for end in finite if end.converged]
    best = min(converged or finite or descents, key=lambda end: end.value)
    status, smallest = best.status, float("nan")
    if finite and dense:
        smallest = float(np.linalg.eigvalsh(action.hessian(best.point))[0])
    elif finite:
        smallest = smallest_eigenvalue(products_of(action)(best.point), count)
    if best.converged and not smallest > 0:
        status = SaddlePointStatus.NOT_A_MINIMUM
    distances = [np.abs(end.point - converged[0].point).max() for end in converged[1:]]
    return SaddlePoint(
        order_parameters=OrderParameters(tuple(map(jnp.asarray, coordinates.factors(best.point)))),
        action=best.value + constant / max(architecture.widths),
        gradient_norm=best.gradient_norm,
        smallest_hessian_eigenvalue=smallest,
        tolerance=tolerance,
        steps=best.steps,
        start_disagreement=float(max(distances, default=float("nan"))),
        status=status,
    )
