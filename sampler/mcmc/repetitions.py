"""Repetitions of tempered particles, made one after the other in resumable chunks.

A repetition is a chain and a particle one of its draws; its course through the temperatures, each
of which is a chunk, is its warm-up. With the first of those that begin at the modes there is one
that begins from the prior alone, whose evidence is held against theirs. A snapshot holds of the
repetition in work all that its next temperature follows from.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sampler.mcmc.algorithm import ChainSettings, Chunk, OnChunk, Snapshot, SnapshotMismatch
from sampler.mcmc.chains import Observer
from sampler.mcmc.tempered_smc import Course, Particles, begin, next_temperature
from sampler.posterior.initial_distribution import InitialDistribution, law_at_modes
from sampler.posterior.space import Space

# The distributions in which particles begin: the mixture at all modes, and the prior alone.
MODES, PRIOR = "modes", "prior"
NUMBER_OF = {MODES: 0, PRIOR: 1}
# Repetitions from the prior alone that those from all modes are held against.
FROM_PRIOR = 4
PILOT = 2**20  # no repetition has this number
# Parts of a snapshot: the distribution at all modes, courses of pilots, what is known of
# the repetitions from the prior, and the one in work.
PARTICLES = "particles"
START, COURSES, OF_PRIOR, WORK = "start", "courses", "of_prior", "work"


@dataclass
class Repetitions:
    """Makes the repetitions of one posterior.

    target_acceptance
              that the steps of pilots adapt to
    law       the mixture at all modes, in which particles begin
    done      repetitions from it that are finished
    courses   of the pilots that are finished, by the name of their distribution
    of_prior  log evidence and lost points of finished repetitions from the prior
    work      the particles in work
    """

    target_acceptance: float
    settings: ChainSettings
    on_chunk: OnChunk
    law: InitialDistribution
    done: int = 0
    courses: dict[str, Course] = field(default_factory=dict)
    of_prior: list[tuple[float, int]] = field(default_factory=list)
    work: Particles | None = None

    @property
    def end(self) -> int:
        """Repetitions at which it is next asked whether there are enough."""
        return self.settings.end("draws", self.done, self.settings.chains)

    @property
    def next(self) -> tuple[str, int]:
        """Law and number of the repetition in work: pilots first."""
        laws = (MODES, PRIOR) if self.law.modes else (MODES,)
        for law in laws:
            if law not in self.courses:
                return law, PILOT
        if PRIOR in laws and len(self.of_prior) < min(FROM_PRIOR, self.done + 1):
            return PRIOR, len(self.of_prior)
        return MODES, self.done

    def make(self) -> None:
        """Make repetitions until there are enough; the unfinished one first."""
        observe = Observer.of(self.law.space, replace(self.settings, chains=1))
        while self.done < self.end:
            law, number = self.next
            if self.work is None or not self.work.finished:
                self.lead(law, number)
            if self.work.finished:
                particles, self.work = self.work, None
                if number == PILOT:
                    self.courses[law] = particles.path
                elif law == PRIOR:
                    self.of_prior.append((particles.log_evidence, particles.lost))
                else:
                    self.finish(particles, observe)

    def lead(self, law: str, number: int) -> None:
        """Begin the particles in work, or lead them to their next temperature."""
        started, course = time.perf_counter(), self.courses.get(law)
        start, seed = self.law, (self.settings.seed, NUMBER_OF[law], number)
        start = start.prior_alone if law == PRIOR else start
        if self.work is None:
            self.work = begin(start, self.settings.draws, seed)
        else:
            self.work = next_temperature(self.work, start, self.target_acceptance, seed, course)
        seconds, happened = time.perf_counter() - started, self.work.latest
        at, first, of_all = self.work.temperatures, None, ""
        if course is None:  # how many temperatures a pilot has is unknown
            stage, total = f"pilot from the {law}", None
        else:
            count, each = max(self.end, number + 1), len(course["power"])
            count = min(count, FROM_PRIOR) if law == PRIOR else count
            stage, of_all = f"particles from the {law}", f", {number + 1} of {count}"
            first = number if law == MODES and happened else None
            at, total = at + number * each, count * each
        place = f"{stage}{of_all}, at γ = {self.work.power:.3g}"
        self.hand_on_warmup(happened, seconds, (stage, at, total), place, first)

    def hand_on_warmup(
        self,
        statistics: Mapping[str, np.ndarray],
        seconds: float,
        shown: tuple[str, int, int | None],
        at: str,
        first: int | None = None,
    ) -> None:
        """Hand on events other than draws: the search for modes, or the step at one temperature."""
        total = max(self.end, self.done + 1)
        about = {"seconds": seconds, "shown": shown, "at": at, "first": first}
        self.on_chunk(
            Chunk("warmup", self.done, total, statistics, make_snapshot=self.snapshot, **about)
        )

    def finish(self, particles: Particles, observe: Observer) -> None:
        """Hand on the draws of a repetition that begins at the modes."""
        started, number, points = time.perf_counter(), self.done, particles.points[None]
        begins = number * points.shape[1]
        observed = observe(points, begins, begins)._asdict()
        of_prior = self.of_prior[number] if number < len(self.of_prior) else None
        statistics = statistics_of(particles, of_prior, self.law)
        self.done += 1
        temperatures, count = len(self.courses[MODES]["power"]), max(self.end, self.done)
        shown = f"particles from the {MODES}", self.done * temperatures, count * temperatures
        made = {**observed, "points": points, "first": number, "shown": shown}
        seconds = time.perf_counter() - started
        chunk = Chunk("draws", self.done, count, statistics, seconds=seconds, **made)
        self.on_chunk(replace(chunk, make_snapshot=self.snapshot))

    def snapshot(self) -> Snapshot:
        """All that the next temperature follows from."""
        tree = {
            START: self.law.arrays,
            COURSES: self.courses,
            OF_PRIOR: np.array(self.of_prior, float).reshape(-1, 2),
            WORK: {} if self.work is None else vars(self.work),
        }
        counts = {MODES: self.done, PRIOR: len(self.of_prior)}
        about = {"repetitions": {law: count for law, count in counts.items() if count}}
        return Snapshot(PARTICLES, self.done, flat(tree), about)


def draw_repetitions(
    space: Space,
    target_acceptance: float,
    settings: ChainSettings,
    on_chunk: OnChunk,
    resume: Snapshot | None = None,
) -> None:
    """Make repetitions; every temperature, and the draws of every repetition, go to `on_chunk`.

    They continue from a snapshot; where there is none the modes are looked for first.
    """
    if resume is not None:
        state = restored(space, resume)
        Repetitions(target_acceptance, settings, on_chunk, **state, done=resume.done).make()
        return
    started, (law, gradients) = time.perf_counter(), law_at_modes(space, settings.seed)
    begun = Repetitions(target_acceptance, settings, on_chunk, law)
    happened = {"n_steps": np.array([[gradients]])}
    begun.hand_on_warmup(happened, time.perf_counter() - started, (MODES, 1, 1), MODES)
    begun.make()


def restored(space: Space, snapshot: Snapshot) -> dict[str, Any]:
    """Law, courses, repetitions from the prior and particles in work of a snapshot."""
    if snapshot.phase != PARTICLES:
        raise SnapshotMismatch(f"{snapshot.phase} of chains, where these are particles")
    tree = nested(snapshot.arrays)
    try:
        return {
            "law": InitialDistribution.of(space, tree[START]),
            "courses": tree.get(COURSES, {}),
            "of_prior": [(float(log), int(lost)) for log, lost in tree[OF_PRIOR]],
            "work": particles_of(tree[WORK]) if WORK in tree else None,
        }
    except (KeyError, TypeError, ValueError) as problem:
        raise SnapshotMismatch(str(problem)) from None


def particles_of(values: Mapping[str, Any]) -> Particles:
    """Particles in a snapshot."""
    numbers = {name: values[name].item() for name in ("log_evidence", "lost")}
    return Particles(**{**values, **numbers})


def flat(tree: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays in mappings within mappings, by keys `part/name`."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            arrays |= {f"{name}/{key}": values for key, values in flat(value).items()}
        else:
            arrays[name] = np.asarray(value)
    return arrays


def nested(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The mappings whose arrays `flat` gives; those without arrays are left out."""
    tree: dict[str, Any] = {}
    for key, values in arrays.items():
        *parts, name = key.split("/")
        place = tree
        for part in parts:
            place = place.setdefault(part, {})
        place[name] = values
    return tree


def statistics_of(
    particles: Particles, of_prior: tuple[float, int] | None, law: InitialDistribution
) -> dict[str, np.ndarray]:
    """Statistics of the draws of one repetition, name → [1, particle].

    of_prior  log evidence and lost points of that from the prior alone; None where there is none
    law       in which this one begins
    """
    rates = particles.path["acceptance_rate"]
    log_of_prior, lost_of_prior = (np.nan, 0) if of_prior is None else of_prior
    of_all = {
        "temperatures": len(rates),
        "lowest_acceptance": min(rates),
        "log_evidence": particles.log_evidence,
        "log_evidence_prior": log_of_prior,
        "lost": particles.lost + lost_of_prior,
    }
    statistics = {
        "lp": particles.log_p,
        "acceptance_rate": particles.acceptance,
        "ancestor": particles.ancestor,
        "mode": law.nearest_mode(particles.points),
    }
    ones = np.ones(len(particles.points))
    statistics |= {name: np.array(value) * ones for name, value in of_all.items()}
    return {name: np.asarray(values)[None] for name, values in statistics.items()}
