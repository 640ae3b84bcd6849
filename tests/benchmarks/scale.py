"""How the cost of theory and sampling grows: log–log slopes in N, P, paths, D and T, and memory."""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np

from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chains import sample
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.hamiltonian import Nuts
from sampler.storage.manifest import most_memory
from tests.problems import problem_of_many_paths, space_of
from theory import (
    LearningProblem,
    OrderParameters,
    Predictor,
    attended_inputs,
    predict,
    solve_saddle_point,
)
from theory.action_functional import action
from theory.order_parameters import from_log_cholesky, to_log_cholesky

EXAMPLES, HEADS, WIDTH = 300, (4, 4), 100
SECONDS_PER_MEASUREMENT = 0.4
HEADS_OF = {4: (2, 2), 16: (4, 4), 64: (8, 8), 256: (16, 16)}


@dataclass(frozen=True)
class Curve:
    """Seconds [repetition] at every size, and the sizes that a slope is fitted to."""

    name: str
    sizes: tuple[int, ...]
    seconds: np.ndarray

    @property
    def slope(self) -> tuple[float, float]:
        """Exponent of seconds in size, and its error by the scatter about the power law.

        The error is that of a straight line through the logarithms of medians, or half the range of
        the local slopes of repetitions, whichever is larger.
        """
        x, y = np.log(self.sizes), np.log(self.seconds)
        middle = np.median(y, axis=0)
        away = x - x.mean()
        slope = float(away @ middle / (away @ away))
        rest = middle - middle.mean() - slope * away
        freedom = max(1, len(x) - 2)
        fit = math.sqrt(float(rest @ rest) / freedom / float(away @ away))
        each = (y - y.mean(axis=1, keepdims=True)) @ away / (away @ away)
        return slope, max(fit, float(each.std(ddof=1)))

    def row(self) -> str:
        middle = np.median(self.seconds, axis=0)
        cells = ", ".join(
            f"{size}: {1e3 * one:.3g}" for size, one in zip(self.sizes, middle, strict=True)
        )
        slope, error = self.slope
        return f"| {self.name} | {cells} | {slope:.2f} ± {error:.2f} |"


def problem_of(
    *, width=WIDTH, examples=EXAMPLES, heads=HEADS, channels=64, seed=0
) -> LearningProblem:
    """Paths share half their inputs, in any number of channels."""
    if channels == 64:
        return problem_of_many_paths(
            np.random.default_rng(seed), width, examples=examples, heads=heads
        )
    base = problem_of(width=width, examples=examples, heads=heads, seed=seed)
    rng = np.random.default_rng(seed)
    attended = rng.standard_normal((examples, 1, channels))
    attended = attended + 0.5 * rng.standard_normal((examples, base.attended.shape[1], channels))
    architecture = replace(base.architecture, channels=channels)
    return replace(base, architecture=architecture, attended=jnp.asarray(attended))


def repeated(call: Callable[[], object]) -> Callable[[], float]:
    """A function that says how many seconds one call takes, compiled before."""
    jax.block_until_ready(call())
    started = time.perf_counter()
    jax.block_until_ready(call())
    once = time.perf_counter() - started
    count = max(1, min(2000, int(SECONDS_PER_MEASUREMENT / max(once, 1e-6))))

    def measure() -> float:
        started = time.perf_counter()
        for _ in range(count):
            result = call()
        jax.block_until_ready(result)
        return (time.perf_counter() - started) / count

    return measure


def collapsed_gradient(problem: LearningProblem) -> Callable[[], object]:
    """Value and gradient of the sampled density, in Bartlett coordinates."""
    space = space_of(problem, whitened=False)
    value_and_gradient = jax.jit(lambda point, space: jax.value_and_grad(space.potential)(point))
    point = jnp.asarray(np.random.default_rng(1).standard_normal(space.size) * 0.1)
    return lambda: value_and_gradient(point, space)


def action_gradient(problem: LearningProblem) -> Callable[[], object]:
    """Value and gradient of the action, one step of a first-order solver."""
    architecture = problem.architecture

    @jax.jit
    def value_and_gradient(point, energy):
        def value(point):
            order_parameters = from_log_cholesky(point, architecture.order_parameter_sizes)
            return action(order_parameters, architecture, energy)

        return jax.value_and_grad(value)(point)

    point = to_log_cholesky(OrderParameters.gp_limit(architecture))
    return lambda: value_and_gradient(point, problem.energy)


def attention_paths(tokens: int) -> Callable[[], object]:
    """ξ of the four-path network from inputs and attention with so many tokens."""
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.standard_normal((100, tokens, 64)))
    attention = tuple(jnp.asarray(rng.random((100, 2, tokens, tokens))) for _ in range(2))
    call = jax.jit(partial(attended_inputs, readout="mean"))
    return lambda: call(inputs, attention)


CURVES = (
    ("collapsed gradient, N", collapsed_gradient, "width", (30, 100, 1000, 10_000, 1_000_000)),
    ("action gradient, N", action_gradient, "width", (30, 100, 1000, 10_000, 1_000_000)),
    ("collapsed gradient, P", collapsed_gradient, "examples", (500, 1000, 2000, 5000)),
    ("action gradient, P", action_gradient, "examples", (500, 1000, 2000, 5000)),
    ("collapsed gradient, paths", collapsed_gradient, "paths", (4, 16, 64, 256)),
    ("action gradient, paths", action_gradient, "paths", (4, 16, 64, 256)),
    ("collapsed gradient, D", collapsed_gradient, "channels", (32, 128, 512, 2048)),
    ("path inputs, T", attention_paths, "tokens", (64, 128, 256, 512)),
)


def measure_scale(repetitions: int) -> Iterator[str]:
    """Lines of two tables: cost curves with their slopes, and whole solves with their memory."""
    yield "| what, against | milliseconds, median | slope |"
    yield "|---|---|---|"
    for name, make, key, sizes in CURVES:
        with jax.enable_x64(True):
            measures = [repeated(made(make, key, size)) for size in sizes]
            seconds = np.array(
                [[measure() for measure in measures] for _ in range(max(3, repetitions // 2))]
            )
            yield Curve(name, sizes, seconds).row()
            jax.clear_caches()
    yield "\n| what, in a process of its own | P | paths | seconds | result | peak GiB |"
    yield "|---|---|---|---|---|---|"
    for row in (solve_many_examples, solve_many_paths, predict_many_examples, sample_many_paths):
        # Peak memory is that of a process: each has its own.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            yield process.submit(row).result()


def made(make, key: str, size: int) -> Callable[[], object]:
    """The call to be measured at one size."""
    if key == "tokens":
        return make(size)
    if key == "paths":
        return make(problem_of(heads=HEADS_OF[size], width=1000))
    if key == "examples":
        return make(problem_of(examples=size, heads=(2, 2)))
    return make(problem_of(**{key: size}))


def solve_many_examples() -> str:
    return solved("saddle point", partial(problem_of, examples=5000, heads=(2, 2)))


def solve_many_paths() -> str:
    return solved("saddle point", partial(problem_of, examples=500, heads=(16, 16), width=1000))


def solved(label: str, problem_of_size: Callable[[], LearningProblem]) -> str:
    """One solve from nothing, compilation included."""
    with jax.enable_x64(True):
        problem = problem_of_size()
        started = time.perf_counter()
        saddle = solve_saddle_point(problem)
        seconds = time.perf_counter() - started
    result = f"{problem.architecture.coordinate_count} coordinates, {saddle.explain()}"
    return whole_row(label, problem, seconds, result)


def predict_many_examples(tests: int = 100_000) -> str:
    """Mean and variance of f on very many test examples."""
    with jax.enable_x64(True):
        problem = problem_of(examples=600)
        rng = np.random.default_rng(2)
        shape = (tests, *problem.attended.shape[1:])
        attended = jnp.asarray(rng.standard_normal(shape, np.float32), float)
        started = time.perf_counter()
        predictor = Predictor.for_examples(problem, attended)
        factor = OrderParameters.gp_limit(problem.architecture).factors[0]
        mean, _ = jax.block_until_ready(predict(predictor, factor))
        seconds = time.perf_counter() - started
    result = f"{len(mean):,} test examples, inputs {attended.nbytes / 2**30:.2f} GiB"
    return whole_row("predictor", problem, seconds, result)


def sample_many_paths(draws: int = 5) -> str:
    """Whitened NUTS over the order parameters of 256 paths: what one draw costs."""
    with jax.enable_x64(True):
        problem = problem_of(examples=500, heads=(16, 16), width=1000)
        collected = DrawCollector()
        started = time.perf_counter()
        space = space_of(problem)
        found = time.perf_counter() - started
        settings = ChainSettings(chains=1, warmup=10, draws=draws)
        sample(space, Nuts(max_tree_depth=4), settings, collected)
        seconds = time.perf_counter() - started
    steps = float(collected.statistics["n_steps"].mean())
    each = collected.seconds["draws"] / draws
    accepted = float(collected.statistics["acceptance_rate"].mean())
    result = (
        f"start {found:.0f} s, {each:.2f} s and {steps:.0f} leapfrog steps a draw, "
        f"acceptance {accepted:.2f}"
    )
    return whole_row("collapsed NUTS", problem, seconds, result)


def whole_row(label: str, problem: LearningProblem, seconds: float, result: str) -> str:
    peak = most_memory() / 2**30
    examples, paths = problem.labels.shape[0], problem.architecture.path_count
    return f"| {label} | {examples} | {paths} | {seconds:.0f} | {result} | {peak:.1f} |"
