"""A sweep: the points of a grid, done on an engine, then its tables, figures and page.

`run` of a recipe with a grid and the command `sweep` are the same driver, `drive`, with different
engines. An engine takes a command and points and yields each of them with its outcome, in whatever
order.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from sampler.errors import ABSENT, ExitCode, InputError, one_line
from sampler.jobs.interruption import Interruption, listening
from sampler.jobs.run import Job, Point, begun, figures, report, start_run, work_on_point
from sampler.numerics import silence_compiler, use_one_blas_thread
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.lock import locked
from sampler.storage.manifest import claim_directory, fingerprint, finish_command
from sampler.storage.run_directory import (
    LOG,
    LOG_FILE,
    RECIPE_FILE,
    log_to,
    point_directory,
    remove_unfinished,
)
from sampler.tasks.make import make_task
from sampler.tasks.task import Task

COMMAND = "run"


@dataclass(frozen=True)
class PointOutcome:
    """The exit code of a point and, where it was not run to its end, the reason in one line."""

    code: ExitCode
    problem: str = ""


Engine = Callable[[str, Sequence[Point]], Iterator[tuple[Point, PointOutcome]]]
# Exit codes of points that were not run to their end.
NOT_RUN = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.INTERRUPTED)


def sweep_points(recipe: Recipe, directory: Path) -> list[Point]:
    """The points of a recipe's grid, each with a directory of its own.

    Raises InputError if the recipe has no grid, or if two points would share a directory.
    """
    if not recipe.sweep:
        raise InputError("--over", ABSENT, "name what to vary, as in --over network.widths=10,100")
    points = [
        Point(point, point_directory(directory, label), label) for label, point in recipe.points()
    ]
    shared, times = Counter(point.directory.name for point in points).most_common(1)[0]
    if times > 1:
        raise InputError("sweep", shared, "two points have this directory; give each value once")
    start = recipe.sampler.start_from
    if start is not None and Path(start).resolve().is_relative_to(directory.resolve()):
        remedy = "lies in the directory of this sweep; name a run that is no part of it"
        raise InputError("sampler.start_from", start, remedy)
    return points


# --- the driver


def drive(command: str, recipe: Recipe, directory: Path, engine: Engine) -> dict[str, PointOutcome]:
    """Bring every point to its end on an engine: the outcomes by label, the gravest of each point.

    The directory is claimed and locked. Raises RequeueError when a signal has asked to stop, with
    everything saved.
    """
    points = sweep_points(recipe, directory)
    outcomes: dict[str, PointOutcome] = {}
    for of_round in rounds(command, recipe, directory, points):
        for point, outcome in engine(command, of_round) if of_round else ():
            outcomes[point.label] = gravest([outcome, outcomes.get(point.label, outcome)])
    return outcomes


def rounds(
    command: str, recipe: Recipe, directory: Path, points: Sequence[Point]
) -> Iterator[list[Point]]:
    """All points; where only selected ones are sampled, all without sampling, then those chosen."""
    selecting = recipe.sampler.points == "selected"
    yield [replace(point, sampling=not selecting) for point in points]
    if selecting and command == "run":
        from sampler.jobs.selection import chosen_points

        chosen = chosen_points(directory, recipe)
        yield [point for point in points if point.label in chosen]


def gravity(code: ExitCode) -> tuple[bool, ExitCode]:
    """What exit codes are ordered by: points not run to their end count before any verdict."""
    return code in NOT_RUN, code


def gravest(outcomes: Iterable[PointOutcome]) -> PointOutcome:
    """The outcome with the gravest exit code, the first of several."""
    return max(outcomes, key=lambda outcome: gravity(outcome.code))


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    """The gravest exit code."""
    return max(codes, key=gravity)


def gather(command: str, recipe: Recipe, directory: Path, code: ExitCode) -> None:
    """The tables, figures and page of a sweep from the directories of its points.

    `code` is the exit code of the worst of them.
    """
    from sampler.jobs.sweep_tables import write_sweep_tables
    from sampler.storage.results import has_results

    write_sweep_tables(directory, recipe)
    stored = any(has_results(point_directory(directory, label)) for label, _ in recipe.points())
    if command == "run" and stored:
        from sampler.analysis.sweep_verdict import sweep_verdict
        from sampler.presentation.terminal import wrapped

        report(directory, code)
        print(wrapped(sweep_verdict(directory, recipe)))
    elif command != "sample":
        figures(directory)


# --- `run`, `solve`, `sample` and `resume` of a recipe with a grid: the first error ends them


def start(command: str, recipe: Recipe, directory: Path, interruption: Interruption) -> ExitCode:
    """Do "run", "solve" or "sample" of a recipe, of all its points where it has a grid."""
    if recipe.sweep:
        return start_sweep(command, recipe, directory, interruption)
    return start_run(command, Point(recipe, directory), interruption)


def start_sweep(
    command: str, recipe: Recipe, directory: Path, interruption: Interruption
) -> ExitCode:
    """Claim the directory of a grid and do what is left of "run", "solve" or "sample"."""
    sweep_points(recipe, directory)  # before anything is written
    with begun(command, recipe, directory) as task:
        return work_on_sweep(command, recipe, task, directory, interruption)


def work_on_sweep(
    command: str, recipe: Recipe, task: Task, directory: Path, interruption: Interruption
) -> ExitCode:
    """Do what is left of a command for every point, in a claimed and locked directory.

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    with log_to(directory):
        remove_unfinished(directory)
        outcomes = drive(command, recipe, directory, one_by_one(recipe, task, interruption))
        code = worst_code(outcome.code for outcome in outcomes.values())
        gather(command, recipe, directory, code)
        finish_command(directory, command, code)
        print(f"results: {directory}")
        return code


def one_by_one(recipe: Recipe, task: Task, interruption: Interruption) -> Engine:
    """Points in this process, which share the data of the recipe; an error is raised at once."""

    def run_points(command: str, points: Sequence[Point]) -> Iterator[tuple[Point, PointOutcome]]:
        for point in points:
            interruption.leave_if_asked(f"everything before {point.label}")
            print(f"\n{recipe.name}, {point.label}", flush=True)
            LOG.info("point %s", point.label)
            data = task if same_task(point.recipe, recipe) else make_task(point.recipe)
            common = fingerprint(point.recipe, data.identity)
            claim_directory(point.directory, point.recipe, command, common)
            with locked(point.directory):
                code = work_on_point(command, Job(point, data, interruption))
            yield point, PointOutcome(code)

    return run_points


def same_task(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes ask for the same data, attention and heads."""

    def asked(recipe: Recipe) -> tuple:
        network = recipe.network
        return recipe.task, recipe.attention, network.heads, network.hypernetwork

    return asked(one) == asked(other)


# --- the command `sweep`: an error of one point does not stop the others


def run_sweep(recipe: Recipe, directory: Path, engine: Engine) -> ExitCode:
    """Bring every point to its end and write the tables; the exit code is that of the worst point.

    Points that an earlier call finished are not run again. Raises RequeueError when a signal has
    asked to stop: there may be little time left, and nothing is gathered.
    """
    from sampler.analysis.sweeps import read_rows

    sweep_points(recipe, directory)  # before anything is written
    open_sweep(recipe, directory)
    with locked(directory):
        outcomes = drive(COMMAND, recipe, directory, for_unfinished(engine, recipe, directory))
        worst = worst_code(outcome.code for outcome in outcomes.values())
        with log_to(directory):
            gather(COMMAND, recipe, directory, worst)
            print(f"\n{sweep_text(read_rows(directory), outcomes)}\n")
        if worst not in NOT_RUN:
            finish_command(directory, COMMAND, worst)
    print(failures_text(outcomes) or "every point is fine")
    print(f"results: {directory}")
    return worst


def open_sweep(recipe: Recipe, directory: Path) -> None:
    """Claim the directory of a sweep for this recipe, after a look at its data.

    To every other command it then is the directory of a `run` of the same grid.
    """
    claim_directory(directory, recipe, COMMAND, fingerprint(recipe, make_task(recipe).identity))


def for_unfinished(engine: Engine, recipe: Recipe, directory: Path) -> Engine:
    """The engine for the points that no earlier call finished; prints how each of them ended."""

    def run_points(command: str, points: Sequence[Point]) -> Iterator[tuple[Point, PointOutcome]]:
        codes = {point.label: finished_earlier(command, point) for point in points}
        finished = [point for point in points if codes[point.label] is not None]
        left = [point for point in points if codes[point.label] is None]
        print(f"{recipe.name}: {len(points)} points, {len(finished)} finished earlier", flush=True)
        for point in finished:
            yield point, PointOutcome(codes[point.label])
        outcomes = engine(command, left) if left else ()
        for count, (point, outcome) in enumerate(outcomes, start=len(finished) + 1):
            line = f"{count}/{len(points)} {point.label}: {ending(outcome)}"
            print(line, flush=True)
            with log_to(directory):
                LOG.info(line)
            yield point, outcome

    return run_points


def finished_earlier(command: str, point: Point) -> ExitCode | None:
    """The exit code of a point that came to its end earlier, None for any other.

    What was begun with other settings is None: it is refused when it is run, with the reason.
    """
    stored = point.directory / RECIPE_FILE
    code = point.finished(command) if stored.is_file() else None
    return None if code is None or load_recipe(stored) != point.recipe else code


def run_one(
    recipe: Recipe, directory: Path, index: int, interruption: Interruption, alone: bool
) -> ExitCode:
    """Run one point of the grid, as a task of a job array does.

    The many tasks of an array begin at once: they leave the directory of the sweep as it is where
    it is that of this recipe already. Raises InputError for an index that no point has.
    """
    points = sweep_points(recipe, directory)
    if not 0 <= index < len(points):
        raise InputError("--point", index, f"use 0 to {len(points) - 1}")
    stored = directory / RECIPE_FILE
    if not (stored.is_file() and load_recipe(stored) == recipe):
        open_sweep(recipe, directory)
    return run_point(COMMAND, points[index], interruption, alone)


def run_in_process(command: str, points: Sequence[Point]) -> Iterator[tuple[Point, PointOutcome]]:
    """Run one point after the other; after a request to stop, no further one is begun."""
    with listening() as interruption:
        for point in points:
            print(f"\n{point.recipe.name}, {point.label}", flush=True)
            yield point, attempt_point(command, point, interruption)
            interruption.leave_if_asked(f"everything up to {point.label}")


def attempt_point(
    command: str, point: Point, interruption: Interruption, alone: bool = False
) -> PointOutcome:
    """Run a point; an error becomes an outcome, so that it does not stop the other points."""
    try:
        return PointOutcome(run_point(command, point, interruption, alone))
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


def run_point(
    command: str, point: Point, interruption: Interruption, alone: bool = False
) -> ExitCode:
    """Bring a point to its end, from wherever its directory says it stands.

    A finished one is left as it is. `alone` says that whoever calls gives a point to one process
    at a time: a lock left behind on another host is then that of a lost process. Raises
    RequeueError when the interruption asks to stop.
    """
    use_one_blas_thread()
    silence_compiler()
    return start_run(command, point, interruption, alone)


# --- what is printed


ENDINGS = {
    ExitCode.OK: "fine",
    ExitCode.DIAGNOSTICS_FAILED: "diagnostics fail",
    ExitCode.NOT_CONVERGED: "saddle point not converged",
    ExitCode.REQUEUE: "stopped, saved",
}


def sweep_text(rows: Sequence[Mapping[str, str]], outcomes: Mapping[str, PointOutcome]) -> str:
    """Accuracies of every point of a sweep table, and how the point ended."""
    from sampler.analysis.labels import EXACT, LEADING, LIMIT, NEXT, own_key
    from sampler.presentation.terminal import Column, table_lines

    own = own_key("accuracy", "")
    headers = {
        "accuracy_theory": (LEADING, 0),
        "accuracy_next_order": (NEXT, 2),
        **{n: (n.removeprefix(own), 3) for n in rows[0] if n.startswith(own)},
        "accuracy_sampled": (EXACT, 0),
        "accuracy_sampled_mcse": ("± MCSE", 0),
        "accuracy_gp": (LIMIT, 1),
    }
    columns = [
        Column(header.replace(" ", "\n"), [decimals(row.get(name) or "") for row in rows], dropped)
        for name, (header, dropped) in headers.items()
        if any(row.get(name) for row in rows)
    ]
    columns.append(Column("", [ending(outcomes[row["point"]]) for row in rows]))
    *lines, (note,) = table_lines([row["point"] for row in rows], columns)
    notes = [f"{note[:-1]}: all is in sweep.csv)"] if note else []
    return "\n".join(["accuracy", *chain.from_iterable(lines), *notes])


def failures_text(outcomes: Mapping[str, PointOutcome]) -> str:
    """One line per point that did not end well; empty if all did."""
    failed = {label: one for label, one in outcomes.items() if one.code != ExitCode.OK}
    if not failed:
        return ""
    lines = [f"  {label}: {one.problem or ending(one)}" for label, one in failed.items()]
    return "\n".join([f"{len(failed)} of {len(outcomes)} points failed:", *lines])


def ending(outcome: PointOutcome) -> str:
    """How a point ended, in a few words."""
    return ENDINGS.get(outcome.code, f"failed (exit code {int(outcome.code)})")


def decimals(cell: str) -> str:
    """A cell of the table with four decimals."""
    return f"{float(cell):.4f}" if cell else "–"
