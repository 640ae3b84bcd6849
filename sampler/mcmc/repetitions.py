"""Repetitions of tempered particles: how they are stored, what draws they are, and when to end.

A repetition is a chain of `draws.nc` and a particle one of its draws; its course through the
temperatures is its warm-up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sampler.mcmc.chains import Chunk
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.diagnostics import Diagnostics
from sampler.mcmc.stopping import CHECKED_ESS
from sampler.mcmc.tempered import LARGEST_ERROR, Evidences
from sampler.mcmc.tempered_smc import Particles, Stage
from sampler.posterior.initial_distribution import InitialDistribution

# Repetitions up to which more are made until they can be trusted.
MOST_REPETITIONS = 32
REASONS_TO_END = {
    "draws": "as many as were asked for",
    "trusted": "their draws can be trusted",
    "failed": "more of them would not change what fails",
    "repetitions": f"no more than {MOST_REPETITIONS} are added until they can be trusted",
    "max_minutes": "`max_minutes` are over",
}
OF_STAGE = tuple(field.name for field in fields(Stage))


@dataclass(frozen=True)
class Repetition:
    """A repetition or a pilot, finished or on its way, and the seconds that it took so far."""

    particles: Particles
    seconds: float

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All that it is, name → array."""
        values = vars(self.particles) | {"seconds": self.seconds}
        path, course = values.pop("path"), values.pop("course")
        arrays = {name: np.asarray(value) for name, value in values.items()}
        arrays |= {f"path/{name}": np.array(numbers) for name, numbers in path.items()}
        if course:
            stages = {n: np.stack([getattr(stage, n) for stage in course]) for n in OF_STAGE}
            arrays |= {f"course/{name}": values for name, values in stages.items()}
        return arrays

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Repetition":
        """The repetition whose `arrays` these are."""
        parts: dict[str, dict[str, Any]] = {"": {}, "path": {}, "course": {}}
        for key, values in arrays.items():
            part, _, name = key.rpartition("/")
            parts[part][name] = values if values.ndim else values.item()
        path = {name: tuple(numbers.tolist()) for name, numbers in parts["path"].items()}
        stages = zip(*(parts["course"].get(name, ()) for name in OF_STAGE), strict=True)
        course = tuple(
            Stage(float(power), float(step_size), int(moves), centre, scale)
            for power, step_size, moves, centre, scale in stages
        )
        seconds = parts[""].pop("seconds")
        return cls(Particles(**parts[""], path=path, course=course), seconds)


def path_of(repetitions: Sequence[Repetition]) -> dict[str, np.ndarray]:
    """Course of every repetition, name → [repetition, temperature]; NaN after λ = 1."""
    paths = [repetition.particles.path for repetition in repetitions]
    longest = max(len(path["power"]) for path in paths)
    table = {}
    for name in paths[0]:
        empty = 0.0 if name in ("n_steps", "moves") else np.nan
        table[name] = np.full((len(paths), longest), empty)
        for row, path in zip(table[name], paths, strict=True):
            row[: len(path[name])] = path[name]
    return table


def statistics_of(
    repetitions: Sequence[Repetition],
    from_prior: Sequence[Repetition],
    law: InitialDistribution,
) -> dict[str, np.ndarray]:
    """Statistics of the draws, name → [repetition, particle].

    from_prior  repetitions that begin from the prior alone
    law         in which the others begin
    """
    particles = [repetition.particles for repetition in repetitions]
    acceptances = [each.path["acceptance_rate"] for each in particles]
    prior = np.full(len(particles), np.nan)
    logs = [repetition.particles.log_evidence for repetition in from_prior[: len(prior)]]
    prior[: len(logs)] = logs
    lost = np.array([each.lost for each in particles])
    others = [repetition.particles.lost for repetition in from_prior[: len(lost)]]
    lost[: len(others)] += np.array(others, int)
    of_repetitions = {
        "temperatures": [len(rates) for rates in acceptances],
        "lowest_acceptance": [min(rates) for rates in acceptances],
        "log_evidence": [each.log_evidence for each in particles],
        "log_evidence_prior": prior,
        "lost": lost,
    }
    statistics = {
        "lp": np.stack([each.log_p for each in particles]),
        "acceptance_rate": np.stack([each.acceptance for each in particles]),
        "ancestor": np.stack([each.ancestor for each in particles]),
        "mode": np.stack([law.nearest_mode(each.points) for each in particles]),
    }
    ones = np.ones(statistics["lp"].shape)
    columns = {name: np.array(values)[:, None] * ones for name, values in of_repetitions.items()}
    return statistics | columns


def collect_repetitions(
    collected: DrawCollector,
    repetitions: Sequence[Repetition],
    statistics: Mapping[str, np.ndarray],
    observed: Sequence[Mapping[str, np.ndarray]],
    seconds: tuple[float, float],
) -> None:
    """Hand the path through the temperatures on as warm-up, and particles as draws.

    observed  what was read off the particles of each repetition
    seconds   that both took
    """
    path, count = path_of(repetitions), statistics["lp"].shape[1]
    steps = path["power"].shape[1]
    collected(Chunk("warmup", steps, steps, path, seconds=seconds[0]))
    drawn = {name: np.stack([each[name] for each in observed]) for name in observed[0]}
    collected(Chunk("draws", count, count, statistics, drawn, seconds[1]))


def reason_to_end(verdict: Diagnostics, error: float, count: int) -> str | None:
    """Reason why no more repetitions are made; None: they are.

    verdict  the diagnostics of all draws so far
    error    of the log evidence
    count    repetitions so far
    """
    if verdict.passed:
        return "trusted"
    smallest = min((min(q.ess_bulk, q.ess_tail) for q in verdict.quantities.values()), default=0.0)
    if smallest >= CHECKED_ESS and error <= LARGEST_ERROR:
        return "failed"
    return "repetitions" if count >= MOST_REPETITIONS else None


def explain_repetitions(count: int, ended: str, logs: Evidences) -> str:
    """One line: the evidence, of how many repetitions, and why no more were made."""
    evidence = f"ln p(y) = {logs.value:.3f} ± {logs.error:.3f}"
    text = f"{count} repetitions, {REASONS_TO_END[ended]}: {evidence}"
    if logs.prior is None:
        return text
    return f"{text}; from the prior alone {logs.prior:.3f} ± {logs.prior_error:.3f}"
