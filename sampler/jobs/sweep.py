"""A sweep: the points of a grid, done on an engine, then its tables, figures and page.

`run` of a recipe with a grid and the command `sweep` are the same driver, `drive`, with different
engines. An engine takes a command and points and yields each of them with its outcome, in whatever
order.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.analysis.text import wrapped
from sampler.compiled import cache_programs
from sampler.errors import ABSENT, ExitCode, InputError, one_line
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import Plan, Point, files_made, make_plan, plan_run, points_of, shares_data
from sampler.jobs.run import Job, claimed, figures, log_concerns, report, start_run, work
from sampler.presentation.terminal import log_errors, print_line
from sampler.runtime import free_memory_maps, jax_settings, silence_compiler, use_one_blas_thread
from sampler.settings.recipe import Recipe, load_recipe
from sampler.storage.directory import (
    LOG,
    LOG_FILE,
    RECIPE_FILE,
    SWEEP_DATASET_FILE,
    claim_directory,
    locked,
    log_to,
    remove_unfinished,
)
from sampler.storage.files import write_atomically
from sampler.storage.manifest import finish_command, finished_code
from sampler.teacher import make_labelled_task

if TYPE_CHECKING:
    import pandas as pd

    from sampler.analysis.sweep_dataset import SweptPoint
    from sampler.analysis.sweep_results import SweepResults

COMMAND = "run"


@dataclass(frozen=True)
class PointOutcome:
    """The exit code of a point and, where it was not run to its end, the reason in one line."""

    code: ExitCode
    problem: str = ""


Engine = Callable[[str, Sequence[Point]], Iterator[tuple[Point, PointOutcome]]]
# Exit codes of points that were not run to their end.
NOT_RUN = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.INTERRUPTED)


# --- the driver


def drive(plan: Plan, engine: Engine) -> dict[str, PointOutcome]:
    """Bring every point to its end on an engine: the outcomes by label, the gravest of each point.

    The directory is claimed and locked. Raises RequeueError when a signal has asked to stop, with
    everything saved.
    """
    outcomes: dict[str, PointOutcome] = {}
    for of_round in rounds(plan):
        for point, outcome in engine(plan.command, of_round) if of_round else ():
            outcomes[point.label] = gravest([outcome, outcomes.get(point.label, outcome)])
    return outcomes


def rounds(plan: Plan) -> Iterator[list[Point]]:
    """All points; where only selected ones are sampled, all without sampling, then those chosen."""
    selecting = plan.recipe.sampler.points == "selected"
    yield [replace(point, sampling=not selecting) for point in plan.points]
    if selecting and plan.command == "run":
        from sampler.jobs.selection import chosen_points

        chosen = chosen_points(plan.directory, plan.recipe)
        yield [point for point in plan.points if point.label in chosen]


def gravity(code: ExitCode) -> tuple[bool, ExitCode]:
    """Return the order of an exit code: points not run to their end count before any verdict."""
    return code in NOT_RUN, code


def gravest(outcomes: Iterable[PointOutcome]) -> PointOutcome:
    """The outcome with the gravest exit code, the first of several."""
    return max(outcomes, key=lambda outcome: gravity(outcome.code))


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    return max(codes, key=gravity)


def gather(plan: Plan, code: ExitCode) -> "SweepResults":
    """Gather a sweep from its points, and write its Dataset, tables, figures and page.

    `code` is the exit code of the worst point.
    """
    from sampler.analysis.sweep_dataset import gathered, swept_points
    from sampler.analysis.sweep_results import sweep_trend

    points = swept_points(plan.directory, plan.recipe)
    sweep = gathered(plan.directory, plan.recipe, points)
    write_sweep(sweep, plan.recipe, points)
    if plan.command == "run" and any(point.stored for point in sweep.points):
        with log_errors("the report"):
            report(plan.directory, code, sweep, plan.points[0].figures)
            print_line(wrapped(sweep_trend(sweep.points, sweep.finite_size).line))
    elif plan.command != "sample" and plan.points[0].figures:
        with log_errors("figures"):
            figures(plan.directory, sweep)
    return sweep


def write_sweep(sweep: "SweepResults", recipe: Recipe, points: Sequence["SweptPoint"]) -> None:
    """Write everything that a sweep stores beside its points, which are chosen from."""
    from sampler.analysis import sweep_results
    from sampler.jobs.selection import write_selection
    from sampler.storage.results import write_result

    directory = sweep.directory
    write_table(directory / sweep_results.SWEEP_FILE, sweep.table)
    if sweep.seed_averages is not None:
        write_table(directory / sweep_results.SEED_AVERAGES_FILE, sweep.seed_averages)
    write_selection(directory, recipe, points)
    write_result(directory, SWEEP_DATASET_FILE, sweep.dataset)


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as CSV, empty where a number does not exist."""
    known = table.replace([math.inf, -math.inf], math.nan)
    write_atomically(path, lambda file: known.to_csv(file, index=False, lineterminator="\n"))


# --- `run`, `solve`, `sample` and `resume` of a recipe with a grid: the first error ends them


def start(
    command: str, asked: Point, interruption: Interruption, extended: bool = False
) -> ExitCode:
    """Do "run", "solve" or "sample" of a recipe, of all its points where it has a grid.

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    if not asked.recipe.sweep:
        return start_run(command, asked, interruption, extended=extended)
    plan = make_plan(command, asked)
    with claimed(plan):
        remove_unfinished(plan.directory)
        outcomes = drive(plan, one_by_one(plan, interruption))
        code = worst_code(outcome.code for outcome in outcomes.values())
        gather(plan, code)
        finish_command(plan.directory, command, code)
        print_line(f"results: {plan.directory}")
        return code


def one_by_one(plan: Plan, interruption: Interruption) -> Engine:
    """Points in this process, which share the data of the recipe; an error is raised at once."""
    runs = {run.point.label: run for run in plan.runs}

    def run_points(command: str, points: Sequence[Point]) -> Iterator[tuple[Point, PointOutcome]]:
        for point in points:
            interruption.leave_if_asked(f"everything before {point.label}")
            print_line(f"\n{plan.recipe.name}, {point.label}")
            LOG.info("point %s", point.label)
            free_memory_maps()
            run = replace(runs[point.label], point=point)
            if not shares_data(point.recipe, plan.recipe):
                run = plan_run(command, point, make_labelled_task(point.recipe))
                log_concerns(run.task)
            directory = point.directory
            claim_directory(directory, point.recipe, command, run.determining, run.known)
            with locked(directory):
                code = work(Job(run, interruption))
            yield point, PointOutcome(code)

    return run_points


# --- the command `sweep`: an error of one point does not stop the others


def run_sweep(asked: Point, engine: Engine) -> ExitCode:
    """Bring every point to its end and write the tables; the exit code is that of the worst point.

    Points that an earlier call finished are not run again. Raises RequeueError when a signal has
    asked to stop: there may be little time left, and nothing is gathered.
    """
    from sampler.presentation.several_runs import points_table

    plan, directory = open_sweep(asked), asked.directory
    with locked(directory), jax_settings():
        outcomes = drive(plan, for_unfinished(engine, asked.recipe, directory))
        worst = worst_code(outcome.code for outcome in outcomes.values())
        with log_to(directory):
            table = points_table(gather(plan, worst).points)
            print_line(f"\n{table.text(elsewhere='report.html')}\n")
        if worst not in NOT_RUN:
            finish_command(directory, COMMAND, worst)
    print_line(failures_text(outcomes) or "every point is fine")
    print_line(f"results: {directory}")
    return worst


def open_sweep(asked: Point) -> Plan:
    """Plan a sweep and claim its directory.

    To every other command it then is the directory of a `run` of the same grid.
    """
    if not asked.recipe.sweep:
        raise InputError("--over", ABSENT, "name what to vary, as in --over network.widths=10,100")
    plan = make_plan(COMMAND, asked)
    claim_directory(asked.directory, asked.recipe, COMMAND, plan.determining, plan.known)
    with log_to(asked.directory):
        log_concerns(plan.task)
    return plan


def for_unfinished(engine: Engine, recipe: Recipe, directory: Path) -> Engine:
    """The engine for the points that no earlier call finished; prints how each of them ended."""

    def run_points(command: str, points: Sequence[Point]) -> Iterator[tuple[Point, PointOutcome]]:
        codes = {point.label: finished_earlier(command, point) for point in points}
        finished = [point for point in points if codes[point.label] is not None]
        left = [point for point in points if codes[point.label] is None]
        print_line(f"{recipe.name}: {len(points)} points, {len(finished)} finished earlier")
        for point in finished:
            yield point, PointOutcome(codes[point.label])
        outcomes = engine(command, left) if left else ()
        for count, (point, outcome) in enumerate(outcomes, start=len(finished) + 1):
            line = f"{count}/{len(points)} {point.label}: {ending(outcome)}"
            print_line(line)
            with log_to(directory):
                LOG.info(line)
            yield point, outcome

    return run_points


def finished_earlier(command: str, point: Point) -> ExitCode | None:
    """The exit code of a point that came to its end earlier, None for any other.

    What was begun with other settings is None: it is refused when it is run, with the reason.
    """
    stored = point.directory / RECIPE_FILE
    made = files_made(command, point)
    code = finished_code(point.directory, command, made) if stored.is_file() else None
    return None if code is None or load_recipe(stored) != point.recipe else code


def run_one(asked: Point, index: int, interruption: Interruption) -> ExitCode:
    """Run one point of the grid, as a task of a job array does.

    The many tasks of an array begin at once: they leave the directory of the sweep as it is where
    it is that of this recipe already. Raises InputError for an index that no point has.
    """
    stored = asked.directory / RECIPE_FILE
    planned = stored.is_file() and load_recipe(stored) == asked.recipe
    points = points_of(asked) if planned else open_sweep(asked).points
    if not 0 <= index < len(points):
        raise InputError("--point", index, f"use 0 to {len(points) - 1}")
    return run_point(COMMAND, points[index], interruption)


def in_process(interruption: Interruption) -> Engine:
    """One point after the other; after a request to stop, no further one is begun."""

    def run_points(command: str, points: Sequence[Point]) -> Iterator[tuple[Point, PointOutcome]]:
        for point in points:
            print_line(f"\n{point.recipe.name}, {point.label}")
            yield point, attempt_point(command, point, interruption)
            interruption.leave_if_asked(f"everything up to {point.label}")

    return run_points


def attempt_point(command: str, point: Point, interruption: Interruption) -> PointOutcome:
    """Run a point; an error becomes an outcome, so that it does not stop the other points."""
    try:
        return PointOutcome(run_point(command, point, interruption))
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


def run_point(command: str, point: Point, interruption: Interruption) -> ExitCode:
    """Bring a point to its end, from wherever its directory says it stands.

    A finished one is left as it is. Raises RequeueError when the interruption asks to stop.
    """
    use_one_blas_thread()
    cache_programs()
    silence_compiler()
    return start_run(command, point, interruption)


# --- what is printed


ENDINGS = {
    ExitCode.OK: "fine",
    ExitCode.DIAGNOSTICS_FAILED: "diagnostics fail",
    ExitCode.NOT_CONVERGED: "saddle point not converged",
    ExitCode.REQUEUE: "stopped, saved",
}


def failures_text(outcomes: Mapping[str, PointOutcome]) -> str:
    """One line per point that did not end well; empty if all did."""
    failed = {label: one for label, one in outcomes.items() if one.code != ExitCode.OK}
    if not failed:
        return ""
    lines = [f"  {label}: {one.problem or ending(one)}" for label, one in failed.items()]
    return "\n".join([f"{len(failed)} of {len(outcomes)} points failed:", *lines])


def ending(outcome: PointOutcome) -> str:
    """Return the end of a point, in a few words."""
    return ENDINGS.get(outcome.code, f"failed (exit code {int(outcome.code)})")
