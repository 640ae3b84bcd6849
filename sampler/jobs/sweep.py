"""A sweep: the points of a grid, done by workers, then its tables, figures and page."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.analysis.text import wrapped
from sampler.errors import ABSENT, ENDINGS, ExitCode, InputError
from sampler.jobs.done import finished_code
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import Plan, fingerprint_of_sweep, make_plan
from sampler.jobs.run import open_directory, start_run
from sampler.jobs.workers import (
    Assignment,
    Outcomes,
    PointOutcome,
    PointPlans,
    by_workers,
    refuse_what_workers_lack,
    walk,
)
from sampler.presentation.terminal import log_errors, print_line
from sampler.runtime import jax_settings, prepare_devices
from sampler.settings.recipe import Recipe
from sampler.storage.directory import (
    LOG,
    RECIPE_FILE,
    SWEEP_DATASET_FILE,
    point_directory,
)
from sampler.storage.files import write_json, write_table
from sampler.storage.manifest import read_manifest
from sampler.storage.run_directory import opened_directory

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


# Does its assignment, and gives every point with its outcome in the order in which they end.
# Where a signal asks to stop, no other point is begun, and those in work are saved.
Engine = Callable[[Assignment], Iterator[tuple[int, PointOutcome]]]


def start_sweep(
    plan: Plan,
    interruption: Interruption,
    workers: int | None = None,
    scheduler: str | None = None,
) -> ExitCode:
    """Bring every point to its end and write the tables; the exit code is that of the worst point.

    workers    commands on this machine; None: the points one after the other in this process
    scheduler  address of a Dask cluster

    An error of one point does not stop the others, and points that are finished are left as they
    are. Raises RequeueError when a signal has asked to stop: there may be little time left, and
    nothing is gathered.
    """
    if workers is not None and workers < 1:
        raise InputError("--workers", workers, "must be at least 1")
    for option, value in (("workers", workers), ("scheduler", scheduler)):
        if value is not None:
            refuse_what_workers_lack(plan, f"--{option}", value)
    prepare_devices()
    with open_directory(plan) as directory:
        outcomes: dict[str, PointOutcome] = {}
        with chosen_engine(plan, interruption, workers, scheduler) as engine:
            for assignment in assignments(plan):
                for label, outcome in outcomes_of(plan, assignment, engine):
                    earlier = outcomes.get(label, outcome)
                    outcomes[label] = max(outcome, earlier, key=lambda o: severity(o.code))
                interruption.leave_if_asked("what was in work")
        worst = max((outcome.code for outcome in outcomes.values()), key=severity)
        with jax_settings():
            gather(plan, worst)
        if worst not in NOT_RUN:
            directory.end(worst)
        print_line(failures_text(outcomes) or "every point is fine")
        print_line(f"results: {plan.directory}")
    return worst


@contextmanager
def chosen_engine(
    plan: Plan, interruption: Interruption, workers: int | None, scheduler: str | None
) -> Iterator[Engine]:
    """So many workers on this machine, the cluster behind a Dask scheduler, or this process."""
    if scheduler is not None:
        from sampler.jobs.dask_workers import by_dask, dask_client

        with dask_client(scheduler) as client:
            yield partial(by_dask, client, plan.directory, interruption)
    elif workers is not None:
        yield partial(by_workers, plan.directory, workers, interruption)
    else:
        yield partial(here, plan, interruption)


def here(
    plan: Plan, interruption: Interruption, assignment: Assignment
) -> Iterator[tuple[int, PointOutcome]]:
    """Do points in this process, and show their output."""
    plans = PointPlans(plan.directory, assignment, plan.data)

    def do(number: int) -> PointOutcome:
        print_line(f"\n{plan.recipe.name}, {plan.points[number].label}")
        return plans.attempt(interruption, number)

    outcomes = Outcomes.begun(plan.directory, assignment)
    yield from walk(outcomes, assignment.points, do, interruption)


def assignments(plan: Plan) -> Iterator[Assignment]:
    """All points; where only selected ones are sampled, all without sampling, then those chosen."""
    selecting = plan.recipe.sampler.points == "selected" and plan.command == "run"
    every = range(len(plan.points))
    asked = Assignment(plan.command, tuple(every), not selecting, plan.figures)
    yield asked
    if selecting:
        from sampler.analysis.selection import chosen_points

        chosen = chosen_points(plan.directory, plan.recipe)
        points = tuple(number for number in every if plan.points[number].label in chosen)
        yield replace(asked, points=points, sampling=True)


def outcomes_of(
    plan: Plan, assignment: Assignment, engine: Engine
) -> Iterator[tuple[str, PointOutcome]]:
    """The label of every point with its outcome, in the order in which they end.

    A line states how each ended, and the time left at the speed so far.
    """
    left = []
    for number in assignment.points:
        point = replace(plan.points[number], sampling=assignment.sampling)
        code = finished_code(point, read_manifest(point.directory))
        if code is None:
            left.append(number)
        else:
            yield point.label, PointOutcome(code)
    count, earlier = len(assignment.points), len(assignment.points) - len(left)
    print_line(f"{plan.recipe.name}: {count} points, {earlier} finished earlier")
    began = time.monotonic()
    done = engine(replace(assignment, points=tuple(left)))
    for ended, (number, outcome) in enumerate(done, start=1):
        label = plan.points[number].label
        line = f"{earlier + ended}/{count} {label}: {ending(outcome)}"
        if ended < len(left):
            seconds = (time.monotonic() - began) / ended * (len(left) - ended)
            line += f", {seconds:.0f} s left"
        print_line(line)
        LOG.info(line)
        yield label, outcome


def run_one(
    recipe: Recipe, directory: Path, index: int, figures: bool, interruption: Interruption
) -> ExitCode:
    """Run one point of the grid, as a task of a job array does.

    The many tasks of an array begin at once: one makes the directory of the sweep, the others wait
    for it, and leave it as it is. Other points are checked by their own tasks. Raises InputError
    for an index that no point has.
    """
    points = recipe.points()
    if not 0 <= index < len(points):
        raise InputError("--point", index, f"use 0 to {len(points) - 1}")
    label, asked = points[index]
    plan = make_plan("run", asked, point_directory(directory, label), figures)
    prepare_devices()
    stored = directory / RECIPE_FILE
    if not (stored.is_file() and Recipe.load(stored) == recipe):
        shared = fingerprint_of_sweep(recipe)
        with opened_directory(directory, recipe, shared, seconds=SECONDS_OF_AN_ARRAY) as whole:
            whole.begin("run")
    return start_run(replace(plan, label=label), interruption)


def refuse_without_grid(recipe: Recipe) -> None:
    if not recipe.sweep:
        raise InputError("--over", ABSENT, "name what to vary, as in --over network.widths=10,100")


# --- files of a sweep besides its points


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
    """Write the files of a sweep besides its points, which are chosen from."""
    from sampler.analysis.selection import selection
    from sampler.analysis.sweep_results import SEED_AVERAGES_FILE, SELECTION_FILE, SWEEP_FILE
    from sampler.storage.result_files import write_result

    write_table(sweep.directory / SWEEP_FILE, sweep.table)
    if sweep.seed_averages is not None:
        write_table(sweep.directory / SEED_AVERAGES_FILE, sweep.seed_averages)
    chosen = selection(recipe, points)
    if chosen:
        write_json(sweep.directory / SELECTION_FILE, chosen)
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
