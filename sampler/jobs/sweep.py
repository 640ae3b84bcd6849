"""A sweep: the points of a grid, done by workers, then its tables, figures and page."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import replace
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.analysis.text import wrapped
from sampler.errors import ABSENT, ExitCode, InputError, Option
from sampler.jobs.executors import NOT_BEGUN, PointOutcome, Workers, chosen_workers, run_point
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import Plan, make_plan
from sampler.jobs.run import open_run_directory
from sampler.presentation.terminal import log_errors, print_line
from sampler.settings.recipe import Recipe, load_recipe
from sampler.storage.directory import (
    LOG,
    RECIPE_FILE,
    SWEEP_DATASET_FILE,
    point_directory,
    remove_unfinished,
)
from sampler.storage.files import write_table
from sampler.storage.manifest import finish_command, finished_code

if TYPE_CHECKING:
    from sampler.analysis.sweep_dataset import SweptPoint
    from sampler.analysis.sweep_results import SweepResults

SECONDS_BETWEEN_LOOKS = 0.5
# Workers that a point may lose before it is given up.
MOST_LOST = 3
# Exit codes of points that were not run to their end.
NOT_RUN = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.INTERRUPTED)


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
        raise InputError(Option("workers"), workers, "must be at least 1")
    # A worker reads the script that began it, and must not begin a sweep by that.
    if workers is not None and getattr(current_process(), "_inheriting", False):
        remedy = 'begin the work of this script under `if __name__ == "__main__":`'
        raise InputError(Option("workers"), workers, remedy)
    with open_run_directory(plan):
        remove_unfinished(plan.directory)
        outcomes: dict[str, PointOutcome] = {}
        with chosen_workers(plan, interruption, workers, scheduler) as pool:
            for points in rounds(plan):
                for point, outcome in outcomes_of(plan, points, pool, interruption):
                    before = outcomes.get(point.label, outcome)
                    outcomes[point.label] = gravest([outcome, before])
        worst = worst_code(outcome.code for outcome in outcomes.values())
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
        from sampler.jobs.selection import chosen_points

        chosen = chosen_points(plan.directory, plan.recipe)
        yield [point for point in plan.points if point.label in chosen]


def outcomes_of(
    plan: Plan, points: Sequence[Plan], pool: Workers, interruption: Interruption
) -> Iterator[tuple[Plan, PointOutcome]]:
    """Every point with its outcome, in the order in which they end; says how each of them ended.

    Raises RequeueError when a signal has asked to stop, and who was at work has saved.
    """
    codes = [(point, finished_earlier(point)) for point in points]
    yield from ((point, PointOutcome(code)) for point, code in codes if code is not None)
    waiting = deque(point for point, code in codes if code is None)
    count = len(points) - len(waiting)
    print_line(f"{plan.recipe.name}: {len(points)} points, {count} finished earlier")
    at_work: dict[Future, Plan] = {}
    lost: Counter[str] = Counter()
    while waiting or at_work:
        while waiting and len(at_work) < pool.size and interruption.received is None:
            point = waiting.popleft()
            at_work[pool.submit(point)] = point
        if interruption.received is not None:
            pool.ask(interruption.received)
            waiting.clear()
        ended, _ = wait(at_work, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
        for future in ended:
            point = at_work.pop(future)
            outcome = outcome_of(future)
            if outcome is None and lost[point.label] < MOST_LOST - 1:
                lost[point.label] += 1
                waiting.append(point)
                continue
            outcome = outcome or PointOutcome(ExitCode.INTERNAL_ERROR, LOST)
            if outcome.problem == NOT_BEGUN:
                continue
            count += 1
            line = f"{count}/{len(points)} {point.label}: {ending(outcome)}"
            print_line(line)
            LOG.info(line)
            yield point, outcome
    interruption.leave_if_asked("what the workers had in work")


LOST = f"its worker was killed {MOST_LOST} times; the same command goes on from here"


def outcome_of(future: Future) -> PointOutcome | None:
    """The outcome of a point; None where its worker was killed."""
    try:
        return future.result()
    except (BrokenExecutor, CancelledError):
        return None
    except Exception as problem:  # of Dask: a worker given up, an environment without this package
        text = f"Dask gave it up ({type(problem).__name__}); the same command goes on from here"
        return PointOutcome(ExitCode.INTERNAL_ERROR, text)


def finished_earlier(point: Plan) -> ExitCode | None:
    """The exit code of a point that came to its end earlier, None for any other.

    What was begun with other settings is None: it is refused when it is run, with the reason.
    """
    stored = point.directory / RECIPE_FILE
    if not stored.is_file():
        return None
    code = finished_code(point.directory, point.command, point.files)
    return None if code is None or load_recipe(stored) != point.asked else code


def run_one(
    recipe: Recipe, directory: Path, index: int, figures: bool, interruption: Interruption
) -> ExitCode:
    """Run one point of the grid, as a task of a job array does.

    The many tasks of an array begin at once: they leave the directory of the sweep as it is where
    it is that of this recipe already. Raises InputError for an index that no point has.
    """
    refuse_without_grid(recipe)
    points = recipe.points()
    if not 0 <= index < len(points):
        raise InputError("--point", index, f"use 0 to {len(points) - 1}")
    stored = directory / RECIPE_FILE
    if not (stored.is_file() and load_recipe(stored) == recipe):
        with open_run_directory(make_plan("run", recipe, directory, figures)):
            pass
    label, asked = points[index]
    plan = make_plan("run", asked, point_directory(directory, label), figures)
    return run_point(replace(plan, label=label), interruption)


def refuse_without_grid(recipe: Recipe) -> None:
    if not recipe.sweep:
        raise InputError(
            Option("over"), ABSENT, "name what to vary, as in --over network.widths=10,100"
        )


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
            print_line(wrapped(sweep_trend(sweep.points, sweep.finite_size).line))
    elif plan.command != "sample" and plan.figures:
        with log_errors("figures"):
            draw_stored_figures(plan.directory, sweep)
    print_line(f"\n{points_table(sweep.points).text(elsewhere='report.html')}\n")


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


# --- exit codes of points


def severity(code: ExitCode) -> tuple[bool, ExitCode]:
    """Return the order of an exit code: points not run to their end count before any verdict."""
    return code in NOT_RUN, code


def gravest(outcomes: Iterable[PointOutcome]) -> PointOutcome:
    """The outcome with the gravest exit code, the first of several."""
    return max(outcomes, key=lambda outcome: severity(outcome.code))


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    return max(codes, key=severity)


ENDINGS = {
    ExitCode.OK: "fine",
    ExitCode.DIAGNOSTICS_FAILED: "diagnostics fail",
    ExitCode.NOT_CONVERGED: "saddle point not converged",
    ExitCode.REQUEUE: "stopped, saved",
}


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
