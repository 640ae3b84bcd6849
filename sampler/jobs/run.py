"""Commands as sequences of stages, each done once, and their exit codes."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sampler.errors import ExitCode
from sampler.jobs.interruption import Interruption
from sampler.jobs.keeper import ChainKeeper
from sampler.jobs.selection import chosen_points
from sampler.jobs.stages import compare_stage, diagnose_stage, sample_stage, solve_stage
from sampler.jobs.sweep_tables import (
    write_finite_size,
    write_seed_averages,
    write_sweep_dataset,
    write_sweep_table,
)
from sampler.presentation.summary import comparison_text, diagnostics_text, theory_text
from sampler.problem import AnyProblem, make_problem
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.lock import locked
from sampler.storage.manifest import (
    claim_directory,
    fingerprint,
    finish_command,
    finished_code,
    read_manifest,
    record_stage,
)
from sampler.storage.results import (
    COMPARISON_FILE,
    DRAWS_FILE,
    THEORY_FILE,
    has_results,
    read_draws,
    read_theory,
)
from sampler.storage.run_directory import (
    CHECKPOINT_FOLDER,
    RECIPE_FILE,
    log_to,
    point_directory,
    remove_unfinished,
)
from sampler.tasks.make import make_task
from sampler.tasks.task import Task

FIGURES = (".png", ".svg")


def written_text(paths: Sequence[Path]) -> str:
    """Figures by name, their formats together, then every other file by its path."""
    drawn: dict[Path, dict[str, None]] = {}
    others = []
    for path in paths:
        if path.suffix in FIGURES:
            drawn.setdefault(path.parent, {})[path.stem] = None
        else:
            others.append(f"{path.stem}: {path}")
    lines = [f"figures in {folder}: {', '.join(names)}" for folder, names in drawn.items()]
    return "\n".join(lines + others)


LOG = logging.getLogger("attention_posterior")


@dataclass(frozen=True)
class Point:
    """One run to be done: a recipe without a sweep, its data and its claimed directory."""

    recipe: Recipe
    task: Task
    directory: Path
    interruption: Interruption
    sampling: bool = True

    @cached_property
    def problem(self) -> AnyProblem:
        """What theory and samplers work on; made when the first of them has something to do."""
        return make_problem(self.recipe, self.task)

    def sampled(self) -> bool:
        """Whether this point is sampled, or left to theory by its width or by its sweep."""
        widest = max(self.recipe.network.layer_widths(self.task.layers))
        return self.sampling and self.recipe.sampler.samples_at(widest)

    @property
    def solved(self) -> bool:
        """Whether this point has a theory; a network that has none is only sampled."""
        return self.recipe.network.fits_theory

    def keeper(self) -> ChainKeeper:
        """Keeps the chains of this point on disk."""
        folder = self.directory / CHECKPOINT_FOLDER
        return ChainKeeper(folder, fingerprint(self.recipe, self.task.checksum), self.interruption)

    def done(self, stage: str, *files: str) -> bool:
        """Whether a stage is recorded as finished and its files are there."""
        finished = stage in read_manifest(self.directory).seconds
        return finished and all((self.directory / file).is_file() for file in files)


def work(
    command: str, recipe: Recipe, task: Task, directory: Path, interruption: Interruption
) -> ExitCode:
    """Do "run", "solve" or "sample" in a claimed directory, or what is left of it.

    A sweep is done point by point, each in a directory of its own. Raises RequeueError when the
    interruption asks to stop, with everything saved.
    """
    with log_to(directory):
        remove_unfinished(directory)
        if not recipe.sweep:
            code = work_on_point(command, Point(recipe, task, directory, interruption))
            print(f"results: {directory}")
            return code
        selecting = recipe.sampler.points == "selected"
        whole = Sweep(command, recipe, task, directory, interruption)
        codes = whole.work(recipe.points(), sampling=not selecting)
        if selecting and command == "run":
            chosen = chosen_points(directory, recipe)
            points = [(label, point) for label, point in recipe.points() if label in chosen]
            codes += whole.work(points, sampling=True)
        code = max(codes)
        gather(command, recipe, directory, code)
        finish_command(directory, command, code)
        print(f"results: {directory}")
        return code


@dataclass(frozen=True)
class Sweep:
    """The points of a recipe's grid, done one after the other in this process."""

    command: str
    recipe: Recipe
    task: Task
    directory: Path
    interruption: Interruption

    def work(self, points: Sequence[tuple[str, Recipe]], sampling: bool) -> list[ExitCode]:
        """Do what is left of these points, each in its own directory."""
        codes = []
        for label, recipe in points:
            self.interruption.leave_if_asked(f"everything before {label}")
            print(f"\n{self.recipe.name}, {label}", flush=True)
            LOG.info("point %s", label)
            task = self.task if _same_task(recipe, self.recipe) else make_task(recipe)
            where = point_directory(self.directory, label)
            claim_directory(where, recipe, self.command, fingerprint(recipe, task.checksum))
            with locked(where):
                remove_unfinished(where)
                point = Point(recipe, task, where, self.interruption, sampling)
                codes.append(work_on_point(self.command, point))
        return codes


def work_on_point(command: str, point: Point) -> ExitCode:
    """Do what is left of a command for one point; nothing if it came to its end before."""
    code = finished_with(command, point)
    if code is not None:
        print(f"{point.directory}: `{command}` was finished before, with exit code {int(code)}")
        return code
    code = COMMANDS[command](point)
    finish_command(point.directory, command, code)
    return code


def finished_with(command: str, point: Point) -> ExitCode | None:
    """Exit code of a command that came to its end here, its files still there; else None."""
    files = {
        "solve": [THEORY_FILE],
        "sample": [DRAWS_FILE, COMPARISON_FILE],
        "run": [
            *([THEORY_FILE] if point.solved else []),
            *([DRAWS_FILE, COMPARISON_FILE] if point.sampled() else []),
        ],
    }[command]
    return finished_code(point.directory, command, files)


def gather(command: str, recipe: Recipe, directory: Path, code: ExitCode) -> None:
    """The tables, figures and page of a sweep from the directories of its points.

    `code` is the exit code of the worst of them.
    """
    write_sweep_table(directory, recipe)
    write_finite_size(directory, recipe)
    write_sweep_dataset(directory, recipe)
    write_seed_averages(directory, recipe)
    told = any(has_results(point_directory(directory, label)) for label, _ in recipe.points())
    if command == "run" and told:
        report(directory, code)
    elif command != "sample":
        figures(directory)


def compare(directory: Path) -> ExitCode:
    """Compare the stored theory of a directory with its stored draws."""
    comparison = compare_stage(directory)
    print(comparison_text(directory))
    return _verdict(comparison["diagnostics"]["verdict"])


def diagnose(directory: Path) -> ExitCode:
    """Judge the stored draws of a directory."""
    diagnostics = diagnose_stage(read_draws(directory))
    print(diagnostics_text(diagnostics.as_dict()))
    return _verdict(diagnostics.verdict)


def figures(directory: Path) -> ExitCode:
    """Draw the figures of a run or of a sweep from its stored results."""
    from sampler.presentation.figures.draw import draw_run_figures, draw_sweep_figures

    swept = load_recipe(directory / RECIPE_FILE).sweep
    draw = draw_sweep_figures if swept else draw_run_figures
    print(written_text(draw(directory)))
    return ExitCode.OK


def report(directory: Path, ended: ExitCode | None = None) -> ExitCode:
    """Write the page of a run or of a sweep, and its figures, from stored results.

    `ended` is the exit code of a command whose last stage this is.
    """
    from sampler.presentation.report.write import write_report

    print(written_text(write_report(directory, ended)))
    return ExitCode.OK


def _run(point: Point) -> ExitCode:
    if not (point.solved or point.sampled()):
        print("this network has no theory, and is not sampled at this width: nothing to do")
        return ExitCode.OK
    code = _solve(point) if point.solved else ExitCode.OK
    if point.sampled():
        code = max(code, _sample(point))
        print(comparison_text(point.directory), flush=True)
    point.interruption.leave_if_asked("everything before the report")
    report(point.directory, code)
    return code


def _solve(point: Point) -> ExitCode:
    if point.done("solve", THEORY_FILE):
        table = read_theory(point.directory)
    else:
        with _timed(point, "solve"):
            table = solve_stage(point.problem, point.recipe, point.directory)
    print(theory_text(table), flush=True)
    return ExitCode.OK if table.attrs["converged"] else ExitCode.NOT_CONVERGED


def _sample(point: Point) -> ExitCode:
    if not point.done("sample", DRAWS_FILE):
        point.interruption.leave_if_asked("everything before the sampling")
        with _timed(point, "sample"):
            sample_stage(point.problem, point.recipe, point.directory, point.keeper())
    diagnostics = compare_stage(point.directory)["diagnostics"]
    print(diagnostics_text(diagnostics), flush=True)
    return _verdict(diagnostics["verdict"])


COMMANDS: dict[str, Callable[[Point], ExitCode]] = {
    "run": _run,
    "solve": _solve,
    "sample": _sample,
}


@contextmanager
def _timed(point: Point, stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    record_stage(point.directory, stage, time.perf_counter() - started)


def _same_task(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes ask for the same data, attention and heads."""

    def asked(recipe: Recipe) -> tuple:
        network = recipe.network
        return recipe.task, recipe.attention, network.heads, network.hypernetwork

    return asked(one) == asked(other)


def _verdict(verdict: str) -> ExitCode:
    return ExitCode.OK if verdict == "pass" else ExitCode.DIAGNOSTICS_FAILED
