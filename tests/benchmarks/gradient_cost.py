"""Milliseconds per gradient of the log posterior, one chain, all competitors in turn."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import initialize_model

from tests.benchmarks.competitors import BASELINE, COMPETITORS, Competitor

SECONDS_PER_MEASUREMENT = 0.3


@dataclass(frozen=True)
class GradientCost:
    """Milliseconds per gradient of one competitor, one number per repetition."""

    competitor: str
    width: int
    precision: str
    milliseconds: np.ndarray


def gradient_loop(competitor: Competitor) -> Callable[[int], float]:
    """A function of a number of gradients that computes them in one compiled loop, as chains do.

    Each gradient is taken where the one before led to, so none can be left out.
    """
    model, given = competitor
    info = initialize_model(jax.random.key(0), model, model_args=given, dynamic_args=True)
    start = info.param_info.z

    @jax.jit
    def loop(position, count, arguments):
        gradient = jax.grad(info.potential_fn(*arguments))

        def step(_, position):
            moved = gradient(position)
            return jax.tree.map(lambda z, g: z - jnp.asarray(1e-9, z.dtype) * g, position, moved)

        return jax.lax.fori_loop(0, count, step, position)

    def run(count: int) -> float:
        started = time.perf_counter()
        jax.block_until_ready(loop(start, count, given))
        return time.perf_counter() - started

    return run


def measure_gradients(widths: list[int], precision: str, repetitions: int) -> list[GradientCost]:
    """All competitors at every width, interleaved: each repetition measures every one once."""
    found = []
    with jax.enable_x64(precision == "float64"):
        for width in widths:
            loops = {
                name: gradient_loop(make(width, precision)) for name, make in COMPETITORS.items()
            }
            counts = {}
            for name, run in loops.items():
                run(1)  # compiles
                counts[name] = max(2, int(SECONDS_PER_MEASUREMENT / (run(3) / 3)))
            times = {name: [] for name in loops}
            for _ in range(repetitions):
                for name, run in loops.items():
                    times[name].append(1e3 * run(counts[name]) / counts[name])
            found += [
                GradientCost(name, width, precision, np.array(ms)) for name, ms in times.items()
            ]
    return found


def largest_disagreement(width: int) -> float:
    """Relative difference of the two log posteriors on the same data at the same weights.

    They must agree: a benchmark of two different posteriors would mean nothing.
    """
    with jax.enable_x64(True):
        values = []
        for name in ("path-contracted, recipe's data", BASELINE):
            model, given = COMPETITORS[name](width, "float64")
            info = initialize_model(jax.random.key(1), model, model_args=given, dynamic_args=True)
            position = {
                site: jax.random.normal(jax.random.key(i), value.shape)
                for i, (site, value) in enumerate(sorted(info.param_info.z.items()))
            }
            values.append(float(info.potential_fn(*given)(position)))
    return abs(values[0] - values[1]) / abs(values[0])


def gradient_table(costs: list[GradientCost]) -> str:
    """Median and range of milliseconds, and of the ratio to the baseline within a repetition."""
    lines = [
        "| precision | N | posterior | ms per gradient (min–max) | times faster (min–max) |",
        "|---|---|---|---|---|",
    ]
    by_key = {(c.precision, c.width, c.competitor): c.milliseconds for c in costs}
    for cost in costs:
        ratio = by_key[cost.precision, cost.width, BASELINE] / cost.milliseconds
        cells = [
            cost.precision,
            str(cost.width),
            cost.competitor,
            spread(cost.milliseconds),
            "1" if cost.competitor == BASELINE else spread(ratio),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: np.ndarray) -> str:
    return f"{np.median(values):.3g} ({values.min():.3g}–{values.max():.3g})"
