"""Workers of a sweep: a loop over its points, in this process or in commands of their own.

A worker goes through the points in order and does each that has no outcome yet and that no other
worker holds. Outcomes are small files in the folder `outcomes` of the sweep, `3.json` for
`--point 3`: a point may have no directory of its own, or one that holds somebody's other files.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from sampler.errors import DiskError, ExitCode, InputError, exit_code_of, one_line
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import Plan, SharedData, data_key, plan_with_data
from sampler.jobs.run import start_run
from sampler.registry import registered_by_scripts
from sampler.settings.recipe import Recipe
from sampler.settings.toml import flattened
from sampler.storage.directory import (
    LOG,
    LOG_FILE,
    RECIPE_FILE,
    log_to,
    point_directory,
    tried,
)
from sampler.storage.files import read_json, remove, write_json, write_whole

FOLDER, ASSIGNMENT_FILE, ERRORS_FILE = "outcomes", "assignment.json", "workers.txt"
# Output of the points of a sweep, next to the directory of each.
OUTPUT = ".output.txt"
SECONDS_BETWEEN_LOOKS = 0.25
# Of a point whose worker is killed.
MOST_ATTEMPTS = 3
LOST = f"its worker was killed {MOST_ATTEMPTS} times; the same command continues from here"


@dataclass(frozen=True)
class PointOutcome:
    """The exit code of a point and, where it was not run to its end, the reason in one line."""

    code: ExitCode
    problem: str = ""


@dataclass(frozen=True)
class Assignment:
    """The work at points of a sweep: all that a worker is given besides the stored recipe.

    points    indices of those that are to be done, in their order
    sampling  whether they are sampled by now
    figures   whether figures are drawn in the end
    """

    command: str
    points: tuple[int, ...]
    sampling: bool = True
    figures: bool = True


# --- outcomes


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of points, for all who do them: files in a folder of the sweep."""

    folder: Path

    @classmethod
    def begun(cls, directory: Path, assignment: Assignment) -> "Outcomes":
        """Those of an assignment that begins; those of an earlier one are removed."""
        folder = directory / FOLDER
        remove(folder)
        folder.mkdir()
        write_json(folder / ASSIGNMENT_FILE, asdict(assignment))
        return cls(folder)

    def of(self, point: int) -> PointOutcome | None:
        """The outcome of a point; None as long as it has none."""
        path = self.folder / f"{point}.json"
        if not path.is_file():
            return None
        stored = read_json(path)
        return PointOutcome(ExitCode(stored["code"]), stored["problem"])

    def ended(self) -> set[int]:
        """The points that have an outcome."""
        names = (name.partition(".") for name in os.listdir(self.folder))
        return {int(stem) for stem, _, ending in names if ending == "json" and stem.isdigit()}

    @contextmanager
    def turn(self, point: int) -> Iterator[bool]:
        """Hold a point for this worker; False where another one does, or has done it."""
        with tried(self.folder / f"{point}.lock") as is_free:
            yield is_free and self.of(point) is None  # another worker may have ended it since

    def attempt(self, point: int, do: Callable[[], PointOutcome]) -> PointOutcome:
        """Do a point that is held, and write down its outcome, unless a signal has stopped it.

        A point that has cost several workers their life is done no more.
        """
        begun = self.folder / f"{point}.attempts"
        attempts = int(begun.read_text()) if begun.is_file() else 0
        if attempts == MOST_ATTEMPTS:
            outcome = PointOutcome(ExitCode.INTERNAL_ERROR, LOST)
        else:
            attempts += 1
            write_whole(begun, str(attempts))
            outcome = do()
        if outcome.code != ExitCode.REQUEUE:
            content = {**asdict(outcome), "attempts": attempts}
            write_json(self.folder / f"{point}.json", content)
        begun.unlink()
        return outcome


# --- the loop


def walk(
    outcomes: Outcomes,
    points: Iterable[int],
    do: Callable[[int], PointOutcome],
    interruption: Interruption,
) -> Iterator[tuple[int, PointOutcome]]:
    """Do points, each that has no outcome and whose lock is free → every one with its outcome."""
    for point in points:
        if interruption.received is not None:
            return
        if outcomes.of(point) is None:
            with outcomes.turn(point) as taken:
                if taken:
                    yield point, outcomes.attempt(point, lambda point=point: do(point))


class PointPlans:
    """The points of a stored sweep, each planned when it is its turn.

    Points with the same data that follow each other share them.
    """

    def __init__(
        self, directory: Path, assignment: Assignment, data: SharedData | None = None
    ) -> None:
        self.directory, self.assignment = directory, assignment
        self.grid = Recipe.load(directory / RECIPE_FILE).points()
        self._data = data

    def folder(self, point: int) -> Path:
        """The directory of a point."""
        return point_directory(self.directory, self.grid[point][0])

    def plan(self, point: int) -> Plan:
        """The plan of a point. Raises InputError for an impossible command."""
        label, asked = self.grid[point]
        if self._data is None or self._data.key != data_key(asked):
            self._data = None  # or there would be two of them for a while
            self._data = SharedData.of(asked)
        plan = plan_with_data(self.assignment.command, asked, self.folder(point), self._data)
        of_sweep = {"sampling": self.assignment.sampling, "figures": self.assignment.figures}
        return replace(plan, label=label, **of_sweep)

    def attempt(self, interruption: Interruption, point: int) -> PointOutcome:
        """Bring a point to its end, from its last checkpoint.

        An error becomes an outcome, so that it does not stop the other points.
        """
        try:
            return PointOutcome(start_run(self.plan(point), interruption))
        except Exception as problem:
            code, text = exit_code_of(problem), one_line(str(problem))
            if code != ExitCode.INTERNAL_ERROR:
                return PointOutcome(code, text)
            folder, text = self.folder(point), f"{type(problem).__name__}: {text}"
            if (folder / RECIPE_FILE).is_file():
                with suppress(InputError, DiskError), log_to(folder):
                    LOG.info("internal error", exc_info=True)
                text += f" (traceback in {folder / LOG_FILE})"
            return PointOutcome(code, text)

    def do(self, interruption: Interruption, point: int) -> PointOutcome:
        """The same; everything it prints goes next to its directory."""
        folder = self.folder(point)
        with (
            folder.with_name(f"{folder.name}{OUTPUT}").open("a", encoding="utf-8") as output,
            redirect_stdout(output),
            redirect_stderr(output),
        ):
            return self.attempt(interruption, point)


# --- a worker is a command of its own


def refuse_what_workers_lack(plan: Plan, option: str, value: object) -> None:
    """Raise InputError for registrations by a script alone: workers are other processes.

    Every run has all quantities, and a point draws no figures.
    """
    settings = (flattened(point.recipe.model_dump(mode="json")) for point in plan.points)
    used = {value for of_point in settings for value in of_point.values() if type(value) is str}
    for kind, name in registered_by_scripts():
        if name in used or kind == "compared quantity":
            remedy = f"the {kind} {name!r} is registered by a script, and workers do not know it; "
            remedy += f"leave {option} out, or install its module as an entry point"
            raise InputError(option, value, remedy)


def work(directory: Path, interruption: Interruption) -> ExitCode:
    """Do points of the sweep in a directory, as a worker that another command has begun.

    Raises RequeueError when a signal has asked to stop, with everything saved.
    """
    threading.Thread(target=end_with_parent, daemon=True).start()
    folder = directory / FOLDER
    stored = read_json(folder / ASSIGNMENT_FILE)
    assignment = Assignment(**{**stored, "points": tuple(stored["points"])})
    do = partial(PointPlans(directory, assignment).do, interruption)
    for _ in walk(Outcomes(folder), assignment.points, do, interruption):
        pass
    interruption.leave_if_asked("what was in work")
    return ExitCode.OK


def end_with_parent() -> None:
    """Leave at once when the command that began this one is gone: then its pipe ends.

    Files are complete under their names at any moment.
    """
    while os.read(0, 1):
        pass
    os._exit(ExitCode.REQUEUE)


def begin_worker(directory: Path) -> subprocess.Popen:
    """Begin a worker, which finds its modules where this process does."""
    words = ["sweep", str(directory / RECIPE_FILE), "--out", str(directory), "--worker"]
    modules = os.pathsep.join(path or os.getcwd() for path in sys.path)
    with (directory / FOLDER / ERRORS_FILE).open("a", encoding="utf-8") as errors:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "sampler", *words],
            env=os.environ | {"PYTHONPATH": modules},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def by_workers(
    directory: Path, count: int, interruption: Interruption, assignment: Assignment
) -> Iterator[tuple[int, PointOutcome]]:
    """Let workers do points → every one with its outcome.

    One that is killed or signalled is followed by another. A signal to this process is passed on to
    all of them, which save what they do; where it has reached them already it is the same signal.
    """
    outcomes, left = Outcomes.begun(directory, assignment), set(assignment.points)
    lives, signalled = MOST_ATTEMPTS * len(left) + count, False
    workers = [begin_worker(directory) for _ in range(min(count, len(left)))]
    failed: subprocess.Popen | None = None
    try:
        while workers:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            if interruption.received is not None and not signalled:
                signalled = True
                for worker in workers:
                    worker.send_signal(interruption.received)
            gone = [worker for worker in workers if worker.poll() is not None]
            for point in sorted(outcomes.ended() & left):
                left.remove(point)
                yield point, outcomes.of(point)
            for worker in gone:
                workers.remove(worker)
                worker.stdin.close()
                disturbed = worker.returncode < 0 or worker.returncode == ExitCode.REQUEUE
                if disturbed and left and lives and not signalled:
                    lives -= 1
                    workers.append(begin_worker(directory))
                elif worker.returncode:
                    failed = worker
    finally:
        for worker in workers:  # Ctrl-C waits for no chunk
            worker.kill()
            worker.wait()
            worker.stdin.close()
    if left and failed is not None and not signalled:
        lines = (directory / FOLDER / ERRORS_FILE).read_text(encoding="utf-8").splitlines()
        known = failed.returncode in list(ExitCode)
        code = ExitCode(failed.returncode) if known else ExitCode.INTERNAL_ERROR
        outcome = PointOutcome(code, one_line((lines or ["its worker failed"])[-1]))
        yield from ((point, outcome) for point in sorted(left))
