"""A sweep: its points, done on an engine, and what is printed of them."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from sampler.errors import ABSENT, ExitCode, InputError, one_line
from sampler.jobs.interruption import Interruption, listening
from sampler.numerics import silence_compiled_cache, use_one_blas_thread
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.lock import locked
from sampler.storage.manifest import claim_directory, fingerprint, finish_command
from sampler.storage.run_directory import LOG, LOG_FILE, RECIPE_FILE, log_to, point_directory
from sampler.tasks.make import make_task

# Modules that read data or compute are imported where they are needed: in another process
# `run_point` is what sets the BLAS threads, and it does so before they are there.

COMMAND = "run"


@dataclass(frozen=True)
class SweepPoint:
    """One recipe of a grid: its label `key=value,…` and the directory of its results."""

    label: str
    recipe: Recipe
    directory: Path


@dataclass(frozen=True)
class PointOutcome:
    """The exit code of a point and, where it was not run to its end, the reason in one line."""

    code: ExitCode
    problem: str = ""


def run_point(recipe: Recipe, directory: Path, alone: bool = False) -> ExitCode:
    """Bring a point to its end, from wherever its directory says it stands.

    A finished one is left as it is. `alone` says that whoever calls gives a point to one process
    at a time: a lock left behind on another host is then that of a lost process. Raises
    RequeueError after a signal, which is heard in the main thread only.
    """
    use_one_blas_thread()
    silence_compiled_cache()
    from sampler.jobs.start import start_run

    main = threading.current_thread() is threading.main_thread()
    with listening() if main else nullcontext(Interruption()) as interruption:
        return start_run(COMMAND, recipe, directory, interruption, alone)


def attempt_point(point: SweepPoint, alone: bool = False) -> PointOutcome:
    """Run a point; an error becomes an outcome, so that it does not stop the other points."""
    try:
        return PointOutcome(run_point(point.recipe, point.directory, alone))
    except Exception as problem:
        code = getattr(problem, "exit_code", ExitCode.INTERNAL_ERROR)
        if code != ExitCode.INTERNAL_ERROR:
            return PointOutcome(code, one_line(str(problem)))
        text = f"{type(problem).__name__}: {one_line(str(problem))}"
        if (point.directory / RECIPE_FILE).is_file():
            with log_to(point.directory):
                LOG.info("internal error", exc_info=True)
            text += f" (traceback in {point.directory / LOG_FILE})"
        return PointOutcome(code, text)


def finished_earlier(point: SweepPoint) -> ExitCode | None:
    """The exit code of a point that came to its end earlier, None for any other."""
    from sampler.storage.manifest import finished_code, read_manifest
    from sampler.storage.results import DRAWS_FILE, THEORY_FILE

    sampled = "sample" in read_manifest(point.directory).seconds
    solved = point.recipe.network.fits_theory
    files = [RECIPE_FILE, *([THEORY_FILE] if solved else []), *([DRAWS_FILE] if sampled else [])]
    code = finished_code(point.directory, COMMAND, files)
    if code is None:
        return None
    # What was begun with other settings is refused when it is run, with the reason.
    return code if load_recipe(point.directory / RECIPE_FILE) == point.recipe else None


ENDINGS = {
    ExitCode.OK: "fine",
    ExitCode.DIAGNOSTICS_FAILED: "diagnostics fail",
    ExitCode.NOT_CONVERGED: "saddle point not converged",
    ExitCode.REQUEUE: "stopped, saved",
}
HEADER = ("point", "theory", "sampled", "± MCSE", "GP", "")
COLUMNS = ("accuracy_theory", "accuracy_sampled", "accuracy_sampled_mcse", "accuracy_gp")


def sweep_text(rows: Sequence[Mapping[str, str]], outcomes: Mapping[str, PointOutcome]) -> str:
    """Accuracies of every point of a sweep table, and how the point ended."""
    cells = [HEADER] + [
        (
            row["point"],
            *(decimals(row.get(column) or "") for column in COLUMNS),
            ending(outcomes[row["point"]]),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    lines = [
        f"{line[0]:<{widths[0]}}"
        + "".join(f"  {c:>{w}}" for c, w in zip(line[1:-1], widths[1:-1], strict=True))
        + f"  {line[-1]}"
        for line in cells
    ]
    return "\n".join(["accuracy", *(line.rstrip() for line in lines)])


def failures_text(outcomes: Mapping[str, PointOutcome]) -> str:
    """One line per point that did not end well; empty if all did."""
    failed = {label: one for label, one in outcomes.items() if one.code != ExitCode.OK}
    if not failed:
        return ""
    lines = [f"  {label}: {one.problem or ending(one)}" for label, one in failed.items()]
    return "\n".join([f"{len(failed)} of {len(outcomes)} points failed:", *lines])


def ending(outcome: PointOutcome) -> str:
    return ENDINGS.get(outcome.code, f"failed (exit code {int(outcome.code)})")


def decimals(cell: str) -> str:
    return f"{float(cell):.4f}" if cell else "–"


def run_in_process(points: Sequence[SweepPoint]) -> Iterator[tuple[SweepPoint, PointOutcome]]:
    """Run every point and say how it ended; after a request to stop, no further one is begun."""
    with listening() as between:  # within a point, the point listens
        for point in points:
            print(f"\n{point.recipe.name}, {point.label}", flush=True)
            outcome = attempt_point(point)
            if between.interrupted:
                raise KeyboardInterrupt
            yield point, outcome
            if outcome.code == ExitCode.REQUEUE or between.received:
                return


# Exit codes of points that were not run to their end.
NOT_RUN = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.INTERRUPTED)
Engine = Callable[[Sequence[SweepPoint]], Iterator[tuple[SweepPoint, PointOutcome]]]


def sweep_points(recipe: Recipe, directory: Path) -> list[SweepPoint]:
    """The points of a recipe's grid, where `run` puts them.

    Raises InputError if the recipe has no grid, or if two points would share a directory.
    """
    if not recipe.sweep:
        raise InputError("--over", ABSENT, "name what to vary, as in --over network.widths=10,100")
    points = [
        SweepPoint(label, point, point_directory(directory, label))
        for label, point in recipe.points()
    ]
    shared, times = Counter(point.directory.name for point in points).most_common(1)[0]
    if times > 1:
        raise InputError("sweep", shared, "two points have this directory; give each value once")
    return points


def open_sweep(recipe: Recipe, directory: Path) -> None:
    """Claim the directory of a sweep for this recipe, after a look at its data.

    To everything else it then is the directory of a `run` of the same grid.
    """
    claim_directory(directory, recipe, COMMAND, fingerprint(recipe, make_task(recipe).checksum))


def is_opened(recipe: Recipe, directory: Path) -> bool:
    """Whether the directory is that of this sweep already.

    The many tasks of a job array begin at once: they read the directory and leave it as it is.
    """
    stored = directory / RECIPE_FILE
    return stored.is_file() and load_recipe(stored) == recipe


def run_sweep(recipe: Recipe, directory: Path, engine: Engine) -> ExitCode:
    """Bring every point to its end and write the tables; the exit code is that of the worst point.

    Points that an earlier call finished are not run again.
    """
    points = sweep_points(recipe, directory)
    open_sweep(recipe, directory)
    with locked(directory):
        outcomes = finished_points(points)
        left = [point for point in points if point.label not in outcomes]
        print(f"{recipe.name}: {len(points)} points, {len(outcomes)} finished earlier", flush=True)
        for point, outcome in engine(left) if left else ():
            outcomes[point.label] = outcome
            report(directory, f"{len(outcomes)}/{len(points)} {point.label}: {ending(outcome)}")
        for point in points:
            outcomes.setdefault(point.label, PointOutcome(ExitCode.REQUEUE, "not begun"))
        worst = worst_code(outcome.code for outcome in outcomes.values())
        if worst != ExitCode.REQUEUE:  # else there is little time left
            with log_to(directory):
                gather(recipe, directory, outcomes)
            if worst not in NOT_RUN:
                finish_command(directory, COMMAND, worst)
    print(failures_text(outcomes) or "every point is fine")
    print(f"results: {directory}")
    return worst


def report(directory: Path, line: str) -> None:
    print(line, flush=True)
    with log_to(directory):
        LOG.info(line)


def finished_points(points: Sequence[SweepPoint]) -> dict[str, PointOutcome]:
    """Label → outcome of the points whose directories hold everything."""
    codes = {point.label: finished_earlier(point) for point in points}
    return {label: PointOutcome(code) for label, code in codes.items() if code is not None}


def gather(recipe: Recipe, directory: Path, outcomes: dict[str, PointOutcome]) -> None:
    """Write and print the tables and draw the figures, from whatever points there are."""
    from sampler.jobs.run import gather as write_tables
    from sampler.jobs.sweep_tables import read_rows

    worst = worst_code(outcome.code for outcome in outcomes.values())
    write_tables(COMMAND, recipe, directory, worst)
    rows = read_rows(directory)
    print("\n" + sweep_text(rows, {row["point"]: outcomes[row["point"]] for row in rows}) + "\n")


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    """The gravest exit code: points that were not run to their end count before any verdict."""
    return max(codes, key=lambda code: (code in NOT_RUN, code))
