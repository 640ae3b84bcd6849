"""The recipe's own chains against what a user would otherwise write or install, on one posterior.

Every competitor runs in a process of its own and sends draws of U_1 until it has so many effective
ones, or until its time is over, when it is stopped wherever it is. Its clock starts when the data
are there, before anything is compiled.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from multiprocessing.connection import Connection

import jax
import numpy as np
from arviz_stats.base import array_stats
from jaxtyping import Float

from sampler.jobs.plan import Point, plan_run
from sampler.jobs.stages import chain_settings
from sampler.mcmc.algorithm import algorithm_named
from sampler.mcmc.chains import Chunk, Observer, chain_mesh, sample
from sampler.problem import Problem, build_problem
from sampler.recipes.sampler_section import SamplerSection
from tests.benchmarks.competitors import markov_problem, markov_recipe, markov_task, token_by_token
from tests.benchmarks.outsider_samplers import (
    CHAINS,
    Blocks,
    Whitened,
    crank_nicolson,
    first_order_parameter,
    microcanonical,
    numpyro_nuts,
    nuts,
    reparametrised_posterior,
    weight_posterior,
)
from theory import LearningProblem

OURS = "this program, the recipe's defaults"
# Effective draws that end a race, and the fewest of which a rate and an error are given.
ENOUGH, FEWEST = 1000, 50
# Draws that no time suffices for.
ENDLESS = 10_000_000
# Draws of all chains at which effective draws are counted for the first time, and their growth.
FIRST_LOOK, GROWTH = 200, 1.3
AXES = {"chain_axis": 0, "draw_axis": 1}
Draws = Float[np.ndarray, "chain draw element"]


@dataclass(frozen=True)
class Setting:
    """What a competitor is given.

    seconds    that it may use, for its own division between warm-up and draws
    overrides  KEY=VALUE of the recipe, for this program's chains only
    """

    width: int
    seconds: float
    precision: str
    overrides: tuple[str, ...] = ()
    seed: int = 0


def stream_draws(problem: Problem, section: SamplerSection, send: Callable[..., None]) -> None:
    """Draws of U_1 in a named space by a named algorithm, without end where chains make them."""
    algorithm = algorithm_named(section.algorithm, dict(section))
    settings = chain_settings(section)

    def send_overlap(observables) -> None:
        matrices = observables["order_parameter"]
        rows, columns = np.tril_indices(matrices.shape[-1])
        send(matrices[..., rows, columns])

    def of_chunk(chunk: Chunk) -> None:
        if chunk.phase == "draws":
            send_overlap(chunk.observables)

    space = problem.space(section.space, section.precision)
    independent = algorithm.independent_draws(space, settings)
    if independent is None:
        space = algorithm.suited(space)
        sample(space, algorithm, replace(settings, draws=ENDLESS), of_chunk)
    elif independent.points is not None:
        observer = Observer.of(space, settings, chain_mesh(settings.chains))
        send_overlap(observer(independent.points, np.arange(settings.draws, dtype=np.int32)))


def ours(setting: Setting, send: Callable[..., None]) -> None:
    """Draws of U_1 as the recipe says."""
    recipe, task = markov_recipe(setting.width, setting.overrides), markov_task()
    section = plan_run("sample", Point(recipe, None), task).recipe.sampler
    with jax.enable_x64(section.precision == "float64"):
        stream_draws(build_problem(recipe, task), section, send)


def token_by_token_nuts(setting: Setting, send: Callable[..., None]) -> None:
    """NumPyro's NUTS on the model as a user would write it."""
    with jax.enable_x64(setting.precision == "float64"):
        model, arguments = token_by_token(setting.width, setting.precision)
        read = partial(
            first_order_parameter, architecture=markov_problem(setting.width).architecture
        )
        chains = numpyro_nuts(model, arguments, read, setting.seconds, setting.seed)
        for block in chains:
            send(block)


def whitened(
    posterior_of: Callable[[LearningProblem], Whitened],
    sampler: Callable[..., Blocks],
    setting: Setting,
    send: Callable[..., None],
) -> None:
    """One of the samplers in coordinates whose prior is standard normal."""
    with jax.enable_x64(setting.precision == "float64"):
        problem = markov_problem(setting.width).astype(setting.precision)
        posterior = posterior_of(problem)

        def read(position):
            return first_order_parameter(posterior.weights(position), problem.architecture)

        for block in sampler(posterior, read, setting.seconds, setting.seed):
            send(block)


COMPETITORS: dict[str, Callable[[Setting, Callable[..., None]], None]] = {
    OURS: ours,
    "NUTS, weights token by token": token_by_token_nuts,
    "NUTS, reparametrised weights": partial(whitened, reparametrised_posterior, nuts),
    "Crank–Nicolson, reparametrised weights": partial(
        whitened, reparametrised_posterior, crank_nicolson
    ),
    "Crank–Nicolson, weights": partial(whitened, weight_posterior, crank_nicolson),
    "adjusted MCLMC, weights": partial(whitened, weight_posterior, microcanonical),
}


@dataclass(frozen=True)
class Collected:
    """What a process sent, or a competitor reached.

    draws    all of them, perhaps none
    seconds  from the start of its clock to the last look at it
    """

    draws: Draws
    seconds: float

    @cached_property
    def effective_draws(self) -> tuple[float, float]:
        """Bulk and tail ESS of the worst element; 0 where they are not defined."""
        return effective_draws(self.draws)

    @property
    def known(self) -> bool:
        """Whether there are enough effective draws for a rate."""
        return min(self.effective_draws) >= FEWEST

    @property
    def rate(self) -> float:
        """Effective draws per second, everything included; where it is not known, its bound."""
        return (min(self.effective_draws) if self.known else FEWEST) / self.seconds

    @property
    def rate_text(self) -> str:
        """The rate, or that it is below its bound."""
        return f"{'' if self.known else '< '}{self.rate:.2g}"


def effective_draws(draws: Draws) -> tuple[float, float]:
    """Bulk and tail ESS of the worst element, rank-normalised; 0 where they are not defined."""
    if draws.shape[1] < 4 or not np.isfinite(draws).all() or (np.ptp(draws, axis=1) == 0).any():
        return 0.0, 0.0
    bulk = array_stats.ess(draws, method="bulk", **AXES)
    tail = array_stats.ess(draws, method="tail", prob=(0.05, 0.95), **AXES)
    return tuple(float(np.nan_to_num(np.min(values))) for values in (bulk, tail))


def run_competitor(name: str, setting: Setting) -> Collected:
    """Let one run until it has enough effective draws, ends, or its time is over.

    Its process first sends a word when its data are there: then its clock starts.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=compete, args=(name, setting, sender), daemon=True)
    process.start()
    sender.close()
    blocks, total, look = [], 0, FIRST_LOOK
    started = time.perf_counter()
    try:
        receiver.recv()
        started = time.perf_counter()
        while receiver.poll(max(0.0, started + setting.seconds - time.perf_counter())):
            blocks.append(receiver.recv())
            total += np.prod(blocks[-1].shape[:2])
            if total >= look:
                look = GROWTH * total
                if min(effective_draws(np.concatenate(blocks, axis=1))) >= ENOUGH:
                    break
    except EOFError:  # it has ended
        pass
    used = time.perf_counter() - started
    process.terminate()
    process.join()
    blocks.append(np.empty((CHAINS, 0, blocks[0].shape[2] if blocks else 1)))
    return Collected(np.concatenate(blocks, axis=1), used)


def compete(name: str, setting: Setting, sender: Connection) -> None:
    """What the process of a competitor does."""
    markov_task()
    sender.send("ready")
    COMPETITORS[name](setting, sender.send)
    sender.close()


def difference_of_means(one: Draws, other: Draws) -> float:
    """Largest |difference| of the means of an element in combined Monte Carlo standard errors."""
    errors = [array_stats.mcse(draws, method="mean", **AXES) for draws in (one, other)]
    difference = one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))
    return float(np.max(np.abs(difference) / np.hypot(*errors)))


HEADER = (
    "| N | competitor | draws | seconds | bulk ESS | tail ESS | effective draws per second | "
    "times slower | difference of means, MCSE |\n|---|---|---|---|---|---|---|---|---|"
)


def row(competitor: str, width: int, found: Collected, ours: Collected) -> str:
    """One row of the table, beside what this program reached at the same width.

    With fewer than `FEWEST` effective draws the rate is below FEWEST ÷ seconds, no more is said.
    """
    bulk, tail = found.effective_draws
    slower = difference = "–"
    if found is not ours and ours.known:
        slower = f"{'' if found.known else '> '}{ours.rate / found.rate:,.0f}"
        if found.known:
            difference = f"{difference_of_means(found.draws, ours.draws):.1f}"
    cells = [
        str(width),
        competitor,
        f"{found.draws.shape[0]} × {found.draws.shape[1]}",
        f"{found.seconds:.0f}",
        f"{bulk:.0f}",
        f"{tail:.0f}",
        found.rate_text,
        slower,
        difference,
    ]
    return f"| {' | '.join(cells)} |"


def measure_outsiders(
    widths: Sequence[int],
    seconds: float,
    precision: str = "float32",
    overrides: Sequence[str] = (),
    competitors: Sequence[str] = tuple(COMPETITORS),
) -> Iterator[str]:
    """The table, row by row; this program's chains come first at every width.

    seconds    for each outsider at each width
    precision  of the outsiders; JAX's own default is float32
    overrides  KEY=VALUE of the recipe for this program's chains
    """
    yield HEADER
    for width in widths:
        setting = Setting(width, seconds, precision, tuple(overrides))
        reference = run_competitor(OURS, setting)
        yield row(OURS, width, reference, reference)
        for name in competitors:
            if name != OURS:
                yield row(name, width, run_competitor(name, setting), reference)
