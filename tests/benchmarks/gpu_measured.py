"""Measurements on an accelerator, one row of a table each: correctness, rates, chains."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats

from sampler.mcmc.chains import Chunk, sample
from sampler.posterior.importance import single
from sampler.storage.results import read_draws
from tests import ROOT
from tests.problems import NUTS, chain_settings, problem_of_many_paths, space_of
from tests.reference_data import load_reference, reference_problem
from theory import LearningProblem

HEADS = {4: (2, 2), 16: (4, 4)}
WARMUP = {"order_parameters": 60, "weights": 10}
PRECISION = {"order_parameters": "float64", "weights": "float32"}
# Differences in float64 between two devices: rounding, magnified by the condition number.
AGREEMENT = 1e-8
# Draws that no time suffices for.
ENDLESS = 10_000_000


def problem(paths: int, examples: int, width: int) -> LearningProblem:
    """The published data where they have this size, random ones elsewhere."""
    if (paths, examples) == (4, 100):
        return reference_problem(load_reference(), width)
    rng = np.random.default_rng(1)
    return problem_of_many_paths(rng, width, examples=examples, heads=HEADS[paths])


def timed(function, *arrays, least: float = 0.3) -> float:
    """Seconds per call, compiled, over at least `least` seconds."""
    function(*arrays).block_until_ready()
    calls, started = 0, time.perf_counter()
    while time.perf_counter() - started < least:
        function(*arrays).block_until_ready()
        calls += 1
    return (time.perf_counter() - started) / calls


def batch_of(examples: int) -> int:
    """Matrices that fill a device: a gigabyte of them, fewer on a processor."""
    limit = 2**26 if jax.default_backend() == "cpu" else 2**30
    return max(1, limit // (8 * examples**2))


def product_rate(examples: int) -> float:
    """GFLOP/s of batched products of P × P matrices."""
    batch = batch_of(examples)
    matrices = jnp.ones((batch, examples, examples)) / examples
    seconds = timed(jax.jit(lambda a: a @ a), matrices)
    return 2e-9 * batch * examples**3 / seconds


def cholesky_rate(examples: int) -> float:
    """GFLOP/s of batched Cholesky factors of P × P matrices."""
    batch = batch_of(examples)
    matrix = jnp.eye(examples) + 0.5 / examples
    seconds = timed(jax.jit(jnp.linalg.cholesky), jnp.tile(matrix, (batch, 1, 1)))
    return 1e-9 / 3 * batch * examples**3 / seconds


def compared(function, points, *trees) -> tuple[np.ndarray, np.ndarray]:
    """Value and gradient of a function at points, on this device and on a processor."""
    both = jax.jit(jax.vmap(jax.value_and_grad(function), in_axes=(0, *(None,) * len(trees))))
    found = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        there = [jax.device_put(tree, device) for tree in (points, *trees)]
        found.append(jax.device_get(both(*there)))
    (value, gradient), (exact_value, exact_gradient) = found
    return (
        np.max(np.abs(value - exact_value) / np.abs(exact_value)),
        np.max(np.abs(gradient - exact_gradient)) / np.max(np.abs(exact_gradient)),
    )


def energy_row(paths: int, examples: int, width: int) -> str:
    """−ln p(y | U_1) around the mode; the largest relative differences to a processor."""
    space = space_of(problem(paths, examples, width))
    points = single(space.mode.gaussian).draw(8, np.random.default_rng(2))

    def energy_at(point, space):
        position = space.unflatten(point)
        return space.energy(position)(space.factors(position)[0])

    found = compared(energy_at, points, space)
    return f"| energy | float64 | {paths} paths, P = {examples} | {verdict(*found)} |"


def density_row(name: str, precision: str, paths: int, examples: int, width: int) -> str:
    """ln p of a whole space at draws from its prior."""
    with jax.enable_x64(precision == "float64"):
        learning = problem(paths, examples, width).astype(precision)
        space = space_of(learning, name, precision=precision)
        keys = jax.random.split(jax.random.key(4), 8)
        points = jnp.stack([space.flatten(space.draw_prior(key)) for key in keys])
        found = compared(lambda point, space: space.potential(point), points, space)
    judged = verdict(*found) if precision == "float64" else rounded(*found)
    return f"| {name} | {precision} | {paths} paths, P = {examples} | {judged} |"


def rounded(value: float, gradient: float) -> str:
    return f"{value:.1e} | {gradient:.1e} | –"


def verdict(value: float, gradient: float) -> str:
    """Both differences, and whether they are rounding."""
    agree = "agree" if max(value, gradient) <= AGREEMENT else "DISAGREE"
    return f"{value:.1e} | {gradient:.1e} | {agree}"


def run_row(recipe: str, folder: Path, further: tuple[str, ...] = ()) -> str:
    """One whole run here and one on a processor; difference of the means of U_1 in its errors."""
    found = []
    for place in ("here", "processor"):
        environment = {**os.environ, **({"JAX_PLATFORMS": "cpu"} if place == "processor" else {})}
        out = folder / f"{recipe}_{place}"
        words = ["run", str(ROOT / "runs" / f"{recipe}.toml"), "--out", str(out), *further]
        command = [sys.executable, "-m", "sampler", *words]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if done.returncode not in (0, 3):
            raise RuntimeError(done.stderr)
        draws = read_draws(out)["posterior"]["order_parameter"].values
        rows, columns = np.tril_indices(draws.shape[-1])
        elements = draws[..., rows, columns].astype(float)
        ess = array_stats.ess(elements, chain_axis=0, draw_axis=1, method="mean")
        found.append((elements.mean((0, 1)), elements.std((0, 1)) / np.sqrt(ess)))
    (here, error), (there, other) = found
    worst = float(np.max(np.abs(here - there) / np.hypot(error, other)))
    return f"| {recipe}.toml | {here.size} elements of U₁ | {worst:.2f} |"


def rate_row(examples: int) -> str:
    """What the device can do at most with matrices of this size."""
    product, cholesky = product_rate(examples), cholesky_rate(examples)
    return f"| {examples} × {examples}, float64 | {product:.0f} | {cholesky:.0f} |"


class Enough(Exception):
    """Raised by a callback to end the chains."""


@dataclass
class Clock:
    """Collects overlaps, and ends the chains once they have sampled so many seconds."""

    limit: float
    drawing_since: float | None = None
    overlaps: list[np.ndarray] = field(default_factory=list)
    steps: list[np.ndarray] = field(default_factory=list)

    def __call__(self, chunk: Chunk) -> None:
        now = time.perf_counter()
        if chunk.phase == "warmup":
            return
        if self.drawing_since is None:  # the first draws were compiled for
            self.drawing_since = now
            return
        self.overlaps.append(chunk.observables["order_parameter"])
        self.steps.append(chunk.statistics["n_steps"])
        if now - self.drawing_since > self.limit:
            raise Enough


def chain_row(name: str, paths: int, examples: int, chains: int, width: int, seconds: float) -> str:
    """NUTS for some seconds after a short warm-up; the worst element of U_1."""
    settings = chain_settings(chains=chains, warmup=WARMUP[name], draws=ENDLESS, seed=0)
    clock = Clock(seconds)
    with jax.enable_x64(PRECISION[name] == "float64"):
        learning = problem(paths, examples, width).astype(PRECISION[name])
        space = space_of(learning, name, precision=PRECISION[name])
        with suppress(Enough):
            sample(space, NUTS, settings, clock)
    taken = time.perf_counter() - clock.drawing_since
    overlap = np.concatenate(clock.overlaps, axis=1).astype(float)
    steps = np.concatenate(clock.steps, axis=1)
    gradients = steps.sum() / taken
    effective = "– (too few draws)"
    if overlap.shape[1] >= 4:
        rows, columns = np.tril_indices(overlap.shape[-1])
        draws = overlap[..., rows, columns]
        ess = array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean")
        effective = f"{np.min(ess) / taken:.3g}"
    # One gradient: a Cholesky factor, a triangular inverse and its product, beside the assembly.
    cubes = f"{gradients * examples**3 * (1 / 3 + 2) * 1e-9:.3g}" if name != "weights" else "–"
    return (
        f"| {name} | {paths} paths, P = {examples}, N = {width} | {chains} | {steps.mean():.0f} | "
        f"{gradients:.3g} | {cubes} | {effective} |"
    )
