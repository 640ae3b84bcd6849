"""Effective draws per second of the spaces against each other, compilation and warm-up included."""

import time
from dataclasses import dataclass, field

import jax
import numpy as np
from arviz_stats.base import array_stats

from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chunks import Chunk, sample_in_chunks
from sampler.mcmc.hamiltonian import NUTS
from tests.benchmarks.competitors import RACERS

CHAINS = 4
# Enough to end every race by time instead of by count.
ENDLESS = 10_000_000


@dataclass(frozen=True)
class Race:
    """One competitor at one width.

    warmup   steps of each chain that adapt
    seconds  how long it may sample after warm-up and compilation
    """

    competitor: str
    width: int
    precision: str
    warmup: int
    seconds: float


# What is slow gets a short warm-up, in its favour: the whole time counts.
RACES = (
    # In turn, since their ratio is of interest and the load of a machine changes.
    Race("order parameters", 100, "float64", 150, 45.0),
    Race("order parameters", 1_000_000, "float64", 150, 45.0),
    Race("order parameters", 100, "float64", 150, 45.0),
    Race("order parameters", 1_000_000, "float64", 150, 45.0),
    Race("order parameters", 10, "float64", 150, 300.0),
    Race("order parameters", 300, "float64", 150, 300.0),
    Race("weights, path-contracted", 10, "float32", 200, 120.0),
    Race("weights, path-contracted", 300, "float32", 60, 240.0),
    Race("weights, token by token", 10, "float32", 20, 120.0),
)


class Enough(Exception):
    """Raised by a callback to end the chains."""


@dataclass
class Clock:
    """Collects overlaps, and ends the chains once they have sampled long enough."""

    limit: float
    started: float = field(default_factory=time.perf_counter)
    drawing_since: float | None = None
    overlaps: list[np.ndarray] = field(default_factory=list)
    steps: list[np.ndarray] = field(default_factory=list)

    def __call__(self, chunk: Chunk) -> None:
        now = time.perf_counter()
        if chunk.phase == "warmup":
            self.drawing_since = now if chunk.done == chunk.total else None
            return
        self.overlaps.append(chunk.observables["order_parameter"])
        self.steps.append(chunk.statistics["n_steps"])
        if now - self.drawing_since > self.limit:
            raise Enough


@dataclass(frozen=True)
class Result:
    """Cost of the worst element of U_1.

    seconds  wall time from nothing: mode, compilation, warm-up, draws
    """

    race: Race
    draws: int
    leapfrog_steps: float
    effective_draws: float
    seconds: float

    @property
    def rate(self) -> float:
        """Effective draws per second."""
        return self.effective_draws / self.seconds


def run_race(race: Race) -> Result:
    """NUTS, tree depth 10, four chains."""
    settings = ChainSettings(chains=CHAINS, warmup=race.warmup, draws=ENDLESS, seed=0)
    jax.clear_caches()
    with jax.enable_x64(race.precision == "float64"):
        clock = Clock(race.seconds)
        try:
            space = RACERS[race.competitor](race.width, race.precision)
            sample_in_chunks(space, NUTS, settings, clock)
        except Enough:
            pass
        seconds = time.perf_counter() - clock.started
    overlap = np.concatenate(clock.overlaps, axis=1).astype(float)
    rows, columns = np.tril_indices(overlap.shape[-1])
    ess = array_stats.ess(overlap[..., rows, columns], chain_axis=0, draw_axis=1, method="bulk")
    steps = np.concatenate(clock.steps, axis=1)
    return Result(race, overlap.shape[1], float(steps.mean()), float(np.min(ess)), seconds)


def race_table(results: list[Result]) -> str:
    """One row per competitor and width."""
    lines = [
        "| posterior | N | draws | leapfrog steps per draw | ESS | seconds in all | "
        "effective draws per second |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        cells = [
            result.race.competitor,
            str(result.race.width),
            f"{CHAINS} × {result.draws}",
            f"{result.leapfrog_steps:.0f}",
            f"{result.effective_draws:.0f}",
            f"{result.seconds:.0f}",
            f"{result.rate:.3g}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def race_ratios(results: list[Result], token_gradient_seconds: dict[int, float]) -> str:
    """The ratios that matter, against measured rates and against the most favourable estimate.

    The estimate grants one effective draw to two trajectories of 1,023 leapfrog steps of one chain
    at the measured cost of a gradient.
    """
    races = {(r.race.competitor, r.race.width) for r in results}
    rates = {race: rate(results, *race) for race in races}
    lines = []
    for width in (10, 300):
        ours = rates["order parameters", width]
        for name in ("weights, path-contracted", "weights, token by token"):
            if (name, width) in rates:
                ratio = ours / rates[name, width]
                lines.append(f"N = {width}: {ratio:,.0f} × {name}, as measured")
        estimate = 0.5 / (1023 * token_gradient_seconds[width])
        lines.append(
            f"N = {width}: {ours / estimate:,.0f} × weights, token by token, at "
            f"{1e3 * token_gradient_seconds[width]:.3g} ms per gradient ({estimate:.2g} effective "
            "draws per second granted)"
        )
    fast, slow = (rates["order parameters", n] for n in (100, 1_000_000))
    lines.append(f"seconds per effective draw, N = 10⁶ over N = 100: {fast / slow:.2f}")
    return "\n".join(lines)


def rate(results: list[Result], competitor: str, width: int) -> float:
    """Effective draws per second of all races of this competitor at this width together."""
    own = [r for r in results if (r.race.competitor, r.race.width) == (competitor, width)]
    return sum(r.effective_draws for r in own) / sum(r.seconds for r in own)
