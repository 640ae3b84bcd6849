"""Sixteen paths and six hundred examples, from mode to draws; a whole run with 256 paths."""

import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chains import Chunk, sample
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.diagnostics import diagnose
from sampler.mcmc.hamiltonian import NUTS
from tests.benchmarks.gallery import measured
from tests.problems import importance_draws_of, problem_of_many_paths, space_of

HEADS, EXAMPLES = (4, 4), 600
WIDTHS = (100, 10)
CHAINS, WARMUP, DRAWS = 4, 40, 100
EVALUATIONS = 2000

RECIPE = """
name = "paths_256"
task = { kind = "arrays", path = "data.npz" }
network = { widths = 1000 }
posterior = { temperature = 0.25 }
theory = { starts = 1 }
"""


def measure_many_paths():
    """Lines of a table: chains at each width, then what importance sampling says of itself."""
    yield (
        "| N | coordinates | seconds to the mode | leapfrog steps per draw, warm-up | draws | "
        "divergences | worst ESS of 400 draws | worst R-hat | seconds per draw of 4 chains |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for width in WIDTHS:
        with jax.enable_x64(True):
            yield chains_row(width)
    yield "\n| N | importance efficiency | Pareto k | trusted |"
    yield "|---|---|---|---|"
    for width in (1000, *WIDTHS):
        with jax.enable_x64(True):
            problem = problem_of_many_paths(
                np.random.default_rng(0), width, examples=EXAMPLES, heads=HEADS
            )
            draws = importance_draws_of(space_of(problem), EVALUATIONS, 0)
            yield (
                f"| {width} | {draws.efficiency:.2g} | {draws.pareto_k:.2f} | "
                f"{'yes' if draws.trusted else 'no'} |"
            )
    yield "\n| paths | P | N | exit code of `run` | minutes | GiB |"
    yield "|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        code, seconds, peak = measured(recipe_of_256_paths(Path(folder)), Path(folder) / "run")
    yield f"| 256 | 500 | 1000 | {code} | {seconds / 60:.1f} | {peak:.1f} |"


def recipe_of_256_paths(folder: Path) -> Path:
    """The recipe of 500 examples whose 64 channels are mostly shared by 256 paths."""
    rng = np.random.default_rng(0)
    examples, tests, channels = 500, 100, 64
    shared = rng.standard_normal((examples + tests, 1, channels))
    attended = shared + 0.5 * rng.standard_normal((examples + tests, 256, channels))
    labels = np.sign(attended.mean(axis=1) @ rng.standard_normal(channels))
    np.savez(
        folder / "data.npz",
        attended_train=attended[:examples],
        labels_train=labels[:examples],
        attended_test=attended[examples:],
        labels_test=labels[examples:],
        heads=np.array([16, 16]),
    )
    recipe = folder / "paths_256.toml"
    recipe.write_text(RECIPE)
    return recipe


def chains_row(width: int) -> str:
    """Four short chains from the mode."""
    problem = problem_of_many_paths(np.random.default_rng(0), width, examples=EXAMPLES, heads=HEADS)
    started = time.perf_counter()
    space = space_of(problem)
    to_mode = time.perf_counter() - started
    collected = DrawCollector()
    first_draws: list[float] = []

    def on_chunk(chunk: Chunk) -> None:
        collected(chunk)
        if chunk.phase == "draws":
            first_draws.append(chunk.seconds)

    settings = ChainSettings(chains=CHAINS, warmup=WARMUP, draws=DRAWS, seed=0)
    sample(space, NUTS, settings, on_chunk)
    names = [name for name in collected.draws if "order_parameter" in name]
    diagnosis = diagnose(
        {name: collected.draws[name] for name in names}, collected.statistics, NUTS
    )
    worst = min(min(q.ess_bulk, q.ess_tail) for q in diagnosis.quantities.values())
    rhat = max(q.r_hat for q in diagnosis.quantities.values())
    return (
        f"| {width} | {problem.architecture.coordinate_count} | {to_mode:.0f} | "
        f"{collected.warmup_statistics['n_steps'].mean():.1f} | "
        f"{collected.statistics['n_steps'].mean():.1f} | {diagnosis.numbers['divergences']} | "
        f"{worst:.0f} | "
        f"{rhat:.3f} | {sum(first_draws) / DRAWS:.2f} |"
    )
