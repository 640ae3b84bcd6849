"""One run: begun or gone on with, its stages each done once, and its exit code.

Recipe, data and directory are checked before JAX is imported; the stages import it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.errors import ExitCode, InputError
from sampler.jobs.choice import Choice, choose
from sampler.jobs.forecast import refuse_what_does_not_fit
from sampler.jobs.interruption import Interruption
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.numerics import float64
from sampler.presentation.terminal import unbroken, wrapped
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.recipes.sections import AUTO, SamplerSection
from sampler.recipes.training_recipe import TrainingRecipe, load_any_recipe
from sampler.recipes.validation import refuse_without_hessian, refuse_without_theory
from sampler.storage.earlier_chains import EarlierChains, read_earlier_chains
from sampler.storage.lock import locked, remove_lock_of_lost_host
from sampler.storage.manifest import (
    MANIFEST_FILE,
    claim_directory,
    fingerprint,
    finish_command,
    finished_code,
    forget_stage,
    read_manifest,
    record,
    record_stage,
)
from sampler.storage.own_theories import (
    Axes,
    axes_of_network,
    function_of,
    is_function,
    predictions_of,
    read_own,
    store_own,
)
from sampler.storage.run_directory import (
    CHECKPOINT_FOLDER,
    CHECKPOINT_SLOTS,
    COMPARISON_FILE,
    DRAWS_FILE,
    RECIPE_FILE,
    TASK_FILE,
    THEORY_FILE,
    log_to,
    remove_unfinished,
    write_whole,
)
from sampler.tasks.make import architecture_of, make_task
from sampler.tasks.task import Task
from theory.architecture import bartlett_coordinate_count

if TYPE_CHECKING:
    from sampler.jobs.keeper import ChainKeeper
    from sampler.problem import AnyProblem

FIGURES = (".png", ".svg")


@dataclass(frozen=True)
class Point:
    """One run to be done: a recipe without a sweep, and the directory of its results.

    label: `key=value,…` of a point of a sweep.
    sampling: whether it is sampled at all; a sweep may leave that to the points it selects.
    """

    recipe: Recipe
    directory: Path
    label: str = ""
    sampling: bool = True

    @property
    def solved(self) -> bool:
        """Whether this point has a theory; a network that has none is only sampled."""
        return self.recipe.network.fits_theory

    @property
    def sampled(self) -> bool:
        """Whether this point is sampled, or left to theory by its width or by its sweep."""
        return self.sampling and self.recipe.sampler.samples(self.recipe.network)

    def files(self, command: str) -> list[str]:
        """The files of results that a command makes here."""
        solved = [THEORY_FILE] if self.solved else []
        sampled = [DRAWS_FILE, COMPARISON_FILE] if self.sampled else []
        return {
            "solve": [THEORY_FILE],
            "sample": [DRAWS_FILE, COMPARISON_FILE],
            "run": [*solved, *sampled],
        }[command]

    def finished(self, command: str) -> ExitCode | None:
        """Exit code of a command that came to its end here, its files still there; else None."""
        return finished_code(self.directory, command, self.files(command))


@dataclass(frozen=True)
class Job:
    """A point with its data, in its claimed directory."""

    point: Point
    task: Task
    interruption: Interruption

    @property
    def directory(self) -> Path:
        """Where the results are stored."""
        return self.point.directory

    @cached_property
    def problem(self) -> "AnyProblem":
        """What theory and samplers work on; made when the first of them has something to do."""
        from sampler.jobs.rows import kept_rows
        from sampler.problem import make_problem

        recipe = self.point.recipe
        shared = self.directory.parent if self.point.label else self.directory
        rows = kept_rows(recipe, self.task, self.directory, shared, self.interruption)
        return make_problem(recipe, self.task, rows)

    def sampler_settings(self) -> SamplerSection:
        """Those of the recipe, space and algorithm named: as recorded here, or chosen now."""
        recorded = read_manifest(self.directory).choice
        choice = choose(self.point.recipe, self.task) if recorded is None else Choice(**recorded)
        if recorded is None:
            record(self.directory, choice=asdict(choice))
        print(wrapped(choice.explain()), flush=True)
        return choice.applied_to(self.point.recipe).sampler

    def keeper(self) -> "ChainKeeper":
        """Keeps the chains of this point on disk."""
        from sampler.jobs.keeper import ChainKeeper

        folder = self.directory / CHECKPOINT_FOLDER
        common = fingerprint(self.point.recipe, self.task.identity)
        return ChainKeeper(folder, common, self.interruption)

    def start(self, settings: SamplerSection) -> EarlierChains | None:
        """The chains where those of this point are to begin, recorded here; None if nowhere else.

        Chains that have begun go on from their own checkpoint. Raises InputError for earlier chains
        that cannot be used, or are not those recorded.
        """
        if self.done("sample", DRAWS_FILE) or has_checkpoint(self.directory):
            return None
        earlier = read_earlier_chains(settings, read_manifest(self.directory).started_from)
        if earlier is not None:
            record(self.directory, started_from=dict(earlier.origin))
        return earlier

    def done(self, stage: str, file: str) -> bool:
        """Whether a stage is recorded as finished and its file is there."""
        return stage in read_manifest(self.directory).seconds and (self.directory / file).is_file()

    @contextmanager
    def recorded(self, stage: str) -> Iterator[None]:
        """Record the stage done inside as finished, with its seconds."""
        started = time.perf_counter()
        yield
        record_stage(self.directory, stage, time.perf_counter() - started)


# --- beginning or going on, before JAX is imported


@contextmanager
def begun(command: str, recipe: Recipe, directory: Path, alone: bool = False) -> Iterator[Task]:
    """Make the data, claim the directory, and hold its lock; float64 is on inside.

    `alone` says that no other process can be at work there: a lock left behind on another host is
    then that of a lost process. Raises InputError for what cannot be done.
    """
    if recipe.sweep and recipe.sampler.points == "selected" and command == "sample":
        raise InputError("sampler.points", "selected", "use `run`: theory chooses what is sampled")
    if command == "solve":
        for _, point in recipe.points():
            refuse_without_theory(point.network, "use `run` or `sample`")
    task = make_task(recipe)
    refuse_what_does_not_fit(recipe, task)
    refuse_unusable_own(recipe, task, recipe.theory.own)
    if command != "solve":
        refuse_too_many_coordinates(recipe, task)
        if not (directory / MANIFEST_FILE).is_file():  # else chains may have begun
            read_earlier_chains(recipe.sampler)
    if alone:
        remove_lock_of_lost_host(directory)
    claim_directory(directory, recipe, command, fingerprint(recipe, task.identity))
    with locked(directory), float64():
        yield task


def start_run(
    command: str, point: Point, interruption: Interruption, alone: bool = False
) -> ExitCode:
    """Claim the directory of a run and do "run", "solve" or "sample", or what is left of it."""
    with begun(command, point.recipe, point.directory, alone) as task:
        return work(command, Job(point, task, interruption))


def refuse_unusable_own(recipe: Recipe, task: Task, own: Mapping[str, str]) -> None:
    """Raise InputError for sources of own theories that cannot be read or do not fit."""
    axes = own_axes(recipe, task)
    for name, source in own.items():
        (function_of if is_function(source) else partial(read_own, axes=axes))(name, source)


def own_axes(recipe: Recipe, task: Task) -> Axes:
    """What an own theory of the network of a recipe may predict."""
    return axes_of_network(architecture_of(recipe, task), task.test.examples)


def refuse_too_many_coordinates(recipe: Recipe, task: Task) -> None:
    """Raise InputError where importance draws or the evidence would need too large a Hessian."""
    for _, point in recipe.points():
        settings = point.sampler
        if not point.network.fits_theory or point.network.heads != recipe.network.heads:
            continue
        widths = point.network.layer_widths(task.layers)
        count = bartlett_coordinate_count(task.heads, widths, task.outputs)
        if settings.algorithm != AUTO and ALGORITHMS[settings.algorithm].needs_hessian:
            refuse_without_hessian("sampler.algorithm", settings.algorithm, count)
        if settings.evidence:
            refuse_without_hessian("sampler.evidence", settings.evidence, count)


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


def begun_in(directory: Path) -> tuple[str, Recipe, Task]:
    """Command, recipe and data of the run in a directory.

    Raises InputError if there is none, or if settings, data or versions are not those it was begun
    with: the differing keys are named.
    """
    command, recipe = recipe_in(directory)
    if isinstance(recipe, TrainingRecipe):
        raise InputError("DIR", directory, "holds a training; only `resume` goes on with it")
    task = make_task(recipe)
    claim_directory(directory, recipe, command, fingerprint(recipe, task.identity))
    return command, recipe, task


def extended(directory: Path, recipe: Recipe, more: int) -> Recipe:
    """The recipe with `more` draws per chain, stored; its sampling is to be gone on with.

    Raises InputError where draws cannot be appended.
    """
    remedy = None
    if recipe.sweep:
        remedy = "this is a sweep; name the directory of one of its points"
    elif "sample" not in read_manifest(directory).seconds:
        remedy = "its sampling is not finished; first use `resume` without --more"
    elif not has_checkpoint(directory):
        remedy = "it has no checkpoint of chains to go on from; run the recipe with more draws"
    if remedy:
        raise InputError("DIR", directory, remedy)
    made = read_manifest(directory).draws_per_chain or recipe.sampler.draws_per_chain
    longer = recipe.model_copy(update={"sampler": recipe.sampler.with_draws(made + more)})
    forget_stage(directory, "sample")
    write_whole(directory / RECIPE_FILE, longer.to_toml())
    return longer


def has_checkpoint(directory: Path) -> bool:
    """Whether chains of this run were saved."""
    folder = directory / CHECKPOINT_FOLDER
    return any((folder / name).is_file() for name in CHECKPOINT_SLOTS)


# --- the stages of a command


def work(command: str, job: Job) -> ExitCode:
    """Do what is left of a command in a claimed and locked directory, with a log of its own.

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    with log_to(job.directory):
        code = work_on_point(command, job)
        print(f"results: {job.directory}")
        return code


def work_on_point(command: str, job: Job) -> ExitCode:
    """Do what is left of a command for one point; nothing if it came to its end before."""
    remove_unfinished(job.directory)
    code = job.point.finished(command)
    if code is not None:
        print(f"{job.directory}: `{command}` was finished before, with exit code {int(code)}")
        return code
    if command != "solve" and job.point.sampled:
        # What cannot be used is refused before anything is computed.
        job.start(job.point.recipe.sampler)
    store_task(job)
    store_own_theories(job, job.point.recipe.theory.own)
    code = COMMANDS[command](job)
    finish_command(job.directory, command, code)
    return code


def store_task(job: Job) -> None:
    """Store what figures show of the task."""
    from sampler.analysis.task_table import task_table
    from sampler.storage.results import write_task

    if not (job.directory / TASK_FILE).is_file():
        write_task(job.directory, task_table(job.task))


def store_own_theories(job: Job, own: Mapping[str, str]) -> None:
    """Ask theories of the user's own for their predictions, and store them."""
    recipe, task = job.point.recipe, job.task
    axes = own_axes(recipe, task)
    made = {
        name: predictions_of(name, source, job.problem if is_function(source) else None, axes)
        for name, source in own.items()
    }
    if made:
        store_own(job.directory, made, axes)


def _run(job: Job) -> ExitCode:
    from sampler.jobs.progress import busy

    if not (job.point.solved or job.point.sampled):
        print("this network has no theory, and is not sampled at this width: nothing to do")
        return ExitCode.OK
    code = _solve(job) if job.point.solved else ExitCode.OK
    if job.point.sampled:
        from sampler.analysis.results import RunResults
        from sampler.presentation.summary import comparison_text

        code = max(code, _sample(job))
        print(comparison_text(RunResults(job.directory)), flush=True)
    job.interruption.leave_if_asked("everything before the report")
    with busy("drawing figures"):
        from sampler.analysis.results import RunResults

        report(job.directory, code)
    if job.point.solved:
        print(wrapped(RunResults(job.directory).verdict.line))
    return code


def _solve(job: Job) -> ExitCode:
    from sampler.jobs.progress import busy

    with busy("compiling and solving the theory"):
        from sampler.jobs.stages import solve_stage
        from sampler.presentation.summary import theory_text
        from sampler.storage.results import read_theory

    if job.done("solve", THEORY_FILE):
        table = read_theory(job.directory)
    else:
        problem = job.problem  # which may show how far a pass over the examples is
        with busy("compiling and solving the theory"), job.recorded("solve"):
            table = solve_stage(problem, job.point.recipe, job.directory)
    print(theory_text(table), flush=True)
    return ExitCode.OK if table.attrs["converged"] else ExitCode.NOT_CONVERGED


def _sample(job: Job) -> ExitCode:
    from sampler.analysis.results import RunResults
    from sampler.jobs.keeper import remove_segments
    from sampler.jobs.stages import compare_stage, sample_stage
    from sampler.presentation.summary import diagnostics_text
    from sampler.storage.results import read_draws

    if not job.done("sample", DRAWS_FILE):
        job.interruption.leave_if_asked("everything before the sampling")
        with job.recorded("sample"):
            settings = job.sampler_settings()
            start = job.start(settings)
            tree = sample_stage(job.problem, settings, job.directory, job.keeper(), start)
            record(job.directory, draws_per_chain=tree["posterior"].sizes["draw"])
            del tree
    remove_segments(job.directory / CHECKPOINT_FOLDER)
    results = RunResults.held(job.directory, draws=read_draws(job.directory))
    diagnostics = compare_stage(results).diagnostics
    print(diagnostics_text(diagnostics), flush=True)
    return _verdict(diagnostics.verdict)


COMMANDS: dict[str, Callable[[Job], ExitCode]] = {"run": _run, "solve": _solve, "sample": _sample}


# --- one stage from stored results


def add_own(directory: Path, own: Mapping[str, str], interruption: Interruption) -> None:
    """Store further theories of the user's own in the directory of a run."""
    _, recipe, task = begun_in(directory)
    if recipe.sweep:
        remedy = "is a sweep; name the directory of one of its points"
        raise InputError("DIR", directory, remedy)
    refuse_unusable_own(recipe, task, own)
    with locked(directory), float64():
        store_own_theories(Job(Point(recipe, directory), task, interruption), own)


def compare(directory: Path) -> ExitCode:
    """Compare the stored theory of a directory, and own ones, with its stored draws."""
    from sampler.analysis.results import RunResults
    from sampler.jobs.stages import compare_stage
    from sampler.presentation.summary import comparison_text
    from sampler.storage.results import read_draws

    results = compare_stage(RunResults.held(directory, draws=read_draws(directory)))
    print(comparison_text(results))
    return _verdict(results.diagnostics.verdict)


def diagnose(directory: Path) -> ExitCode:
    """Judge the stored draws of a directory."""
    from sampler.jobs.stages import diagnose_stage
    from sampler.presentation.summary import diagnostics_text
    from sampler.storage.results import read_draws

    diagnostics = diagnose_stage(read_draws(directory))
    print(diagnostics_text(diagnostics))
    return _verdict(diagnostics.verdict)


def figures(directory: Path) -> ExitCode:
    """Draw the figures of a run or of a sweep from its stored results."""
    from sampler.analysis.results import open_run
    from sampler.analysis.sweeps import SweepResults
    from sampler.presentation.figures.draw import draw_figures

    swept = load_recipe(directory / RECIPE_FILE).sweep
    results = SweepResults(directory) if swept else open_run(directory)
    print(written_text(draw_figures(directory, results)))
    return ExitCode.OK


def report(directory: Path, ended: ExitCode | None = None) -> ExitCode:
    """Write the page of a run or of a sweep, and its figures, from stored results.

    `ended` is the exit code of a command whose last stage this is.
    """
    from sampler.presentation.report.write import write_report

    print(written_text(write_report(directory, ended)))
    return ExitCode.OK


def written_text(paths: Sequence[Path]) -> str:
    """Figures by name, their formats together, then every other file by its path."""
    drawn: dict[Path, dict[str, None]] = {}
    others = []
    for path in paths:
        if path.suffix in FIGURES:
            drawn.setdefault(path.parent, {})[path.stem] = None
        else:
            others.append(f"{path.stem}: {path}")
    lines = [
        wrapped(f"figures in {folder}: {unbroken(tuple(names))}") for folder, names in drawn.items()
    ]
    return "\n".join(lines + others)


def _verdict(verdict: str) -> ExitCode:
    return ExitCode.OK if verdict == "pass" else ExitCode.DIAGNOSTICS_FAILED
