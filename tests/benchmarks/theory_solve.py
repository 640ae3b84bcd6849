"""The Newton solve of the saddle point against Adam on the same action, compilation included."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.reference_data import load_reference, reference_problem
from theory import Architecture, LearningProblem, OrderParameters, solve_saddle_point
from theory.action_functional import action, entropy_terms
from theory.order_parameters import from_log_cholesky, to_log_cholesky

ADAM_STEPS = 1886
LEARNING_RATE = 0.01


class PlainAction:
    """The action as one would write it: a solve and a log determinant, differentiated by JAX."""

    @staticmethod
    def data(problem: LearningProblem):
        return problem.features, problem.labels[:, 0], problem.temperature

    def __call__(self, order_parameters: OrderParameters, arch: Architecture, data):
        features, labels, temperature = data
        overlap = order_parameters.factors[0] @ order_parameters.factors[0].T
        kernel = jnp.einsum("pq,xpi,yqi->xy", overlap, features, features)
        noisy = kernel + temperature * jnp.eye(len(kernel))
        energy = jnp.linalg.slogdet(noisy)[1] + labels @ jnp.linalg.solve(noisy, labels)
        widths, variances = arch.widths, arch.order_parameter_variances
        return energy + entropy_terms(order_parameters, arch.heads, widths, variances)


class OwnAction:
    """The project's action, with its stored kernels and hand-written gradient."""

    @staticmethod
    def data(problem: LearningProblem):
        return problem.energy

    def __call__(self, order_parameters: OrderParameters, arch: Architecture, data):
        return action(order_parameters, arch, data)


OBJECTIVES = {
    "Adam, plain action": PlainAction(),
    "Adam, this project's gradient": OwnAction(),
}


def adam(problem: LearningProblem, objective) -> tuple[float, np.ndarray]:
    """Seconds and the point reached by Adam, one compiled loop over all steps."""
    sizes, scale = problem.architecture.order_parameter_sizes, max(problem.architecture.widths)
    started = time.perf_counter()
    optimiser = optax.adam(LEARNING_RATE)
    # Data are arguments: as constants they would be folded at compilation, for many seconds.
    data = objective.data(problem)

    @jax.jit
    def descend(point, data):
        def value(point):
            return objective(from_log_cholesky(point, sizes), problem.architecture, data) / scale

        def step(_, carry):
            point, state = carry
            updates, state = optimiser.update(jax.grad(value)(point), state)
            return optax.apply_updates(point, updates), state

        return jax.lax.fori_loop(0, ADAM_STEPS, step, (point, optimiser.init(point)))[0]

    start = to_log_cholesky(OrderParameters.gp_limit(problem.architecture))
    point = np.asarray(descend(start, data))
    return time.perf_counter() - started, point


def measure_theory(repetitions: int) -> str:
    """Seconds of each, from empty caches, and how far Adam ended from the saddle point."""
    seconds = {"Newton": [], **{name: [] for name in OBJECTIVES}}
    with jax.enable_x64(True):
        problem = reference_problem(load_reference(), 10)
        for _ in range(repetitions):
            jax.clear_caches()
            started = time.perf_counter()
            saddle = solve_saddle_point(problem)
            seconds["Newton"].append(time.perf_counter() - started)
            ends = {}
            for name, objective in OBJECTIVES.items():
                jax.clear_caches()
                needed, ends[name] = adam(problem, objective)
                seconds[name].append(needed)
        exact = np.asarray(to_log_cholesky(saddle.order_parameters))
    lines = ["| solver | seconds (min–max) | times Newton | largest coordinate error |"]
    lines.append("|---|---|---|---|")
    newton = np.array(seconds["Newton"])
    for name, values in seconds.items():
        ratio = np.array(values) / newton
        error = np.abs(ends[name] - exact).max() if name in ends else 0.0
        lines.append(
            f"| {name} | {np.median(values):.2f} ({min(values):.2f}–{max(values):.2f}) | "
            f"{np.median(ratio):.1f} ({ratio.min():.1f}–{ratio.max():.1f}) | {error:.1e} |"
        )
    return "\n".join(lines)
