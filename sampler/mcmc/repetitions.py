"""Repetitions of tempered particles, made one after the other in chunks that can go on.

A repetition is a chain and a particle one of its draws; its course through the temperatures, each
of which is a chunk, is its warm-up. Beside the first of those that begin at the modes there is one
that begins from the prior alone, whose evidence is held against theirs. A snapshot holds of the
repetition in work all that its next temperature follows from.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from sampler.mcmc.algorithm import ChainSettings, Chunk, OnChunk, Snapshot, SnapshotMismatch
from sampler.mcmc.chains import Observer
from sampler.mcmc.tempered_smc import Course, Particles, Stage, begin, next_temperature
from sampler.posterior.initial_distribution import (
    InitialDistribution,
    descend_from_far,
    mixture_at_modes,
)
from sampler.posterior.space import Space

# The laws in which particles begin: the mixture at all modes, and the prior alone.
MODES, PRIOR = "modes", "prior"
NUMBER_OF = {MODES: 0, PRIOR: 1}
# Repetitions from the prior alone that those from all modes are held against.
FROM_PRIOR = 4
PILOT = 2**20  # no repetition has this number
# What a snapshot is of, and its parts: the law at all modes, pilots, the repetition in work, and
# the evidence and lost points of those from the prior.
PARTICLES = "particles"
START, WORK, OF_PRIOR, LOGS_AND_LOST = "start", "work", "of_prior", "logs_and_lost"
# Of what happens at a temperature.
COUNTED = ("n_steps", "moves")
OF_STAGE = tuple(field.name for field in fields(Stage))


@dataclass
class Repetitions:
    """Makes the repetitions of one posterior.

    target_acceptance
              that the steps of pilots adapt to
    law       the mixture at all modes, in which particles begin
    done      repetitions from it that are finished
    courses   of the pilots that are finished, by the name of their law
    of_prior  log evidence and lost points of finished repetitions from the prior
    work      the particles in work
    """

    space: Space
    target_acceptance: float
    settings: ChainSettings
    on_chunk: OnChunk
    law: InitialDistribution
    done: int = 0
    courses: dict[str, Course] = field(default_factory=dict)
    of_prior: list[tuple[float, int]] = field(default_factory=list)
    work: Particles | None = None

    # --- from the beginning, or from a snapshot

    @classmethod
    def begun(cls, *arguments, resume: Snapshot | None) -> "Repetitions":
        """Those of a snapshot; else the modes are looked for first."""
        if resume is not None:
            return cls.restored(*arguments, resume=resume)
        started, (space, _, settings, _) = time.perf_counter(), arguments
        descended = descend_from_far(space, settings.seed)
        made = cls(*arguments, mixture_at_modes(space, descended, settings.seed))
        gradients = {"n_steps": np.array([[descended.gradients]])}
        made.hand_on(gradients, time.perf_counter() - started, "modes", 1, 1)
        return made

    @classmethod
    def restored(cls, *arguments, resume: Snapshot) -> "Repetitions":
        if resume.phase != PARTICLES:
            raise SnapshotMismatch(f"{resume.phase} of chains, where these are particles")
        parts: dict[str, dict[str, np.ndarray]] = {MODES: {}, PRIOR: {}, WORK: {}}
        for key, values in resume.arrays.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = values
        try:
            law = InitialDistribution.of(arguments[0], parts[START])
            courses = {name: course_of(parts[name]) for name in NUMBER_OF if parts[name]}
            of_prior = [(float(log), int(lost)) for log, lost in parts[OF_PRIOR][LOGS_AND_LOST]]
            work = particles_of(parts[WORK]) if parts[WORK] else None
        except (KeyError, TypeError, ValueError) as problem:
            raise SnapshotMismatch(str(problem)) from None
        return cls(*arguments, law, resume.done, courses, of_prior, work)

    def snapshot(self) -> Snapshot:
        """All that the next temperature follows from."""
        parts = {law: arrays_of_course(course) for law, course in self.courses.items()}
        of_prior = np.array(self.of_prior, float).reshape(-1, 2)
        parts |= {START: self.law.arrays, OF_PRIOR: {LOGS_AND_LOST: of_prior}}
        if self.work is not None:
            parts[WORK] = arrays_of(self.work)
        arrays = {f"{part}/{name}": v for part, of in parts.items() for name, v in of.items()}
        counts = {MODES: self.done, PRIOR: len(self.of_prior)}
        about = {"repetitions": {law: count for law, count in counts.items() if count}}
        return Snapshot(PARTICLES, self.done, arrays, about)

    # --- made

    def make(self) -> None:
        """Make repetitions until there are enough; what is in work goes on first."""
        observe = Observer.of(self.space, replace(self.settings, chains=1))
        while self.wanted:
            law, number = self.next
            particles = self.led(law, number)
            if particles is None:
                return
            self.work = None
            if number == PILOT:
                self.courses[law] = particles.course
            elif law == PRIOR:
                self.of_prior.append((particles.log_evidence, particles.lost))
            else:
                self.finish(particles, observe)

    @property
    def end(self) -> int:
        """Repetitions at which it is next asked whether there are enough."""
        return self.settings.end("draws", self.done, self.settings.chains)

    @property
    def wanted(self) -> bool:
        """Whether more are made."""
        return self.done < self.end

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

    def led(self, law: str, number: int) -> Particles | None:
        """Particles led to the posterior; None where no more are wanted before that."""
        start, seed = self.law, (self.settings.seed, NUMBER_OF[law], number)
        start = start.prior_alone if law == PRIOR else start
        course = self.courses.get(law)
        while self.work is None or not self.work.finished:
            if not self.wanted:
                return None
            started, before = time.perf_counter(), self.work
            if before is None:
                self.work, happened = begin(self.space, start, self.settings.draws, seed), {}
            else:
                arguments = self.space, start, self.target_acceptance, seed, course
                self.work = next_temperature(before, *arguments)
                happened = {n: latest(n, values) for n, values in self.work.path.items()}
            stage = f"{'pilot' if course is None else 'particles'} from the {law}"
            self.show_temperature(happened, time.perf_counter() - started, stage, number, course)
        return self.work

    def finish(self, particles: Particles, observe: Observer) -> None:
        """Hand on the draws of a repetition that begins at the modes."""
        started, number, points = time.perf_counter(), self.done, particles.points[None]
        observables = observe(points, number * points.shape[1])
        of_prior = self.of_prior[number] if number < len(self.of_prior) else None
        statistics = statistics_of(particles, of_prior, self.law)
        self.done += 1
        temperatures, count = len(self.courses[MODES]), max(self.end, self.done)
        shown = f"particles from the {MODES}", self.done * temperatures, count * temperatures
        made = {"observables": observables, "points": points, "first": number, "shown": shown}
        seconds = time.perf_counter() - started
        chunk = Chunk("draws", self.done, count, statistics, seconds=seconds, **made)
        self.on_chunk(replace(chunk, make_snapshot=self.snapshot))

    # --- handed on

    def show_temperature(
        self,
        happened: Mapping[str, np.ndarray],
        seconds: float,
        stage: str,
        number: int,
        course: Course | None,
    ) -> None:
        """Hand on what happened at one temperature; how many a pilot has nobody knows."""
        at, power = len(self.work.path.get("power", ())), self.work.power
        if course is None:
            return self.hand_on(happened, seconds, stage, at, None, f"{stage}, at λ = {power:.3g}")
        count = max(self.end, number + 1)
        count = min(count, FROM_PRIOR) if stage.endswith(PRIOR) else count
        place = f"{stage}, {number + 1} of {count}, at λ = {power:.3g}"
        first = number if stage.endswith(MODES) and happened else None
        at, count = at + number * len(course), count * len(course)
        return self.hand_on(happened, seconds, stage, at, count, place, first)

    def hand_on(
        self,
        statistics: Mapping[str, np.ndarray],
        seconds: float,
        stage: str,
        at: int,
        count: int | None,
        place: str = "",
        first: int | None = None,
    ) -> None:
        shown = {"shown": (stage, at, count), "at": place or stage, "first": first}
        chunk = Chunk(
            "warmup", self.done, max(self.end, self.done + 1), statistics, seconds=seconds
        )
        self.on_chunk(replace(chunk, **shown, make_snapshot=self.snapshot))


def draw_repetitions(
    space: Space,
    target_acceptance: float,
    settings: ChainSettings,
    on_chunk: OnChunk,
    resume: Snapshot | None = None,
) -> None:
    """Make repetitions; every temperature, and the draws of every repetition, go to `on_chunk`."""
    Repetitions.begun(space, target_acceptance, settings, on_chunk, resume=resume).make()


def latest(name: str, values: tuple[float, ...]) -> np.ndarray:
    """What happened at the latest temperature [1, 1], counts as whole numbers."""
    return np.array([[values[-1]]], int if name in COUNTED else float)


# --- as arrays


def arrays_of(particles: Particles) -> dict[str, np.ndarray]:
    """All that particles are, name → array."""
    values = dict(vars(particles))
    path, course = values.pop("path"), values.pop("course")
    arrays = {name: np.asarray(value) for name, value in values.items()}
    arrays |= {f"path/{name}": np.array(numbers) for name, numbers in path.items()}
    return arrays | {f"course/{name}": v for name, v in arrays_of_course(course).items()}


def particles_of(arrays: Mapping[str, np.ndarray]) -> Particles:
    """The particles whose `arrays_of` these are."""
    parts: dict[str, dict[str, Any]] = {"": {}, "path": {}, "course": {}}
    for key, values in arrays.items():
        part, _, name = key.rpartition("/")
        parts[part][name] = values if values.ndim else values.item()
    path = {name: tuple(numbers.tolist()) for name, numbers in parts["path"].items()}
    return Particles(**parts[""], path=path, course=course_of(parts["course"]))


def arrays_of_course(course: Course) -> dict[str, np.ndarray]:
    """Every stage of a course, name → array."""
    if not course:
        return {}
    return {name: np.stack([getattr(stage, name) for stage in course]) for name in OF_STAGE}


def course_of(arrays: Mapping[str, np.ndarray]) -> Course:
    """The course whose `arrays_of_course` these are."""
    stages = zip(*(arrays.get(name, ()) for name in OF_STAGE), strict=True)
    return tuple(
        Stage(float(power), float(step_size), int(moves), centre, scale)
        for power, step_size, moves, centre, scale in stages
    )


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
