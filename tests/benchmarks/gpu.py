"""`python -m tests.benchmarks.gpu`: what an accelerator gives, and whether its numbers are right.

Parts, the most important first; each row is printed as soon as it is measured. Needs no network.
Runs on a processor too, with `--small`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

# Other processes use the same card meanwhile.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base import array_stats

from sampler.mcmc.algorithm import Chunk
from sampler.posterior.importance_sampling import proposal_about
from sampler.storage.result_files import read_draws
from tests import ROOT
from tests.problems import NUTS, chain_settings, problem_of_many_paths, space_of
from tests.reference_data import load_reference, reference_problem
from theory import LearningProblem

# Paths and examples.
Case = tuple[int, int]
HEADS = {4: (2, 2), 16: (4, 4)}
WARMUP = {"order_parameters": 60, "weights": 10}
PRECISION = {"order_parameters": "float64", "weights": "float32"}
# Differences in float64 between two devices: rounding, magnified by the condition number.
AGREEMENT = 1e-8
# Draws that no time suffices for.
ENDLESS = 10_000_000


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is measured.

    seconds  of sampling for each row
    recipe   settings of the whole run
    figure   paths and examples, width, chains and seconds at the size of figure 3 of arXiv
             2405.15926
    """

    width: int = 100
    cases: tuple[Case, ...] = ((4, 100), (4, 600), (16, 100), (16, 600))
    chains: tuple[int, ...] = (1, 16, 256)
    seconds: float = 4.0
    recipe: tuple[str, ...] = ()
    figure: tuple[Case, int, tuple[int, ...], float] = ((16, 600), 512, (4, 64), 60.0)


SMALL = Sizes(
    width=10,
    cases=((4, 100),),
    chains=(1, 2),
    seconds=0.5,
    recipe=("--set", "sampler.draws=400", "--set", "sampler.warmup=40"),
    figure=((4, 100), 12, (2,), 0.5),
)


def problem(case: Case, width: int) -> LearningProblem:
    """The published data where they have this size, random ones elsewhere."""
    if case == (4, 100):
        return reference_problem(load_reference(), width)
    paths, examples = case
    rng = np.random.default_rng(1)
    return problem_of_many_paths(rng, width, examples=examples, heads=HEADS[paths])


# --- correctness, against a processor


def correctness(sizes: Sizes, folder: Path) -> Iterator[str]:
    """Densities, gradients and a whole run."""
    yield from head(
        "Largest relative differences to a processor at 8 points.",
        "| density | precision | problem | value | gradient | verdict |",
    )
    for case in sizes.cases:
        yield energy_row(case, sizes.width)
    for precision, spaces in {"float64": WARMUP, "float32": ("weights",)}.items():
        for space in spaces:
            yield density_row(space, precision, sizes.cases[0], sizes.width)
    yield from head(
        "The same recipe here and on a processor: largest difference of means in its Monte Carlo "
        "standard error.",
        "| recipe | elements | difference |",
    )
    yield run_row("quickstart", folder, sizes.recipe)


def compared(function, points, *trees) -> str:
    """Value and gradient of a function at points, on this device and on a processor."""
    both = jax.jit(jax.vmap(jax.value_and_grad(function), in_axes=(0, *(None,) * len(trees))))
    found = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        there = [jax.device_put(tree, device) for tree in (points, *trees)]
        found.append(jax.device_get(both(*there)))
    (value, gradient), (exact_value, exact_gradient) = found
    of_value = np.max(np.abs(value - exact_value) / np.abs(exact_value))
    of_gradient = np.max(np.abs(gradient - exact_gradient)) / np.max(np.abs(exact_gradient))
    verdict = "agree" if max(of_value, of_gradient) <= AGREEMENT else "DISAGREE"
    return f"{of_value:.1e} | {of_gradient:.1e} | {verdict if value.dtype == 'float64' else '–'}"


def energy_row(case: Case, width: int) -> str:
    """−ln p(y | U_1) around the mode."""
    space = space_of(problem(case, width))
    points = proposal_about(space.mode.gaussian).draw(8, np.random.default_rng(2))

    def energy_at(point, space):
        position = space.unflatten(point)
        return space.energy(position)(space.factors(position)[0])

    return f"| energy | float64 | {text_of(case)} | {compared(energy_at, points, space)} |"


def density_row(name: str, precision: str, case: Case, width: int) -> str:
    """ln p of a whole space at draws from its prior."""
    with jax.enable_x64(precision == "float64"):
        space = space_of(problem(case, width).astype(precision), name, precision=precision)
        keys = jax.random.split(jax.random.key(4), 8)
        points = jnp.stack([space.flatten(space.draw_prior(key)) for key in keys])
        found = compared(lambda point, space: space.potential(point), points, space)
    return f"| {name} | {precision} | {text_of(case)} | {found} |"


def run_row(recipe: str, folder: Path, further: tuple[str, ...]) -> str:
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
        draws = elements(read_draws(out)["posterior"]["order_parameter"].values)
        found.append((draws.mean((0, 1)), draws.std((0, 1)) / np.sqrt(effective(draws))))
    (here, error), (there, other) = found
    worst = float(np.max(np.abs(here - there) / np.hypot(error, other)))
    return f"| {recipe}.toml | {here.size} elements of U₁ | {worst:.2f} |"


# --- rates of matrices and of chains


def times(sizes: Sizes, folder: Path) -> Iterator[str]:
    """Rates of matrices, and of chains in both spaces."""
    yield from head("At most, GFLOP/s.", "| matrix | products | batched Cholesky |")
    for examples in sorted({examples for _, examples in sizes.cases}):
        yield rate_row(examples)
    yield from chains_table(sizes.cases, sizes.width, sizes.chains, sizes.seconds)


def figure(sizes: Sizes, folder: Path) -> Iterator[str]:
    """Chains at the size of figure 3."""
    case, width, chains, seconds = sizes.figure
    yield from chains_table((case,), width, chains, seconds)


def chains_table(
    cases: tuple[Case, ...], width: int, chains: tuple[int, ...], seconds: float
) -> Iterator[str]:
    yield from head(
        "NUTS; GFLOP/s of Cholesky factors, inverses and their products alone.",
        "| space | problem | chains | leapfrog steps per draw | gradients per second | GFLOP/s | "
        "effective draws per second |",
    )
    for space in WARMUP:
        for case in cases:
            for count in chains:
                yield chain_row(space, case, count, width, seconds)


def rate_row(examples: int) -> str:
    """What the device can do at most with matrices of this size: a gigabyte of them at once."""
    limit = 2**26 if jax.default_backend() == "cpu" else 2**30
    batch = max(1, limit // (8 * examples**2))
    matrices = jnp.tile(jnp.eye(examples) + 0.5 / examples, (batch, 1, 1))
    rates = []
    for function, operations in ((lambda a: a @ a, 2), (jnp.linalg.cholesky, 1 / 3)):
        compiled, calls = jax.jit(function), 0
        compiled(matrices).block_until_ready()
        started = time.perf_counter()
        while time.perf_counter() - started < 0.3:
            compiled(matrices).block_until_ready()
            calls += 1
        seconds = (time.perf_counter() - started) / calls
        rates.append(f"{1e-9 * operations * batch * examples**3 / seconds:.0f}")
    return f"| {examples} × {examples}, float64 | {rates[0]} | {rates[1]} |"


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


def chain_row(name: str, case: Case, chains: int, width: int, seconds: float) -> str:
    """NUTS for some seconds after a short warm-up; the worst element of U_1."""
    settings = chain_settings(chains=chains, warmup=WARMUP[name], draws=ENDLESS, seed=0)
    clock, examples = Clock(seconds), case[1]
    with jax.enable_x64(PRECISION[name] == "float64"):
        learning = problem(case, width).astype(PRECISION[name])
        space = space_of(learning, name, precision=PRECISION[name])
        with suppress(Enough):
            NUTS.draw(space, settings, clock)
    taken = time.perf_counter() - clock.drawing_since
    draws = elements(np.concatenate(clock.overlaps, axis=1))
    steps = np.concatenate(clock.steps, axis=1)
    gradients = steps.sum() / taken
    enough = draws.shape[1] >= 4
    rate = f"{np.min(effective(draws)) / taken:.3g}" if enough else "– (too few draws)"
    # One gradient: a Cholesky factor, a triangular inverse and its product, beside the assembly.
    cubes = f"{gradients * examples**3 * (1 / 3 + 2) * 1e-9:.3g}" if name != "weights" else "–"
    return (
        f"| {name} | {text_of(case)}, N = {width} | {chains} | {steps.mean():.0f} | "
        f"{gradients:.3g} | {cubes} | {rate} |"
    )


def text_of(case: Case) -> str:
    return f"{case[0]} paths, P = {case[1]}"


def elements(overlaps: np.ndarray) -> np.ndarray:
    """Entries [chain, draw, entry] of U_1 on the diagonal and below."""
    rows, columns = np.tril_indices(overlaps.shape[-1])
    return overlaps[..., rows, columns].astype(float)


def effective(draws: np.ndarray) -> np.ndarray:
    return array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean")


def head(note: str, columns: str) -> Iterator[str]:
    """The head of a table, and how it is read."""
    yield f"\n{note}\n"
    yield columns
    yield "|" + "---|" * (columns.count("|") - 1)


PARTS = {"correctness": correctness, "times": times, "figure": figure}


def main() -> None:
    """Measure the parts that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--small", action="store_true", help="sizes for a processor")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    jax.config.update("jax_enable_x64", True)
    print(f"{jax.devices()[0].device_kind}, jax {version('jax')}", flush=True)
    sizes = SMALL if arguments.small else Sizes()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.parts or PARTS:
            for line in PARTS[name](sizes, Path(folder)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
