"""A sweep: the points of a grid, done by an engine, then its tables, figures and page."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.analysis.text import wrapped
from sampler.errors import ABSENT, ENDINGS, ExitCode, InputError
from sampler.jobs.executors import Engine, PointOutcome, chosen_engine
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import Plan, fingerprint_of_sweep, make_plan
from sampler.jobs.run import open_run_directory, start_run, was_cut_short
from sampler.presentation.terminal import log_errors, print_line
from sampler.runtime import refuse_absent_platforms
from sampler.settings.recipe import Recipe, load_recipe
from sampler.storage.directory import (
    LOG,
    RECIPE_FILE,
    SWEEP_DATASET_FILE,
    ask_the_same,
    claim_directory,
    point_directory,
    remove_unfinished,
)
from sampler.storage.files import to_json, write_json, write_table
from sampler.storage.manifest import finish_command, finished_code

if TYPE_CHECKING:
    from sampler.analysis.sweep_dataset import SweptPoint
    from sampler.analysis.sweep_results import SweepResults

# Exit codes of points that were not run to their end.
NOT_RUN = (
    ExitCode.INTERNAL_ERROR,
    ExitCode.BAD_INPUT,
    ExitCode.DISK_ERROR,
    ExitCode.INTERRUPTED,
)
# How long tasks of an array wait while one after the other claims their directory.
SECONDS_OF_AN_ARRAY = 120.0


def start_sweep(
    plan: Plan,
    interruption: Interruption,
    workers: int | None = None,
    scheduler: str | None = None,
) -> ExitCode:
    """Bring every point to its end and write the tables; the exit code is that of the worst point.

    workers    processes of this machine; None: the points one after the other in this one
    scheduler  address of a Dask cluster

    An error of one point does not stop the others, and points that are finished are left as they
    are. Raises RequeueError when a signal has asked to stop: there may be little time left, and
    nothing is gathered.
    """
    if workers is not None and workers < 1:
        raise InputError("--workers", workers, "must be at least 1")
    # A worker reads the script that began it, and must not begin a sweep by that.
    if workers is not None and getattr(current_process(), "_inheriting", False):
        remedy = 'begin the work of this script under `if __name__ == "__main__":`'
        raise InputError("--workers", workers, remedy)
    with open_run_directory(plan):
        remove_unfinished(plan.directory)
        outcomes: dict[str, PointOutcome] = {}
        with chosen_engine(plan, interruption, workers, scheduler) as engine:
            for points in rounds(plan):
                for point, outcome in outcomes_of(plan, points, engine):
                    earlier = outcomes.get(point.label, outcome)
                    outcomes[point.label] = max(outcome, earlier, key=lambda o: severity(o.code))
                interruption.leave_if_asked("what was in work")
        worst = max((outcome.code for outcome in outcomes.values()), key=severity)
        gather(plan, worst)
        if worst not in NOT_RUN:
            finish_command(plan.directory, plan.command, worst)
        print_line(failures_text(outcomes) or "every point is fine")
        print_line(f"results: {plan.directory}")
    return worst


def rounds(plan: Plan) -> Iterator[Sequence[Plan]]:
    """All points; where only selected ones are sampled, all without sampling, then those chosen."""
    selecting = plan.recipe.sampler.points == "selected" and plan.command == "run"
    yield [replace(point, sampling=not selecting) for point in plan.points]
    if selecting:
        from sampler.analysis.selection import chosen_points

        chosen = chosen_points(plan.directory, plan.recipe)
        yield [point for point in plan.points if point.label in chosen]


def outcomes_of(
    plan: Plan, points: Sequence[Plan], engine: Engine
) -> Iterator[tuple[Plan, PointOutcome]]:
    """Every point with its outcome, in the order in which they end.

    A line says how each ended, and the time left at the speed so far.
    """
    left = []
    for point in points:
        code = finished_earlier(point)
        if code is None:
            left.append(point)
        else:
            yield point, PointOutcome(code)
    earlier = len(points) - len(left)
    print_line(f"{plan.recipe.name}: {len(points)} points, {earlier} finished earlier")
    began = time.monotonic()
    for ended, (point, outcome) in enumerate(engine(left), start=1):
        line = f"{earlier + ended}/{len(points)} {point.label}: {ending(outcome)}"
        if ended < len(left):
            seconds = (time.monotonic() - began) / ended * (len(left) - ended)
            line += f", {seconds:.0f} s left"
        print_line(line)
        LOG.info(line)
        yield point, outcome


def finished_earlier(point: Plan) -> ExitCode | None:
    """The exit code of a point that came to its end earlier, None for any other.

    What was begun with other settings is None: it is refused when it is run, with the reason.
    """
    stored = point.directory / RECIPE_FILE
    if not stored.is_file():
        return None
    code = finished_code(point.directory, point.command, point.files)
    if code is None or was_cut_short(point):
        return None
    return code if ask_the_same(load_recipe(stored), point.asked) else None


def run_one(
    recipe: Recipe, directory: Path, index: int, figures: bool, interruption: Interruption
) -> ExitCode:
    """Run one point of the grid, as a task of a job array does.

    The many tasks of an array begin at once: one makes the directory of the sweep, the others wait
    for it, and leave it as it is. Other points are checked by their own tasks. Raises InputError
    for an index that no point has.
    """
    refuse_without_grid(recipe)
    points = recipe.points()
    if not 0 <= index < len(points):
        raise InputError("--point", index, f"use 0 to {len(points) - 1}")
    label, asked = points[index]
    plan = make_plan("run", asked, point_directory(directory, label), figures)
    refuse_absent_platforms()
    stored = directory / RECIPE_FILE
    if not (stored.is_file() and load_recipe(stored) == recipe):
        shared = fingerprint_of_sweep(recipe)
        claim_directory(directory, recipe, "run", shared, seconds=SECONDS_OF_AN_ARRAY)
    return start_run(replace(plan, label=label), interruption)


def refuse_without_grid(recipe: Recipe) -> None:
    if not recipe.sweep:
        raise InputError("--over", ABSENT, "name what to vary, as in --over network.widths=10,100")


# --- what a sweep writes beside its points


def gather(plan: Plan, code: ExitCode) -> None:
    """Gather a sweep from its points, and write its Dataset, tables, figures and page.

    `code` is the exit code of the worst point.
    """
    from sampler.analysis.sweep_dataset import gathered, swept_points
    from sampler.analysis.sweep_results import sweep_trend
    from sampler.jobs.pages import draw_stored_figures, write_page
    from sampler.presentation.several_runs import points_table

    points = swept_points(plan.directory, plan.recipe)
    sweep = gathered(plan.directory, plan.recipe, points)
    write_sweep(sweep, plan.recipe, points)
    if plan.command == "run" and any(point.stored for point in sweep.points):
        with log_errors("the report"):
            write_page(plan.directory, code, sweep, plan.figures)
            print_line(wrapped(sweep_trend(sweep.points).line))
    elif plan.command != "sample" and plan.figures:
        with log_errors("figures"):
            draw_stored_figures(plan.directory, sweep)
    print_line(f"\n{points_table(sweep.points).text(elsewhere='report.html')}\n")


def write_sweep(sweep: "SweepResults", recipe: Recipe, points: Sequence["SweptPoint"]) -> None:
    """Write everything that a sweep stores beside its points, which are chosen from."""
    from sampler.analysis.selection import selection
    from sampler.analysis.sweep_results import SEED_AVERAGES_FILE, SELECTION_FILE, SWEEP_FILE
    from sampler.storage.result_files import write_result

    write_table(sweep.directory / SWEEP_FILE, sweep.table)
    if sweep.seed_averages is not None:
        write_table(sweep.directory / SEED_AVERAGES_FILE, sweep.seed_averages)
    chosen = selection(recipe, points)
    if chosen:
        write_json(sweep.directory / SELECTION_FILE, to_json(chosen))
    write_result(sweep.directory, SWEEP_DATASET_FILE, sweep.dataset)


# --- exit codes of points


def severity(code: ExitCode) -> tuple[bool, ExitCode]:
    """Return the order of an exit code: points not run to their end count before any verdict."""
    return code in NOT_RUN, code


def failures_text(outcomes: Mapping[str, PointOutcome]) -> str:
    """One line per point that did not end well; empty if all did."""
    failed = {label: each for label, each in outcomes.items() if each.code != ExitCode.OK}
    if not failed:
        return ""
    lines = [f"  {label}: {each.problem or ending(each)}" for label, each in failed.items()]
    return "\n".join([f"{len(failed)} of {len(outcomes)} points failed:", *lines])


def ending(outcome: PointOutcome) -> str:
    """Return the end of a point, in a few words."""
    return ENDINGS.get(outcome.code, f"failed (exit code {int(outcome.code)})")
