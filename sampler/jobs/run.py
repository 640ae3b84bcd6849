"""A planned run carried out: its stages each done once, its results handed on in memory.

Plan and directory are checked before JAX is imported; the stages import it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.analysis.text import unbroken, wrapped
from sampler.errors import ExitCode, InputError, one_line
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import Plan, Point, RunPlan, make_plan
from sampler.presentation.terminal import log_errors, print_line
from sampler.runtime import jax_settings, refuse_absent_platforms
from sampler.settings.recipe import Recipe, load_recipe
from sampler.settings.training import TrainingRecipe, load_any_recipe
from sampler.storage.checkpoints import Checkpoints, has_checkpoint
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    DRAWS_FILE,
    FIGURE_FOLDER,
    LOG,
    RECIPE_FILE,
    TASK_FILE,
    TEACHER_FILE,
    THEORY_FILE,
    claim_directory,
    locked,
    log_to,
    remove_unfinished,
)
from sampler.storage.files import write_whole
from sampler.storage.manifest import (
    MANIFEST_FILE,
    finish_command,
    finished_code,
    read_manifest,
    record,
    record_stage,
    refuse_differences,
)
from sampler.tasks.task import Task

if TYPE_CHECKING:
    from sampler.analysis.results import RunResults
    from sampler.analysis.sweep_results import SweepResults
    from sampler.mcmc.diagnostics import Diagnostics
    from sampler.problem import AnyProblem


@dataclass(frozen=True)
class Job:
    """A planned run in its claimed directory."""

    run: RunPlan
    interruption: Interruption

    @property
    def directory(self) -> Path:
        return self.run.point.directory

    @property
    def results(self) -> "RunResults":
        """Results in the directory, read when they are asked for."""
        from sampler.analysis.results import RunResults

        return RunResults.held(self.directory, recipe=self.run.point.recipe)

    @cached_property
    def problem(self) -> "AnyProblem":
        """The problem of theory and samplers; made when the first of them has something to do."""
        from sampler.jobs.folding import kept_rows
        from sampler.problem import build_problem

        shared = self.directory.parent if self.run.point.label else self.directory
        recipe, task = self.run.recipe, self.run.task
        rows = kept_rows(recipe, task, self.directory, shared, self.interruption)
        return build_problem(recipe, task, rows, self.run.sizes.architecture)

    @property
    def checkpoints(self) -> Checkpoints:
        """Where the sampling of this run is saved."""
        return Checkpoints(self.directory / CHECKPOINT_FOLDER, self.run.determining)


def done(directory: Path, stage: str, file: str) -> bool:
    return stage in read_manifest(directory).seconds and (directory / file).is_file()


@contextmanager
def recorded(directory: Path, stage: str) -> Iterator[None]:
    """Record the stage done inside as finished, with its seconds."""
    started = time.perf_counter()
    yield
    record_stage(directory, stage, time.perf_counter() - started)


# --- beginning or going on, before JAX is imported


@contextmanager
def claimed(plan: Plan, extended: bool = False) -> Iterator[None]:
    """Claim the directory of a plan and hold its lock; its log is kept and float64 on inside.

    extended  draws are appended to a finished run

    Raises InputError for a directory that holds anything else, or is in use.
    """
    refuse_absent_platforms()
    claim_directory(
        plan.directory, plan.recipe, plan.command, plan.determining, plan.known, extended
    )
    with locked(plan.directory), jax_settings(), log_to(plan.directory):
        log_concerns(plan.task)
        yield


def log_concerns(task: Task) -> None:
    """Say, in the terminal and in the log, what is doubtful about data."""
    for text in task.concerns:
        LOG.warning("warning: %s", text)


def start_run(
    command: str,
    point: Point,
    interruption: Interruption,
    extended: bool = False,
) -> ExitCode:
    """Do "run", "solve" or "sample" of a recipe without a grid, or what is left of it."""
    plan = make_plan(command, point)
    with claimed(plan, extended):
        code = work(Job(plan.runs[0], interruption))
        print_line(f"results: {point.directory}")
        return code


def recipe_in(directory: Path) -> tuple[str, Recipe | TrainingRecipe]:
    """Command and recipe that a directory was begun with. Raises InputError if there are none."""
    if not directory.is_dir():
        raise InputError("DIR", directory, "is no directory; name the directory of an earlier run")
    manifest = read_manifest(directory)
    if manifest.command is None:
        raise InputError(
            "DIR",
            directory,
            f"holds no {MANIFEST_FILE} that says which command began it; use `run` with its recipe",
        )
    if not (directory / RECIPE_FILE).is_file():  # killed between the two
        write_whole(directory / RECIPE_FILE, manifest.recipe or "")
    return manifest.command, load_any_recipe(directory / RECIPE_FILE)


def plan_in(directory: Path) -> Plan:
    """Plan of the command that a directory was begun with.

    Raises InputError if there is none, if it is a sweep or a training, or if settings, data or
    versions are not those it was begun with: the differing keys are named.
    """
    command, recipe = recipe_in(directory)
    if isinstance(recipe, TrainingRecipe):
        raise InputError("DIR", directory, "holds a training; only `resume` goes on with it")
    if recipe.sweep:
        remedy = "is a sweep; name the directory of one of its points"
        raise InputError("DIR", directory, remedy)
    plan = make_plan(command, Point(recipe, directory))
    refuse_differences(directory, read_manifest(directory), plan.determining)
    return plan


def with_more_draws(directory: Path, recipe: Recipe, more: int) -> Recipe:
    """The recipe of a finished run with `more` draws per chain.

    Raises InputError where draws cannot be appended.
    """
    manifest, remedy = read_manifest(directory), None
    if recipe.sweep:
        remedy = "this is a sweep; name the directory of one of its points"
    elif "sample" not in manifest.seconds:
        remedy = "its sampling is not finished; first use `resume` without --more"
    elif not has_checkpoint(directory):
        remedy = "it has no checkpoint of chains to go on from; run the recipe with more draws"
    if remedy:
        raise InputError("DIR", directory, remedy)
    made = manifest.draws_per_chain or recipe.sampler.draws_per_chain
    if recipe.sampler.repeated:
        made = manifest.draws_per_chain or recipe.sampler.repetitions
    return recipe.model_copy(update={"sampler": recipe.sampler.with_draws(made + more)})


# --- the stages of a command


def work(job: Job) -> ExitCode:
    """Do what is left of a command for one run; nothing if it came to its end before.

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    remove_unfinished(job.directory)
    command = job.run.command
    code = finished_code(job.directory, command, job.run.files)
    if code is not None:
        said = f"`{command}` was finished before, with exit code {int(code)}"
        print_line(f"{job.directory}: {said}")
        return code
    from sampler.analysis.task_tables import task_table, teacher_table
    from sampler.storage.results import write_result

    if not (job.directory / TASK_FILE).is_file():
        write_result(job.directory, TASK_FILE, task_table(job.run.task))
    teacher = job.run.task.teacher
    if teacher is not None and not (job.directory / TEACHER_FILE).is_file():
        write_result(job.directory, TEACHER_FILE, teacher_table(teacher, job.problem))
    code = COMMANDS[command](job)
    finish_command(job.directory, command, code)
    return code


# --- results handed from stage to stage


def run_all(job: Job) -> ExitCode:
    """Do everything: theory, sampling, comparison, figures and page."""
    from sampler.jobs.progress import busy
    from sampler.presentation.summary import comparison_text, network_text, verdicts_text

    point = job.run.point
    if not (point.solved or point.sampled):
        print_line("this network has no theory, and is not sampled at this width: nothing to do")
        return ExitCode.OK
    results, code = job.results, ExitCode.OK
    sizes, spread = job.run.sizes, point.recipe.posterior.temperature_spread
    temperature = None if spread else point.recipe.posterior.temperature
    print_line(network_text(sizes.architecture, job.run.task.train.examples, temperature))
    if point.solved:
        results = solved(job, results)
        code = converged_code(results)
    if point.sampled:
        results = sampled(job, results)
    # A sweep draws its own; those of a point are a quarter of its time and seldom looked at.
    drawn = point.figures and not point.label
    if point.sampled:
        results = compared(results)
        code = max(code, verdict_code(results.diagnostics))
        with log_errors("the summary"):
            print_line(comparison_text(results))
    job.interruption.leave_if_asked("everything before the report")
    with busy("drawing figures") if drawn else nullcontext(), log_errors("the report"):
        report(job.directory, code, results, drawn)
    with log_errors("the verdict"):
        print_line(verdicts_text(results))
    return code


def solve_alone(job: Job) -> ExitCode:
    from sampler.presentation.summary import solved_text

    results = solved(job, job.results)
    print_line(solved_text(results))
    return converged_code(results)


def sample_alone(job: Job) -> ExitCode:
    """Sample, and compare with the theory where it is stored."""
    return verdict_code(compared(sampled(job, job.results)).diagnostics)


COMMANDS: dict[str, Callable[[Job], ExitCode]] = {
    "run": run_all,
    "solve": solve_alone,
    "sample": sample_alone,
}


def solved(job: Job, results: "RunResults") -> "RunResults":
    """The results with the theory: as it is stored, or solved now."""
    from sampler.jobs.progress import busy

    with busy("loading the numerical libraries"):
        from sampler.jobs.stages import solve_problem
        from sampler.presentation.summary import theory_text
        from sampler.storage.results import write_result

    if not done(job.directory, "solve", THEORY_FILE):
        problem = job.problem  # which may show how far a pass over the examples is
        with busy("compiling and solving the theory"), recorded(job.directory, "solve"):
            of_sweep = bool(job.run.point.label)
            table = solve_problem(problem, job.run.recipe, cut=of_sweep)
            results = results.having(theory=table)
            write_result(job.directory, THEORY_FILE, results.theory)
    print_line(theory_text(results.theory))
    return results


def sampled(job: Job, results: "RunResults") -> "RunResults":
    """The results with draws, as they are stored or drawn now."""
    from sampler.jobs.keeper import ChainKeeper, without_draws
    from sampler.jobs.stages import draw_posterior
    from sampler.storage.results import read_draws, write_result

    if done(job.directory, "sample", DRAWS_FILE):
        results = results.having(draws=read_draws(job.directory))
    else:
        job.interruption.leave_if_asked("everything before the sampling")
        with recorded(job.directory, "sample"):
            print_line(f"space {job.run.method.space}, algorithm {job.run.method.algorithm}")
            settings = job.run.recipe.sampler
            keeper = ChainKeeper(job.checkpoints, job.interruption)
            results = results.having(draws=draw_posterior(job.problem, settings, keeper))
            write_result(job.directory, DRAWS_FILE, results.draws)
            made = results.draws["posterior"].sizes["chain" if settings.repeated else "draw"]
            record(job.directory, draws_per_chain=made)
    job.checkpoints.settle(without_draws)
    return results


def compared(results: "RunResults") -> "RunResults":
    from sampler.jobs.stages import compare_stage
    from sampler.presentation.summary import diagnostics_text

    results = compare_stage(results)
    print_line(diagnostics_text(results.diagnostics))
    return results


def converged_code(results: "RunResults") -> ExitCode:
    return ExitCode.OK if results.theory.attrs["converged"] else ExitCode.NOT_CONVERGED


def verdict_code(diagnostics: "Diagnostics") -> ExitCode:
    return ExitCode.OK if diagnostics.passed else ExitCode.DIAGNOSTICS_FAILED


# --- one stage from stored results


def compare_stored(directory: Path) -> ExitCode:
    """Compare the stored theory of a directory with its stored draws."""
    from sampler.analysis.results import RunResults
    from sampler.jobs.stages import compare_stage
    from sampler.presentation.summary import comparison_text, verdicts_text
    from sampler.storage.results import read_draws

    results = compare_stage(RunResults.held(directory, draws=read_draws(directory)))
    print(comparison_text(results))
    print(f"\n{verdicts_text(results)}")
    return verdict_code(results.diagnostics)


def compare_runs(directories: Sequence[Path]) -> None:
    """Print the table of the models of several runs and draw it, or say why they do not compare.

    The figure goes into the figures of the first run.
    """
    from sampler.analysis.model_comparison import compare_directories
    from sampler.presentation.several_runs import draw_models, models_table
    from sampler.presentation.style import figure_style, save_figure

    try:
        compared = compare_directories(directories)
    except InputError as reason:
        print(f"\nno table of models: {one_line(str(reason))}")
        return
    print(f"\n{models_table(compared).text()}")
    with figure_style():
        (path, *_) = save_figure(draw_models(compared), directories[0] / FIGURE_FOLDER, "models")
    print(f"figure of the models: {path}")


def diagnose_stored(directory: Path) -> ExitCode:
    from sampler.jobs.stages import diagnose_stage
    from sampler.presentation.summary import arviz_summary, diagnostics_text
    from sampler.storage.results import read_draws

    draws = read_draws(directory)
    diagnostics = diagnose_stage(draws)
    print(diagnostics_text(diagnostics))
    summary = arviz_summary(draws)
    if summary:
        print(f"\n{summary}")
    return verdict_code(diagnostics)


def figures(
    directory: Path,
    results: "RunResults | SweepResults | None" = None,
    svg: bool = False,
    every: bool = False,
) -> ExitCode:
    """Draw the figures of a run or of a sweep, from results in memory or from its directory.

    svg: as SVG too. every: those too that a run leaves out
    """
    from sampler.analysis.results import open_run
    from sampler.analysis.sweep_dataset import gathered
    from sampler.presentation.figures.draw import draw_figures

    recipe = load_recipe(directory / RECIPE_FILE)
    if results is None:
        results = gathered(directory, recipe) if recipe.sweep else open_run(directory)
    failed: dict[str, Exception] = {}
    print_line(written_text(draw_figures(directory, results, svg, failed=failed, every=every)))
    raise_first(failed)
    return ExitCode.OK


def report(
    directory: Path,
    ended: ExitCode | None = None,
    results: "RunResults | SweepResults | None" = None,
    figures: bool = True,
) -> ExitCode:
    """Write the page of a run or of a sweep, and its figures.

    ended    exit code of a command whose last stage this is
    results  where they are in memory; None: those of the directory
    figures  whether they are drawn
    """
    from sampler.presentation.report import write_report

    failed: dict[str, Exception] = {}
    *_, page = write_report(directory, ended, results, figures, failed)
    print_line(f"report: {page}")
    if ended is None:
        raise_first(failed)
    return ExitCode.OK


def raise_first(failed: Mapping[str, Exception]) -> None:
    """Raise what the first of some figures failed with, when all others are drawn."""
    for problem in failed.values():
        raise problem


STAGES: dict[str, Callable[..., ExitCode]] = {
    "compare": compare_stored,
    "diagnose": diagnose_stored,
    "figures": figures,
    "report": report,
}


def written_text(paths: Sequence[Path]) -> str:
    """Figures by folder and name, whatever their formats."""
    names: dict[Path, dict[str, None]] = {}
    for path in paths:
        names.setdefault(path.parent, {})[path.stem] = None
    texts = [f"figures in {folder}: {unbroken(tuple(of))}" for folder, of in names.items()]
    return "\n".join(map(wrapped, texts))
