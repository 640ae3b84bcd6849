"""Effective draws for a second of processor, of the default sampler and of other libraries'.

    python -m runs.benchmarks.race [--problems quickstart …] [--samplers nuts …] [--sizes 400 4000]

Every library samples the same exact posterior of the order parameters, through the NumPyro model or
the density of a flat vector that this package hands out. A row is a process of its own: from its
first import to U₁ of every draw, warm-up and compilation included. Each is run twice, first with
an empty cache of compiled programs and then with what the first one left there. How many draws it
makes follows from a pilot run, whose effective draws of the worst entry of U₁ are known.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from runs.benchmarks.latency import timed

if TYPE_CHECKING:
    from sampler import Recipe

RUNS = Path(__file__).parents[1]
CHAINS = 4
# A pilot is not long enough to know its efficiency better than this.
MARGIN = 1.1
# A row that takes longer is given up, in seconds.
LONGEST = 2400


@dataclass(frozen=True)
class Case:
    """A posterior: a recipe, what is changed in it, and the space whose coordinates are sampled.

    pilot  draws of each chain from which the efficiency of a sampler is estimated
    """

    recipe: str
    changes: dict[str, object] = field(default_factory=dict)
    space: str = "order_parameters"
    pilot: int = 400


PROBLEMS = {
    "quickstart": Case("quickstart.toml"),
    "four_paths": Case("markov_published.toml", {"network.widths": 10}),
    "sixteen_paths": Case(
        "one_shot.toml", {"network.widths": 100, "posterior.temperature": 0.25}, pilot=60
    ),
    "weights": Case("weights.toml", space="weights"),
}
# What samples thousands of weights: a dense metric, or calls from outside, would take too long.
OF_WEIGHTS = ("default", "package_nuts", "numpyro_nuts")


# --- samplers: a problem and numbers of draws → U_1 [chain, draw, path, path]


def recipe_of(problem: str) -> "Recipe":
    """Data and network of a recipe, without what it says of sampling."""
    from sampler import Recipe

    case = PROBLEMS[problem]
    recipe = Recipe.load(RUNS / case.recipe, case.changes)
    sections = ("task", "attention", "network", "posterior")
    return Recipe(**{name: getattr(recipe, name) for name in sections})


def default(problem: str, draws: int, algorithm: str = "auto"):
    """The package, with its own choice of space, algorithm and warm-up."""
    import sampler

    case = PROBLEMS[problem]
    settings = {"draws": draws, "algorithm": algorithm, "chains": CHAINS, "progress": False}
    if case.space != "order_parameters":
        settings["space"] = case.space
    tree = sampler.sample(recipe_of(problem), **settings)
    return tree["posterior"]["order_parameter"].values


def package_nuts(problem: str, draws: int):
    """The package, asked for NumPyro's NUTS."""
    return default(problem, draws, "nuts")


def numpyro_nuts(problem: str, draws: int):
    """NumPyro's `MCMC(NUTS(model))` on the exported model, with its defaults."""
    import jax
    from numpyro import enable_x64
    from numpyro.infer import MCMC, NUTS

    enable_x64()
    model, kwargs = recipe_of(problem).numpyro_model(PROBLEMS[problem].space)
    chains = {"num_chains": CHAINS, "chain_method": "sequential", "progress_bar": False}
    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=draws, **chains)
    mcmc.run(jax.random.PRNGKey(0), **kwargs)
    return mcmc.get_samples(group_by_chain=True)["order_parameter"]


def flat_density(problem: str):
    """The exported density, and its value and slope as outsiders written in Rust or C++ call it."""
    import jax
    import numpy as np
    from numpyro import enable_x64

    enable_x64()
    flat = recipe_of(problem).log_density(PROBLEMS[problem].space)
    slope = jax.jit(jax.value_and_grad(flat))

    def value_and_slope(point):
        value, gradient = slope(point)
        return float(value), np.asarray(gradient)

    starts = np.asarray(jax.vmap(flat.start)(jax.random.split(jax.random.key(0), CHAINS)))
    return flat, value_and_slope, starts


def overlaps(flat, points):
    """U_1 at points [chain, draw, coordinate], by one program."""
    import jax

    space = flat.posterior

    def of_point(point):
        return space.given(space.unflatten(point), None).order_parameters["order_parameter"]

    return jax.jit(lambda points: jax.lax.map(jax.vmap(of_point), points))(points)


def blackjax_nuts(problem: str, draws: int):
    """BlackJAX's NUTS, after its window adaptation of a dense mass matrix."""
    import blackjax
    import jax

    flat, _, starts = flat_density(problem)
    adapt = blackjax.window_adaptation(blackjax.nuts, flat, is_mass_matrix_diagonal=False)

    def chain(arguments):
        start, key = arguments
        key, own = jax.random.split(key)
        (state, tuned), _ = adapt.run(own, start, 500)
        kernel = blackjax.nuts(flat, **tuned)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, draws))[1]

    keys = jax.random.split(jax.random.key(1), CHAINS)
    # One chain after the other: side by side each waits for the longest trajectory of all.
    return overlaps(flat, jax.jit(lambda *of_chains: jax.lax.map(chain, of_chains))(starts, keys))


def nutpie_diagonal(problem: str, draws: int, **settings):
    """nutpie's NUTS with a diagonal metric, which it adapts from gradients."""
    import numpy as np
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    flat, value_and_slope, starts = flat_density(problem)
    model = from_pyfunc(
        flat.dimension,
        lambda: value_and_slope,
        lambda *seeds: lambda point: {"point": np.array(point)},
        [np.dtype("float64")],
        [(flat.dimension,)],
        ["point"],
        make_initial_point_fn=lambda seed: starts[seed % CHAINS],
    )
    plain = {"chains": CHAINS, "cores": 1, "seed": 1, "progress_bar": False, "save_warmup": False}
    found = nutpie.sample(model, draws=draws, **plain, **settings)
    return overlaps(flat, found["posterior"]["point"].values)


def nutpie_low_rank(problem: str, draws: int):
    """nutpie's NUTS with its low-rank metric, which needs a longer warm-up."""
    return nutpie_diagonal(problem, draws, low_rank_modified_mass_matrix=True, tune=800)


def walnutpie(problem: str, draws: int):
    """The NUTS of walnutpie, whose steps vary along a trajectory; it ends its warm-up itself."""
    import numpy as np
    from walnutpie import walnuts_pyfunc

    flat, value_and_slope, starts = flat_density(problem)
    lengths = {"min_sampling_iter": draws, "max_sampling_iter": draws}
    chains = walnuts_pyfunc(value_and_slope, inits=starts, num_chains=CHAINS, seed=1, **lengths)
    return overlaps(flat, np.stack([np.asarray(chain) for chain in chains]))


SAMPLERS: dict[str, tuple[Callable, str]] = {
    "default": (default, "attention-posterior"),
    "package_nuts": (package_nuts, "attention-posterior"),
    "numpyro_nuts": (numpyro_nuts, "numpyro"),
    "blackjax_nuts": (blackjax_nuts, "blackjax"),
    "nutpie_diagonal": (nutpie_diagonal, "nutpie"),
    "nutpie_low_rank": (nutpie_low_rank, "nutpie"),
    "walnutpie": (walnutpie, "walnutpie"),
}


# --- one row, in a process of its own


@dataclass(frozen=True)
class Row:
    """What a process reports.

    effective        bulk effective draws of the worst entry of U_1
    mean, error      of the first entry of U_1, and its Monte Carlo error
    seconds          wall time of the process
    processor        seconds of all its threads
    """

    draws: int
    effective: float
    mean: float
    error: float
    seconds: float = 0.0
    processor: float = 0.0


def report(problem: str, name: str, draws: int, out: Path) -> None:
    """Draw, and write what the draws are worth."""
    import numpy as np
    from arviz_stats.base import array_stats

    u = np.asarray(SAMPLERS[name][0](problem, draws))
    rows, columns = np.tril_indices(u.shape[-1])
    entries, axes = u[..., rows, columns].astype(float), {"chain_axis": 0, "draw_axis": 1}
    effective = array_stats.ess(entries, method="bulk", **axes)
    error = array_stats.mcse(entries[..., 0], method="mean", **axes)
    found = [u.shape[1], np.min(effective), entries[..., 0].mean(), error]
    out.write_text(json.dumps([float(number) for number in found]))


def measure(problem: str, name: str, draws: int, cache: Path) -> Row | None:
    """Run one process; None where it fails or takes too long."""
    places = {"ATTENTION_POSTERIOR_CACHE": str(cache), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    settings = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        words = ["-m", "runs.benchmarks.race", "--one", problem, name, str(draws), str(out)]
        environment = {**os.environ, **places, **settings}
        try:
            done, *seconds = timed(
                [sys.executable, *words], env=environment, text=True, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr, flush=True)
            return None
        count, *numbers = json.loads(out.read_text())
    return Row(int(count), *numbers, *seconds)


def race(problem: str, name: str, sizes: list[int]) -> Iterator[str]:
    """Rows of one sampler on one problem: a pilot, then each size cold and warm."""
    with tempfile.TemporaryDirectory() as folder:
        pilot = measure(problem, name, PROBLEMS[problem].pilot, Path(folder) / "pilot")
        if pilot is None:
            yield f"| {problem} | {name} | no result within {LONGEST} s | | | | | | |"
            return
        for size in sizes:
            share = pilot.effective / (CHAINS * pilot.draws)
            draws = max(50, int(MARGIN * size / share / CHAINS))
            for state in ("cold", "warm"):
                row = measure(problem, name, draws, Path(folder) / str(size))
                if row is None:
                    yield f"| {problem} | {name} | {size} | {state} | > {LONGEST} s | | | | |"
                    break
                yield (
                    f"| {problem} | {name} | {size} | {state} | {CHAINS} × {row.draws} "
                    f"| {row.effective:.0f} | {row.processor:.1f} | {row.seconds:.1f} "
                    f"| {row.effective / row.processor:.1f} | {row.mean:.4g} ± {row.error:.2g} |"
                )


def versions() -> str:
    """Versions of all libraries that take part."""
    names = ["jax", *dict.fromkeys(library for _, library in SAMPLERS.values())]
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} is not installed")
    return ", ".join(found)


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m runs.benchmarks.race", description=__doc__)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[400, 4000], metavar="DRAWS")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        problem, name, draws, out = arguments.one
        report(problem, name, int(draws), Path(out))
        return
    print(f"{time.strftime('%Y-%m-%d')}, {versions()}; load {os.getloadavg()[0]:.1f}\n")
    print(
        "| problem | sampler | effective draws aimed at | programs | draws | effective draws "
        "| processor seconds | seconds | effective draws a processor second | U₁[0,0] |"
    )
    print("|" + "---|" * 10, flush=True)
    for problem in arguments.problems:
        weights = PROBLEMS[problem].space == "weights"
        for name in (n for n in arguments.samplers if not weights or n in OF_WEIGHTS):
            for line in race(problem, name, arguments.sizes):
                print(line, flush=True)


if __name__ == "__main__":
    main()
