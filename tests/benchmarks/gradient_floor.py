"""The gradient of the collapsed density against the operations that it cannot avoid."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tests.problems import problem_of_many_paths
from tests.reference_data import load_reference, reference_problem
from theory import LearningProblem, OrderParameters
from theory.energy import gram_of_lower, inverse_of_lower

SECONDS = 0.3


def problems() -> dict[str, LearningProblem]:
    """4 and 16 paths, 100 and 600 examples."""
    rng = np.random.default_rng(0)
    return {
        "4 paths, P = 100": reference_problem(load_reference(), 10),
        "16 paths, P = 100": problem_of_many_paths(rng, 10, examples=100, heads=(4, 4)),
        "4 paths, P = 600": problem_of_many_paths(rng, 10, examples=600, heads=(2, 2)),
        "16 paths, P = 600": problem_of_many_paths(rng, 10, examples=600, heads=(4, 4)),
    }


def parts(problem: LearningProblem) -> dict[str, Callable]:
    """Compiled functions of a small number that repeat one operation, carried from call to call."""
    energy = problem.energy
    (factor, *_) = OrderParameters.gp_limit(problem.architecture).factors
    kernel, pull_back = jax.vjp(energy.kernels.kernel, factor)
    noisy = kernel + energy.temperature * jnp.eye(len(kernel))
    lower = jnp.linalg.cholesky(noisy)

    def repeated(operation):
        @jax.jit
        def loop(count, start):
            body = lambda _, total: total + 1e-300 * jnp.sum(operation(total))  # noqa: E731
            return jax.lax.fori_loop(0, count, body, start)

        return loop

    return {
        "value and gradient": repeated(lambda s: jax.grad(energy)(factor * (1 + s))),
        "assembly of K": repeated(lambda s: energy.kernels.kernel(factor * (1 + s))),
        "Cholesky": repeated(lambda s: jnp.linalg.cholesky(noisy * (1 + s))),
        "triangular inverse": repeated(lambda s: inverse_of_lower(lower * (1 + s))),
        "product of the inverse": repeated(lambda s: gram_of_lower(lower * (1 + s))),
        "pull-back to U": repeated(lambda s: pull_back(noisy * (1 + s))[0]),
    }


def measure_floor(repetitions: int) -> str:
    """A table of microseconds, and the gradient over the sum of its parts, interleaved."""
    lines = []
    with jax.enable_x64(True):
        for name, problem in problems().items():
            found = _times(parts(problem), repetitions)
            if not lines:
                lines.append("| problem | " + " | ".join(found) + " | gradient ÷ sum of parts |")
                lines.append("|---" * (len(found) + 2) + "|")
            total, *rest = found.values()
            ratio = total / np.sum(rest, axis=0)
            cells = [f"{1e6 * np.median(times):.0f}" for times in found.values()]
            cells.append(f"{np.median(ratio):.2f} ({ratio.min():.2f}–{ratio.max():.2f})")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _times(loops: dict[str, Callable], repetitions: int) -> dict[str, np.ndarray]:
    """Seconds per operation, [repetition]."""
    zero, counts = jnp.zeros(()), {}
    for name, loop in loops.items():
        loop(1, zero).block_until_ready()
        counts[name] = max(3, int(SECONDS / (_timed(loop, 5, zero) / 5)))
    times = {name: [] for name in loops}
    for _ in range(repetitions):
        for name, loop in loops.items():
            times[name].append(_timed(loop, counts[name], zero) / counts[name])
    return {name: np.array(values) for name, values in times.items()}


def _timed(loop: Callable, count: int, zero) -> float:
    started = time.perf_counter()
    loop(count, zero).block_until_ready()
    return time.perf_counter() - started
