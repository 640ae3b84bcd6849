"""Repetitions of tempered particles made one after the other, saved on the way, and judged.

A checkpoint holds all repetitions, and of the one in work all that its next temperature follows
from: what is killed goes on with the same result, and further repetitions are appended to a
finished run.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sampler.analysis.draws_table import is_judged
from sampler.errors import OutOfTimeError
from sampler.jobs.keeper import ChainKeeper
from sampler.jobs.progress import Progress
from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chains import Observer, chain_mesh
from sampler.mcmc.collected_draws import DrawCollector, rounded
from sampler.mcmc.diagnostics import Diagnostics, diagnose
from sampler.mcmc.kept import Fixed
from sampler.mcmc.repetitions import (
    MOST_REPETITIONS,
    Repetition,
    collect_repetitions,
    explain_repetitions,
    reason_to_end,
    statistics_of,
)
from sampler.mcmc.stopping import CHECKED_ESS
from sampler.mcmc.tempered import Tempered, evidences
from sampler.mcmc.tempered_smc import Course, begin, next_temperature
from sampler.posterior.initial_distribution import (
    InitialDistribution,
    descend_from_far,
    mixture_at_modes,
)
from sampler.posterior.space import Space
from sampler.settings.sampler import SamplerSection
from sampler.storage.checkpoints import Sealed, joined

# The laws in which particles begin: the mixture at all modes, and the prior alone.
MODES, PRIOR = "modes", "prior"
NUMBER_OF = {MODES: 0, PRIOR: 1}
# Repetitions from the prior alone that those from all modes are held against.
FROM_PRIOR = 4
PILOT = 2**20  # no repetition has this number
# Further repetitions before the draws are judged again, as a share of all.
GROWTH = 0.3
# Fewer have no error.
FEWEST_REPETITIONS = 2
# Arrays of a checkpoint beside those of repetitions, which have their names.
START = "start"


@dataclass
class Repetitions:
    """Makes repetitions of one posterior, and remembers them.

    judged_name     tells by their name whether draws are judged
    fixed           elements that the problem fixes, by the name of the draws
    laws            where particles begin, by name
    made            repetitions and pilots by their names, in the order in which they were begun
    observed        what was read off the particles of each repetition from the modes
    cost_of_modes   seconds and gradients of the search for modes
    seconds_here    computing time of repetitions since the run was started or resumed
    """

    space: Space
    algorithm: Tempered
    settings: SamplerSection
    keeper: ChainKeeper
    progress: Progress | None
    judged_name: Callable[[str], bool] = is_judged
    fixed: Fixed = dict
    laws: dict[str, InitialDistribution] = field(default_factory=dict)
    made: dict[str, Repetition] = field(default_factory=dict)
    observed: list[dict[str, np.ndarray]] = field(default_factory=list)
    cost_of_modes: Mapping[str, float] = field(default_factory=dict)
    seconds_observing: float = 0.0
    seconds_here: float = 0.0
    _unsaved: bool = False

    # --- kept in checkpoints

    def begin(self) -> None:
        """Find the modes; or take them, and the repetitions so far, from a checkpoint."""
        stored = self.keeper.checkpoints.newest()
        if stored is not None:
            try:
                self.restore(stored)
            except (KeyError, TypeError, ValueError) as problem:
                raise self.keeper.checkpoints.unfit(problem) from None
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
        law = InitialDistribution.of(self.space, stored.part(START))
        self.laws, self.cost_of_modes = {MODES: law, PRIOR: law.prior_alone}, stored.header[START]
        self.made = {name: Repetition.of(stored.part(name)) for name in stored.header["made"]}
        self.keeper.seconds_before = self.seconds

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
            "made": list(self.made),
        }
        arrays = {name: made.arrays for name, made in self.made.items()}
        self.keeper.checkpoints.save(header, joined(**{START: self.laws[MODES].arrays}, **arrays))
        self._unsaved = False

    # --- made

    def make_all(self) -> str:
        """Make the repetitions asked for, or until they are trusted → why no more are made."""
        count = self.settings.repetitions
        try:
            self.make(MODES, count)
            if self.laws[MODES].modes:
                self.make(PRIOR, FROM_PRIOR)
            if self.settings.until != "trusted":
                return "draws"
            while (ended := self.reason_to_end()) is None:
                count = min(MOST_REPETITIONS, count + max(1, round(GROWTH * count)))
                self.make(MODES, count)
            return ended
        except OutOfTimeError:
            if len(self.finished(MODES)) < FEWEST_REPETITIONS:
                raise
            return "max_minutes"

    def make(self, law: str, count: int) -> None:
        """Make so many repetitions of a law in all, and its pilot before them.

        Raises OutOfTimeError where the minutes are over, with everything saved.
        """
        pilot = self.run(law, PILOT, 1)
        for number in range(count):
            self.run(law, number, count, pilot.particles.course)

    def run(self, law: str, number: int, count: int, course: Course | None = None) -> Repetition:
        """A repetition out of so many, from where it stands; without a course, the pilot."""
        name = f"{law}-pilot" if course is None else f"{law}-{number:03d}"
        stage = f"{'pilot' if course is None else 'particles'} from the {law}"
        place = f"{1 if course is None else number + 1} of {count}"
        seed = (self.settings.seed, NUMBER_OF[law], number)
        start, made = self.laws[law], self.made.get(name)
        while made is None or not made.particles.finished:
            began = time.perf_counter()
            if made is None:
                particles, seconds = begin(self.space, start, self.algorithm.particles, seed), 0.0
            else:
                arguments = self.space, start, self.algorithm.target_acceptance, seed, course
                particles, seconds = next_temperature(made.particles, *arguments), made.seconds
            taken = time.perf_counter() - began
            made = self.made[name] = Repetition(particles, seconds + taken)
            self.seconds_here += taken
            self._unsaved = True
            self.show(stage, made, number, count, course)
            if self.keeper.checkpoints.due:
                self.save()
            where = f"{stage}, {place}, at λ = {particles.power:.3g}"
            self.keeper.interruption.leave_if_asked(where, self.save)
            if self.out_of_time and not particles.finished:
                self.save()
                raise OutOfTimeError(
                    f"sampler.max_minutes = {self.settings.max_minutes:g}: over at {where}; "
                    "everything is saved: resume it for as many minutes again, or raise them"
                )
        return made

    def show(
        self, stage: str, made: Repetition, number: int, count: int, course: Course | None
    ) -> None:
        """Show the temperatures of all repetitions; how many a pilot makes nobody knows."""
        path = made.particles.path
        if self.progress is None or not path:
            return
        last = {name: values[-1] for name, values in path.items()}
        details = (
            f"λ = {last['power']:.3g}, acceptance {last['acceptance_rate']:.2f}, step size "
            f"{last['step_size']:.3g}, {last['moves']:.0f} moves, {last['ancestors']:.0f} ancestors"
        )
        done, total = len(path["power"]), None
        if course is not None:
            done, total = done + number * len(course), count * len(course)
        self.progress.show(stage, done, total, details)

    def finished(self, law: str) -> list[Repetition]:
        """The finished repetitions of a law, without its pilot."""
        of_law = (self.made.get(f"{law}-{number:03d}") for number in range(len(self.made)))
        return [made for made in of_law if made is not None and made.particles.finished]

    # --- judged

    @property
    def out_of_time(self) -> bool:
        """Whether the minutes since the run was started or resumed are over."""
        bounded = self.settings.until == "trusted"
        return bounded and self.seconds_here >= 60.0 * self.settings.max_minutes

    def reason_to_end(self) -> str | None:
        """Reason why no more repetitions are made; None: they are."""
        collected = self.collect(DrawCollector())
        error = evidences(collected.statistics).error
        ended = reason_to_end(self.judged(collected), error, len(self.observed))
        return "max_minutes" if ended is None and self.out_of_time else ended

    def judged(self, collected: DrawCollector) -> Diagnostics:
        """The diagnostics of all draws so far, with a margin."""
        draws = {name: values for name, values in collected.draws.items() if self.judged_name(name)}
        arguments = draws, collected.statistics, self.algorithm, collected.selected, self.fixed
        return diagnose(*arguments, ess_limit=CHECKED_ESS)

    def collect(self, collected: DrawCollector) -> DrawCollector:
        """Hand all repetitions from the modes to a collector."""
        self.observe()
        repetitions, seconds = self.finished(MODES), (self.seconds, self.seconds_observing)
        statistics = statistics_of(repetitions, self.finished(PRIOR), self.laws[MODES])
        collect_repetitions(collected, repetitions, statistics, self.observed, seconds)
        return collected

    def observe(self) -> None:
        """Read off the particles of repetitions that are new what is stored of draws."""
        started = time.perf_counter()
        settings = ChainSettings(chains=1, warmup=0, draws=1, thinning=1, seed=self.settings.seed)
        observer = Observer.of(self.space, settings, chain_mesh(1))
        repetitions = self.finished(MODES)
        for number in range(len(self.observed), len(repetitions)):
            points = repetitions[number].particles.points
            numbers = np.arange(len(points), dtype=np.int32) + number * len(points)
            observables = observer(points[None], numbers)
            self.observed.append({n: rounded(n, v[0]) for n, v in observables.items()})
        self.seconds_observing += time.perf_counter() - started

    # --- what they cost

    @property
    def gradients(self) -> int:
        """Gradients of all repetitions, those from the prior too, and of the modes."""
        paths = [made.particles.path for made in self.made.values()]
        steps = sum(sum(path.get("n_steps", ())) for path in paths)
        return int(steps + self.cost_of_modes["gradients"])

    @property
    def seconds(self) -> float:
        """Computing time of all repetitions, and of the modes."""
        return self.cost_of_modes["seconds"] + sum(made.seconds for made in self.made.values())


def run_repetitions(
    space: Space,
    algorithm: Tempered,
    settings: SamplerSection,
    collected: DrawCollector,
    keeper: ChainKeeper,
    progress: Progress | None,
    judged: Callable[[str], bool] = is_judged,
) -> tuple[str, dict[str, Any], str]:
    """Make the repetitions asked for, or until their draws are trusted, and collect them.

    judged  tells by their name whether draws are judged

    The results are the reason why no more were made, attributes of `draws.nc`, and a line of text.
    Raises RequeueError when the interruption asks to stop, and OutOfTimeError when the minutes are
    over before there are two repetitions, with everything saved.
    """
    arguments = space, algorithm, settings, keeper, progress, judged, collected.fixed
    repetitions = Repetitions(*arguments)
    if progress is not None:
        progress.wait("looking for modes, and compiling")
    repetitions.begin()
    ended = repetitions.make_all()
    repetitions.save()
    repetitions.collect(collected)
    count, logs = len(repetitions.observed), evidences(collected.statistics)
    attributes = {
        "log_evidence": logs.value,
        "log_evidence_error": logs.error,
        "log_evidence_method": settings.algorithm,
        "log_evidence_trusted": int(algorithm.judge(collected.statistics).reasons == ()),
        "gradients": repetitions.gradients,
        "repetitions": count,
    }
    return ended, attributes, explain_repetitions(count, ended, logs)
