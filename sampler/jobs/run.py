"""A planned run carried out: its stages each done once, its results handed on in memory.

Plan and directory are checked before JAX is imported; the stages import it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.errors import ExitCode, InputError
from sampler.jobs.interruption import Interruption
from sampler.jobs.plan import Plan, RunPlan, make_plan
from sampler.numerics import float64
from sampler.presentation.terminal import unbroken, wrapped
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.recipes.training_recipe import TrainingRecipe, load_any_recipe
from sampler.storage.earlier_chains import has_checkpoint
from sampler.storage.lock import locked, remove_lock_of_lost_host
from sampler.storage.manifest import (
    MANIFEST_FILE,
    claim_directory,
    finish_command,
    fingerprint,
    read_manifest,
    record,
    record_stage,
)
from sampler.storage.own_theories import check_source, predictions_of, store_own
from sampler.storage.run_directory import (
    CHECKPOINT_FOLDER,
    DRAWS_FILE,
    RECIPE_FILE,
    TASK_FILE,
    THEORY_FILE,
    log_to,
    remove_unfinished,
    write_whole,
)

if TYPE_CHECKING:
    import xarray as xr

    from sampler.jobs.keeper import ChainKeeper
    from sampler.problem import AnyProblem

FIGURES = (".png", ".svg")


@dataclass(frozen=True)
class Job:
    """A planned run in its claimed directory."""

    command: str
    run: RunPlan
    interruption: Interruption

    @property
    def directory(self) -> Path:
        """The directory of the results."""
        return self.run.point.directory

    @cached_property
    def problem(self) -> "AnyProblem":
        """What theory and samplers work on; made when the first of them has something to do."""
        from sampler.jobs.rows import kept_rows
        from sampler.problem import make_problem

        shared = self.directory.parent if self.run.point.label else self.directory
        rows = kept_rows(self.run, self.directory, shared, self.interruption)
        return make_problem(self.run.recipe, self.run.task, rows)

    def keeper(self) -> "ChainKeeper":
        """Keeps the chains of this run on disk."""
        from sampler.jobs.keeper import ChainKeeper

        return ChainKeeper(self.directory / CHECKPOINT_FOLDER, self.run.fixed, self.interruption)

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
def claimed(plan: Plan, lost_host: bool = False, extended: bool = False) -> Iterator[None]:
    """Claim the directory of a plan and hold its lock; its log is kept and float64 on inside.

    lost_host  no other process can be at work there: a lock left behind on another host is then
               that of a lost process
    extended   draws are appended to a finished run

    Raises InputError for a directory that holds anything else, or is in use.
    """
    if lost_host:
        remove_lock_of_lost_host(plan.directory)
    known = plan.known
    claim_directory(plan.directory, plan.recipe, plan.command, plan.fixed, known, extended)
    with locked(plan.directory), float64(), log_to(plan.directory):
        remove_unfinished(plan.directory)
        yield


def start_run(
    command: str,
    recipe: Recipe,
    directory: Path,
    interruption: Interruption,
    lost_host: bool = False,
    extended: bool = False,
) -> ExitCode:
    """Do "run", "solve" or "sample" of a recipe without a grid, or what is left of it."""
    plan = make_plan(command, recipe, directory)
    with claimed(plan, lost_host, extended):
        code = work(Job(command, plan.runs[0], interruption))
        print(f"results: {directory}")
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
    plan = make_plan(command, recipe, directory)
    claim_directory(directory, recipe, command, plan.fixed, plan.known)
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
    return recipe.model_copy(update={"sampler": recipe.sampler.with_draws(made + more)})


# --- the stages of a command


def work(job: Job) -> ExitCode:
    """Do what is left of a command for one run; nothing if it came to its end before.

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    code = job.run.point.finished(job.command)
    if code is not None:
        said = f"`{job.command}` was finished before, with exit code {int(code)}"
        print(f"{job.directory}: {said}")
        return code
    store_task(job)
    store_own_theories(job, job.run.recipe.theory.own)
    code = COMMANDS[job.command](job)
    finish_command(job.directory, job.command, code)
    return code


def store_task(job: Job) -> None:
    """Store what figures show of the task."""
    from sampler.analysis.task_table import task_table
    from sampler.storage.results import write_task

    if not (job.directory / TASK_FILE).is_file():
        write_task(job.directory, task_table(job.run.task))


def store_own_theories(job: Job, own: Mapping[str, str]) -> None:
    """Ask theories of the user's own for their predictions, and store them."""
    axes = job.run.own_axes
    made = {name: predictions_of(name, source, job, axes) for name, source in own.items()}
    if made:
        store_own(job.directory, made, axes)
