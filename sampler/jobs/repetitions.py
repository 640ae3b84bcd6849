"""Repetitions of tempered particles: made one after the other, kept on disk, and judged.

Every repetition has a file of its own, written after a temperature from time to time and at its
end. It holds all that the next temperature follows from: what is killed goes on with the same
result, and further repetitions are appended to a finished run.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from sampler.analysis.draws_table import is_judged
from sampler.errors import InputError, OutOfTimeError
from sampler.jobs.interruption import Interruption
from sampler.jobs.keeper import ChainKeeper
from sampler.jobs.progress import LOG, ProgressDisplay
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
from sampler.storage.checkpoint import (
    REPETITION,
    SECONDS_BETWEEN,
    DamagedFile,
    read_sealed,
    refuse_another_checkpoint,
    write_sealed,
)
from sampler.storage.run_directory import unwritable

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
START_FILE = "start.bin"


@dataclass
class RepetitionStore:
    """Files of particles in the folder of a run; without a folder nothing is kept.

    every  seconds of computing after which an unfinished repetition is written
    """

    folder: Path | None = None
    fingerprint: dict = field(default_factory=dict)
    interruption: Interruption = field(default_factory=Interruption)
    every: float = SECONDS_BETWEEN

    @classmethod
    def of(cls, keeper: ChainKeeper | None) -> "RepetitionStore":
        if keeper is None:
            return cls()
        return cls(keeper.folder, keeper.fingerprint, keeper.interruption)

    def read(self, name: str) -> tuple[dict, Mapping[str, np.ndarray]] | None:
        """Header and arrays of a file; None where there is none, or it is damaged.

        What a damaged file held is computed again, with the same result. Raises InputError for a
        file of another run.
        """
        if self.folder is None or not (self.folder / name).exists():
            return None
        try:
            sealed = read_sealed(self.folder / name)
        except DamagedFile as problem:
            LOG.warning("%s; it is made again", problem)
            return None
        refuse_another_checkpoint(
            self.folder, sealed.header["fingerprint"], self.fingerprint, "run"
        )
        return sealed.header, sealed.arrays

    def write(self, name: str, header: dict, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a file completely or not at all."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(exist_ok=True)
            write_sealed(self.folder / name, {**header, "fingerprint": self.fingerprint}, arrays)
        except OSError as problem:
            raise InputError(name, str(self.folder), unwritable(problem)) from None


def names_of(record: Any) -> list[str]:
    """Names of the fields of a dataclass or of one of its values."""
    return [each.name for each in fields(record)]


ARRAYS = ("points", "log_ratio", "log_p", "ancestor", "acceptance")


def stored_form(particles: Particles) -> tuple[dict, dict[str, np.ndarray]]:
    header = {
        name: getattr(particles, name)
        for name in names_of(particles)
        if name not in (*ARRAYS, "path", "course")
    }
    arrays = {name: getattr(particles, name) for name in ARRAYS}
    arrays |= {f"path/{name}": np.array(values) for name, values in particles.path.items()}
    for number, stage in enumerate(particles.course):
        for name in names_of(stage):
            arrays[f"course/{number}/{name}"] = np.asarray(getattr(stage, name))
    return header, arrays


def particles_of(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Particles:
    path = {
        name.removeprefix("path/"): tuple(values.tolist())
        for name, values in arrays.items()
        if name.startswith("path/")
    }
    numbers = {name: header[name] for name in ("power", "log_evidence", "step_size")}
    stages = []
    while f"course/{len(stages)}/power" in arrays:
        stage = {name: arrays[f"course/{len(stages)}/{name}"] for name in names_of(Stage)}
        for name, kind in (("power", float), ("step_size", float), ("moves", int)):
            stage[name] = kind(stage[name])
        stages.append(Stage(**stage))
    return Particles(*(arrays[name] for name in ARRAYS), **numbers, path=path, course=tuple(stages))


@dataclass(frozen=True)
class Repetition:
    """A finished repetition, and the seconds that it took."""

    particles: Particles
    seconds: float


@dataclass
class Repetitions:
    """Makes repetitions of one posterior, and remembers them.

    judged_name     tells by their name whether draws are judged
    laws            where particles begin, by name
    pilots          by law, whose course all repetitions follow
    made            repetitions by law
    observed        what was read off the particles of each repetition from the modes
    seconds_before  computing time of all that was on disk
    seconds_here    computing time of repetitions since the run was started or resumed
    """

    space: Space
    algorithm: Tempered
    settings: SamplerSection
    store: RepetitionStore
    show: Callable[[str, int, int, str], None]
    judged_name: Callable[[str], bool] = is_judged
    laws: dict[str, InitialDistribution] = field(default_factory=dict)
    pilots: dict[str, Repetition] = field(default_factory=dict)
    made: dict[str, list[Repetition]] = field(default_factory=lambda: {MODES: [], PRIOR: []})
    observed: list[dict[str, np.ndarray]] = field(default_factory=list)
    cost_of_modes: Mapping[str, float] = field(default_factory=dict)
    seconds_observing: float = 0.0
    seconds_before: float = 0.0
    seconds_here: float = 0.0

    @property
    def out_of_time(self) -> bool:
        """Whether the minutes since the run was started or resumed are over."""
        bounded = self.settings.until == "trusted"
        return bounded and self.seconds_here >= 60.0 * self.settings.max_minutes

    def find_modes(self) -> None:
        """Find the modes, or read them."""
        stored = self.store.read(START_FILE)
        if stored is None:
            started = time.perf_counter()
            descended = descend_from_far(self.space, self.settings.seed)
            law = mixture_at_modes(self.space, descended, self.settings.seed)
            header = {
                "seconds": time.perf_counter() - started,
                "gradients": descended.gradients,
            }
            self.store.write(START_FILE, header, law.arrays)
        else:
            header, arrays = stored
            law = InitialDistribution(self.space, **arrays)
            self.seconds_before += header["seconds"]
        self.laws, self.cost_of_modes = {MODES: law, PRIOR: law.prior_alone}, header

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
        if law not in self.pilots:
            name = REPETITION.format(law=f"{law}-pilot", number=0)
            seed = self.settings.seed, NUMBER_OF[law], PILOT
            self.pilots[law] = self.run(law, name, seed, f"pilot from the {law}", (0, 1), None)
        course = self.pilots[law].particles.course
        while len(self.made[law]) < count:
            number = len(self.made[law])
            name = REPETITION.format(law=law, number=number)
            seed = self.settings.seed, NUMBER_OF[law], number
            phase = f"particles from the {law}"
            self.made[law].append(self.run(law, name, seed, phase, (number, count), course))

    def run(
        self,
        law: str,
        name: str,
        seed: tuple[int, ...],
        phase: str,
        place: tuple[int, int],
        course: Course | None,
    ) -> Repetition:
        """A repetition or pilot, from where its file says; `place`: its number, of how many."""
        stored = self.store.read(name)
        if stored is None:
            particles, seconds = None, 0.0
        else:
            header, arrays = stored
            particles, seconds = particles_of(header, arrays), header["seconds"]
            self.seconds_before += seconds
        unsaved, (number, count) = 0.0, place

        def save() -> None:
            header, arrays = stored_form(particles)
            self.store.write(name, {**header, "seconds": seconds}, arrays)

        while particles is None or not particles.finished:
            started = time.perf_counter()
            if particles is None:
                arguments = self.space, self.laws[law], self.algorithm.particles
                particles = begin(*arguments, seed)
            else:
                arguments = self.space, self.laws[law], self.algorithm.target_acceptance
                particles = next_temperature(particles, *arguments, seed, course)
            taken = time.perf_counter() - started
            seconds, unsaved = seconds + taken, unsaved + taken
            self.seconds_here += taken
            done = number + particles.finished
            if particles.path:
                self.show(phase, done, count, latest_in_words(particles))
            if particles.finished or unsaved > self.store.every:
                save()
                unsaved = 0.0
            where = f"{phase}, {number + 1} of {count}, at λ = {particles.power:.3g}"
            self.store.interruption.leave_if_asked(where, save)
            if self.out_of_time and not particles.finished:
                save()
                minutes = self.settings.max_minutes
                raise OutOfTimeError(
                    f"sampler.max_minutes = {minutes:g}: over at {where}; everything is saved: "
                    "resume it for as many minutes again, or raise them"
                )
        return Repetition(particles, seconds)

    @property
    def kept(self) -> list[Repetition]:
        return self.made[MODES]

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
        made = [repetition.particles.log_evidence for repetition in self.made[PRIOR]]
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
    def every(self) -> list[Repetition]:
        """All repetitions, and the pilots."""
        return [*self.pilots.values(), *self.made[MODES], *self.made[PRIOR]]

    @property
    def gradients(self) -> int:
        """Gradients of all repetitions, those from the prior too, and of the modes."""
        steps = sum(sum(repetition.particles.path["n_steps"]) for repetition in self.every)
        return int(steps + self.cost_of_modes["gradients"])

    @property
    def seconds(self) -> float:
        """Computing time of all repetitions, and of the modes."""
        return self.cost_of_modes["seconds"] + sum(repetition.seconds for repetition in self.every)

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
    keeper: ChainKeeper | None,
    show: bool,
    judged: Callable[[str], bool] = is_judged,
) -> RepetitionsMade:
    """Make the repetitions asked for, or until their draws are trusted, and collect them.

    judged  tells by their name whether draws are judged

    Raises RequeueError when the interruption asks to stop, and OutOfTimeError when the minutes are
    over before there are two repetitions, with everything saved.
    """
    store = RepetitionStore.of(keeper)
    with ProgressDisplay() as display:
        shown = display.show if show else lambda *_: None
        made = Repetitions(space, algorithm, settings, store, shown, judged)
        if show:
            display.wait("looking for modes, and compiling")
        made.find_modes()
        ended = made.make_all()
    count = len(made.kept)
    if keeper is not None:
        keeper.seconds_before = made.seconds_before
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
