"""Commands as sequences of stages, and their exit codes."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from sampler.errors import ExitCode
from sampler.jobs.finite_size_table import write_finite_size
from sampler.jobs.manifest import write_manifest
from sampler.jobs.recipe import Recipe, load_recipe
from sampler.jobs.run_directory import RECIPE_FILE, claim_directory
from sampler.jobs.stages import (
    compare_stage,
    diagnose_stage,
    sample_stage,
    solve_stage,
)
from sampler.jobs.storage import read_draws
from sampler.jobs.sweep_table import point_directory, write_sweep_table
from sampler.presentation.summary import (
    comparison_text,
    diagnostics_text,
    theory_text,
)
from sampler.problem import Problem, make_problem
from sampler.tasks.make import make_task
from sampler.tasks.task import Task

LOG = logging.getLogger("attention_posterior")
Job = Callable[[Recipe, Problem, Path], ExitCode]


def run(recipe: Recipe, task: Task, directory: Path) -> ExitCode:
    """Theory, sampling, diagnostics, comparison and figures of every point."""
    return _at_every_point(_run_point, recipe, task, directory)


def solve(recipe: Recipe, task: Task, directory: Path) -> ExitCode:
    """Theory only, at every point."""
    return _at_every_point(_solve_point, recipe, task, directory)


def sample(recipe: Recipe, task: Task, directory: Path) -> ExitCode:
    """Sampling and diagnostics only, at every point."""
    return _at_every_point(_sample_point, recipe, task, directory)


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
    from sampler.presentation.figures import draw_run_figures, draw_sweep_figures

    swept = load_recipe(directory / RECIPE_FILE).sweep
    draw = draw_sweep_figures if swept else draw_run_figures
    for path in draw(directory):
        print(path)
    return ExitCode.OK


def _run_point(recipe: Recipe, problem: Problem, directory: Path) -> ExitCode:
    code = _solve_point(recipe, problem, directory)
    if _samples_at(recipe, problem):
        code = max(code, _sample_point(recipe, problem, directory))
        print(comparison_text(directory), flush=True)
    figures(directory)
    return code


def _solve_point(recipe: Recipe, problem: Problem, directory: Path) -> ExitCode:
    started = time.perf_counter()
    table = solve_stage(problem, recipe, directory)
    write_manifest(directory, recipe, {"solve": time.perf_counter() - started})
    print(theory_text(table), flush=True)
    return ExitCode.OK if table.attrs["converged"] else ExitCode.NOT_CONVERGED


def _sample_point(recipe: Recipe, problem: Problem, directory: Path) -> ExitCode:
    started = time.perf_counter()
    sample_stage(problem, recipe, directory)
    write_manifest(directory, recipe, {"sample": time.perf_counter() - started})
    diagnostics = compare_stage(directory)["diagnostics"]
    print(diagnostics_text(diagnostics), flush=True)
    return _verdict(diagnostics["verdict"])


def _samples_at(recipe: Recipe, problem: Problem) -> bool:
    """Whether this width is sampled: `sampler.largest_width` may leave wide points to theory."""
    limit = recipe.sampler.largest_width.get(recipe.sampler.space)
    return limit is None or max(problem.architecture.widths) <= limit


def _same_task(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes ask for the same data, attention and heads."""
    return (one.task, one.attention, one.network.heads) == (
        other.task,
        other.attention,
        other.network.heads,
    )


def _verdict(verdict: str) -> ExitCode:
    return ExitCode.OK if verdict == "pass" else ExitCode.DIAGNOSTICS_FAILED


def _at_every_point(job: Job, recipe: Recipe, task: Task, directory: Path) -> ExitCode:
    """Do the job in the directory, or, for a sweep, in one directory per point."""
    handler = logging.FileHandler(directory / "run.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    LOG.setLevel(logging.INFO)
    LOG.addHandler(handler)
    LOG.propagate = False
    try:
        if not recipe.sweep:
            code = job(recipe, make_problem(recipe, task), directory)
            print(f"results: {directory}")
            return code
        codes = []
        for label, point in recipe.points():
            print(f"\n{recipe.name}, {label}", flush=True)
            LOG.info("point %s", label)
            own_task = task if _same_task(point, recipe) else make_task(point)
            where = claim_directory(point_directory(directory, label), point)
            codes.append(job(point, make_problem(point, own_task), where))
        write_sweep_table(directory, recipe)
        write_finite_size(directory, recipe)
        if job is not _sample_point:
            figures(directory)
        print(f"results: {directory}")
        return max(codes)
    finally:
        LOG.removeHandler(handler)
        handler.close()
