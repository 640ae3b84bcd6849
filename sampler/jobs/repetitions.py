"""Repetitions of tempered particles: made one after the other, saved on the way, and judged.

A checkpoint holds all repetitions, and of the one in work all that its next temperature follows
from: what is killed goes on with the same result, and further repetitions are appended to a
finished run.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from sampler.analysis.draws_table import is_judged
from sampler.errors import OutOfTimeError
from sampler.jobs.interruption import Interruption
from sampler.jobs.keeper import ChainKeeper
from sampler.jobs.progress import ProgressDisplay
from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chains import CHUNK_DRAWS, Chunk, Observer, chain_mesh
from sampler.mcmc.collected_draws import DrawCollector, rounded
from sampler.mcmc.diagnostics import Diagnostics, diagnose
from sampler.mcmc.stopping import CHECKED_ESS
from sampler.mcmc.tempered import LARGEST_ERROR, Evidences, Tempered, evidences
from sampler.mcmc.tempered_smc import Course, Particles, Stage, begin, next_temperature
from sampler.posterior.initial_distribution import (
    InitialDistribution,
    descend_from_far,
    mixture_at_modes,
)
from sampler.posterior.space import Space
from sampler.settings.sampler import SamplerSection
from sampler.storage.checkpoints import Checkpoints, Sealed, joined

# The laws in which particles begin: the mixture at all modes, and the prior alone.
MODES, PRIOR = "modes", "prior"
NUMBER_OF = {MODES: 0, PRIOR: 1}
# Repetitions from the prior alone that those from all modes are held against.
FROM_PRIOR = 4
PILOT = 2**20  # no repetition has this number
# Further repetitions before the draws are judged again, as a share of all.
GROWTH = 0.3
# Repetitions up to which more are made until they can be trusted.
MOST_REPETITIONS = 32
# Fewer have no error.
FEWEST_REPETITIONS = 2
# Parts of a checkpoint beside those of repetitions, which have their names.
START, MADE = "start", "made"


def name_of(law: str, number: int) -> str:
    """Under which a repetition is stored, or a pilot."""
    return f"{law}-pilot" if number == PILOT else f"{law}-{number:03d}"


def names_of(record: Any) -> list[str]:
    """Names of the fields of a dataclass or of one of its values."""
    return [each.name for each in fields(record)]


ARRAYS = ("points", "log_ratio", "log_p", "ancestor", "acceptance")


@dataclass(frozen=True)
class Repetition:
    """A repetition or a pilot, finished or on its way, and the seconds that it took so far."""

    particles: Particles
    seconds: float

    @property
    def header(self) -> dict[str, float]:
        """Its numbers, as a checkpoint has them."""
        left_out = (*ARRAYS, "path", "course")
        names = [name for name in names_of(self.particles) if name not in left_out]
        return {n: getattr(self.particles, n) for n in names} | {"seconds": self.seconds}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Its arrays, as a checkpoint has them."""
        particles = self.particles
        arrays = {name: getattr(particles, name) for name in ARRAYS}
        arrays |= {f"path/{name}": np.array(values) for name, values in particles.path.items()}
        for number, stage in enumerate(particles.course):
            for name in names_of(stage):
                arrays[f"course/{number}/{name}"] = np.asarray(getattr(stage, name))
        return arrays

    @classmethod
    def of(cls, header: Mapping[str, float], arrays: Mapping[str, np.ndarray]) -> "Repetition":
        """The repetition whose `header` and `arrays` these are."""
        path = {
            name.removeprefix("path/"): tuple(values.tolist())
            for name, values in arrays.items()
            if name.startswith("path/")
        }
        stages: list[Stage] = []
        while f"course/{len(stages)}/power" in arrays:
            stage = {name: arrays[f"course/{len(stages)}/{name}"] for name in names_of(Stage)}
            for name, kind in (("power", float), ("step_size", float), ("moves", int)):
                stage[name] = kind(stage[name])
            stages.append(Stage(**stage))
        numbers = {name: header[name] for name in ("power", "log_evidence", "step_size")}
        particles = Particles(
            *(arrays[name] for name in ARRAYS), **numbers, path=path, course=tuple(stages)
        )
        return cls(particles, header["seconds"])


@dataclass
class Repetitions:
    """Makes repetitions of one posterior, and remembers them.

    judged_name     tells by their name whether draws are judged
    laws            where particles begin, by name
    made            repetitions and pilots by their names, in the order in which they were begun
    observed        what was read off the particles of each repetition from the modes
    seconds_before  computing time of all that was in a checkpoint
    seconds_here    computing time of repetitions since the run was started or resumed
    """

    space: Space
    algorithm: Tempered
    settings: SamplerSection
    checkpoints: Checkpoints
    interruption: Interruption
    show: Callable[[str, int, int, str], None]
    judged_name: Callable[[str], bool] = is_judged
    laws: dict[str, InitialDistribution] = field(default_factory=dict)
    made: dict[str, Repetition] = field(default_factory=dict)
    observed: list[dict[str, np.ndarray]] = field(default_factory=list)
    cost_of_modes: Mapping[str, float] = field(default_factory=dict)
    seconds_observing: float = 0.0
    seconds_before: float = 0.0
    seconds_here: float = 0.0
    _unsaved: bool = False

    @property
    def out_of_time(self) -> bool:
        """Whether the minutes since the run was started or resumed are over."""
        bounded = self.settings.until == "trusted"
        return bounded and self.seconds_here >= 60.0 * self.settings.max_minutes

    def begin(self) -> None:
        """Find the modes; or take them, and the repetitions so far, from a checkpoint."""
        stored = self.checkpoints.newest()
        if stored is not None:
            self.restore(stored)
            return
        started = time.perf_counter()
        descended = descend_from_far(self.space, self.settings.seed)
        law = mixture_at_modes(self.space, descended, self.settings.seed)
        self.laws = {MODES: law, PRIOR: law.prior_alone}
        seconds = time.perf_counter() - started
        self.cost_of_modes = {"seconds": seconds, "gradients": descended.gradients}
        self._unsaved = True
        self.save()

    def restore(self, stored: Sealed) -> None:
        law = InitialDistribution(self.space, **stored.part(START))
        self.laws, self.cost_of_modes = {MODES: law, PRIOR: law.prior_alone}, stored.header[START]
        for name, header in stored.header[MADE].items():
            self.made[name] = Repetition.of(header, stored.part(name))
        self.seconds_before = self.seconds

    def save(self) -> None:
        """Write a checkpoint of all repetitions, unless there is one."""
        if not self._unsaved:
            return
        counts = {law: len(self.finished(law)) for law in NUMBER_OF}
        header = {
            "phase": "particles",
            "done": counts[MODES],
            "total": max(self.settings.repetitions, counts[MODES]),
            "repetitions": {law: count for law, count in counts.items() if count},
            START: self.cost_of_modes,
            MADE: {name: made.header for name, made in self.made.items()},
        }
        arrays = {name: made.arrays for name, made in self.made.items()}
        self.checkpoints.save(header, joined(**{START: self.laws[MODES].arrays}, **arrays))
        self._unsaved = False

    def make_all(self) -> str:
        """Make the repetitions asked for, or until they are trusted → why no more are made."""
        count = self.settings.repetitions
        try:
            self.make(MODES, count)
            if self.laws[MODES].modes:
                self.make(PRIOR, FROM_PRIOR)
            self.observe()
            if self.settings.until != "trusted":
                return "draws"
            while (ended := self.reason_to_end) is None:
                count = min(MOST_REPETITIONS, count + max(1, round(GROWTH * count)))
                self.make(MODES, count)
                self.observe()
            return ended
        except OutOfTimeError:
            if len(self.kept) < FEWEST_REPETITIONS:
                raise
            self.observe()
            return "max_minutes"

    def make(self, law: str, count: int) -> None:
        """Make so many repetitions of a law in all, and its pilot before them.

        Raises OutOfTimeError where the minutes are over, with everything saved.
        """
        pilot = self.run(law, PILOT, f"pilot from the {law}", (0, 1), None)
        for number in range(count):
            place = number, count
            self.run(law, number, f"particles from the {law}", place, pilot.particles.course)

    def run(
        self,
        law: str,
        number: int,
        phase: str,
        place: tuple[int, int],
        course: Course | None,
    ) -> Repetition:
        """A repetition or pilot, from where it stands; `place`: its number, of how many."""
        name, seed = name_of(law, number), (self.settings.seed, NUMBER_OF[law], number)
        made, (before, count) = self.made.get(name), place
        while made is None or not made.particles.finished:
            started = time.perf_counter()
            if made is None:
                arguments = self.space, self.laws[law], self.algorithm.particles
                particles, seconds = begin(*arguments, seed), 0.0
            else:
                arguments = self.space, self.laws[law], self.algorithm.target_acceptance
                particles = next_temperature(made.particles, *arguments, seed, course)
                seconds = made.seconds
            taken = time.perf_counter() - started
            made = self.made[name] = Repetition(particles, seconds + taken)
            self.seconds_here += taken
            self._unsaved = True
            if particles.path:
                done = before + particles.finished
                self.show(phase, done, count, latest_in_words(particles))
            if self.checkpoints.due:
                self.save()
            where = f"{phase}, {before + 1} of {count}, at λ = {particles.power:.3g}"
            self.interruption.leave_if_asked(where, self.save)
            if self.out_of_time and not particles.finished:
                self.save()
                minutes = self.settings.max_minutes
                raise OutOfTimeError(
                    f"sampler.max_minutes = {minutes:g}: over at {where}; everything is saved: "
                    "resume it for as many minutes again, or raise them"
                )
        return made

    def finished(self, law: str) -> list[Repetition]:
        """The finished repetitions of a law, without its pilot."""
        made: list[Repetition] = []
        while (another := self.made.get(name_of(law, len(made)))) and another.particles.finished:
            made.append(another)
        return made

    @property
    def kept(self) -> list[Repetition]:
        return self.finished(MODES)

    def observe(self) -> None:
        started = time.perf_counter()
        settings = ChainSettings(chains=1, warmup=0, draws=1, seed=self.settings.seed)
        observer = Observer.of(self.space, settings, chain_mesh(1))
        for number in range(len(self.observed), len(self.kept)):
            points = self.kept[number].particles.points
            numbers = np.arange(len(points), dtype=np.int32) + number * len(points)
            observables = observer(points[None], numbers)
            self.observed.append({n: rounded(n, v[0]) for n, v in observables.items()})
        self.seconds_observing += time.perf_counter() - started

    @property
    def path(self) -> dict[str, np.ndarray]:
        """Course of every repetition, name → [repetition, temperature]; NaN after λ = 1."""
        paths = [repetition.particles.path for repetition in self.kept]
        longest = max(len(path["power"]) for path in paths)
        table = {}
        for name in paths[0]:
            empty = 0.0 if name in ("n_steps", "moves") else np.nan
            table[name] = np.full((len(paths), longest), empty)
            for row, path in zip(table[name], paths, strict=True):
                row[: len(path[name])] = path[name]
        return table

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        """Statistics of the draws, name → [repetition, particle]."""
        particles = [repetition.particles for repetition in self.kept]
        ones = np.ones((len(particles), self.algorithm.particles))
        law = self.laws[MODES]
        prior = np.full(len(particles), np.nan)
        made = [repetition.particles.log_evidence for repetition in self.finished(PRIOR)]
        count = min(len(made), len(prior))
        prior[:count] = made[:count]
        evidence = np.array([each.log_evidence for each in particles])

        def of_path(number: Callable) -> np.ndarray:
            return np.array([[number(each.path["acceptance_rate"])] for each in particles])

        return {
            "lp": np.stack([each.log_p for each in particles]),
            "acceptance_rate": np.stack([each.acceptance for each in particles]),
            "ancestor": np.stack([each.ancestor for each in particles]),
            "mode": np.stack([law.nearest_mode(each.points) for each in particles]),
            "temperatures": of_path(len) * ones,
            "lowest_acceptance": of_path(min) * ones,
            "log_evidence": evidence[:, None] * ones,
            "log_evidence_prior": prior[:, None] * ones,
        }

    @property
    def gradients(self) -> int:
        """Gradients of all repetitions, those from the prior too, and of the modes."""
        steps = sum(sum(one.particles.path["n_steps"]) for one in self.made.values())
        return int(steps + self.cost_of_modes["gradients"])

    @property
    def seconds(self) -> float:
        """Computing time of all repetitions, and of the modes."""
        return self.cost_of_modes["seconds"] + sum(one.seconds for one in self.made.values())

    def fill(self, collected: DrawCollector) -> None:
        """Hand the path through the temperatures on as warm-up, and particles as draws."""
        path, statistics = self.path, self.statistics
        steps = path["power"].shape[1]
        collected(Chunk("warmup", steps, steps, path, seconds=self.seconds))
        total = self.algorithm.particles
        for first in range(0, total, CHUNK_DRAWS):
            part = slice(first, first + CHUNK_DRAWS)
            drawn = {
                name: np.stack([observables[name][part] for observables in self.observed])
                for name in self.observed[0]
            }
            of_part = {name: values[:, part] for name, values in statistics.items()}
            done = min(first + CHUNK_DRAWS, total)
            seconds = self.seconds_observing if not first else 0.0
            collected(Chunk("draws", done, total, of_part, drawn, seconds))

    @property
    def reason_to_end(self) -> str | None:
        """Reason why no more repetitions are made; None: they are."""
        error, count = evidences(self.statistics).error, len(self.kept)
        ended = reason_to_end(self.judged(), error, count)
        return "max_minutes" if ended is None and self.out_of_time else ended

    def judged(self) -> Diagnostics:
        """The diagnostics of all draws so far, with a margin."""
        collected = DrawCollector()
        self.fill(collected)
        draws = {name: values for name, values in collected.draws.items() if self.judged_name(name)}
        arguments = draws, collected.statistics, self.algorithm, collected.selected
        return diagnose(*arguments, ess_limit=CHECKED_ESS)


def latest_in_words(particles: Particles) -> str:
    last = {name: values[-1] for name, values in particles.path.items()}
    return (
        f"λ = {last['power']:.3g}, acceptance {last['acceptance_rate']:.2f}, step size "
        f"{last['step_size']:.3g}, {last['moves']:.0f} moves, {last['ancestors']:.0f} ancestors"
    )


@dataclass(frozen=True)
class RepetitionsMade:
    """Outcome of all repetitions.

    ended       why no more were made: "draws", "trusted", "failed", "repetitions" or "max_minutes"
    attributes  evidence and costs, for `draws.nc`
    text        one line
    """

    ended: str
    attributes: Mapping[str, Any]
    text: str


def run_repetitions(
    space: Space,
    algorithm: Tempered,
    settings: SamplerSection,
    collected: DrawCollector,
    keeper: ChainKeeper,
    show: bool,
    judged: Callable[[str], bool] = is_judged,
) -> RepetitionsMade:
    """Make the repetitions asked for, or until their draws are trusted, and collect them.

    judged  tells by their name whether draws are judged

    Raises RequeueError when the interruption asks to stop, and OutOfTimeError when the minutes are
    over before there are two repetitions, with everything saved.
    """
    with ProgressDisplay() as display:
        shown = display.show if show else lambda *_: None
        saving = keeper.checkpoints, keeper.interruption
        made = Repetitions(space, algorithm, settings, *saving, shown, judged)
        if show:
            display.wait("looking for modes, and compiling")
        made.begin()
        ended = made.make_all()
        made.save()
    count, keeper.seconds_before = len(made.kept), made.seconds_before
    made.fill(collected)
    logs = evidences(collected.statistics)
    attributes = {
        "log_evidence": logs.value,
        "log_evidence_error": logs.error,
        "log_evidence_method": settings.algorithm,
        "log_evidence_trusted": int(algorithm.judge(collected.statistics).reasons == ()),
        "gradients": made.gradients,
        "repetitions": count,
    }
    return RepetitionsMade(ended, attributes, explained(count, ended, logs))


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


def explained(count: int, ended: str, logs: Evidences) -> str:
    """One line: the evidence, of how many repetitions, and why no more were made."""
    reasons = {
        "draws": "as many as were asked for",
        "trusted": "their draws can be trusted",
        "failed": "more of them would not change what fails",
        "repetitions": f"no more than {MOST_REPETITIONS} are added until they can be trusted",
        "max_minutes": "`max_minutes` are over",
    }
    text = f"{count} repetitions, {reasons[ended]}: ln p(y) = {logs.value:.3f} ± {logs.error:.3f}"
    if logs.prior is None:
        return text
    return f"{text}; from the prior alone {logs.prior:.3f} ± {logs.prior_error:.3f}"
