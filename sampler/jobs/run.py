"""Runs begun, resumed and extended: their recipes, their plans, their directories."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

from sampler.errors import ExitCode, InputError
from sampler.jobs.done import finished_code, numbers_of
from sampler.jobs.interruption import Interruption
from sampler.jobs.method import SamplingMethod
from sampler.jobs.plan import Plan, make_plan
from sampler.jobs.progress import busy
from sampler.presentation.terminal import print_line
from sampler.runtime import (
    DEVICES,
    at_most_devices,
    jax_settings,
    prepare_devices,
)
from sampler.settings.recipe import AnyRecipe, Recipe, TrainingRecipe
from sampler.storage.checkpoints import Checkpoints, has_checkpoint
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    DRAWS_FILE,
    LOG,
    MANIFEST_FILE,
    RECIPE_FILE,
)
from sampler.storage.fingerprint import read_stamp
from sampler.storage.manifest import read_manifest
from sampler.storage.run_directory import RunDirectory, opened_directory, refuse_differences


def start_run(plan: Plan, interruption: Interruption, extended: bool = False) -> ExitCode:
    """Finish a planned run; draws that a limit ended continue where it is raised.

    extended  draws are appended to a finished run

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    with opened_directory(plan.directory, plan.asked, plan.fingerprint, extended) as directory:
        code = finished_code(plan, directory.manifest)
        if code is not None:
            how = f"`{plan.command}` was finished before, with exit code {int(code)}"
            print_line(f"{plan.directory}: {how}\nresults: {plan.directory}")
            return code
        # Chains are resumed on as many devices as where they began.
        recorded = directory.manifest.devices
        prepare_devices(recorded or DEVICES)
        begin(plan, directory)
        with jax_settings(), at_most_devices(recorded):
            loaded = "sampler.jobs.stages" in sys.modules
            with nullcontext() if loaded else busy("loading the numerical libraries"):
                from sampler.jobs.stages import run_stages
            code = run_stages(plan, directory, interruption)
    print_line(f"results: {plan.directory}")
    return code


@contextmanager
def open_directory(plan: Plan) -> Iterator[RunDirectory]:
    """The directory of a plan, locked, with its log, in which it is begun.

    Raises InputError for a directory that holds anything else, or is in use.
    """
    with opened_directory(plan.directory, plan.asked, plan.fingerprint) as directory:
        begin(plan, directory)
        yield directory


def begin(plan: Plan, directory: RunDirectory) -> None:
    """Record in its directory that a plan is begun."""
    chosen = {"choice": asdict(plan.method)} if plan.is_sampled else {}
    directory.begin(plan.command, concerns=list(plan.task.concerns), **chosen)
    for text in plan.task.concerns:
        LOG.warning("warning: %s", text)


# --- directories of earlier runs


def recipe_in(directory: Path) -> tuple[str, Recipe | TrainingRecipe]:
    """Command and recipe that a directory was begun with. Raises InputError if there are none."""
    manifest = read_manifest(directory)
    if manifest.command is None:
        raise InputError(
            "DIR",
            directory,
            f"holds no {MANIFEST_FILE} with the command that began it; use `run` with its recipe",
        )
    return manifest.command, AnyRecipe.load(directory / RECIPE_FILE)


def plan_in(directory: Path) -> Plan:
    """Plan of the command that a directory was begun with.

    Raises InputError if there is none, if it is a sweep or a training, or if settings, data or
    versions are not those it was begun with: the differing keys are named.
    """
    command, recipe = recipe_in(directory)
    if isinstance(recipe, TrainingRecipe):
        raise InputError("DIR", directory, "holds a training; only `resume` continues it")
    if recipe.sweep:
        remedy = "is a sweep; name the directory of one of its points"
        raise InputError("DIR", directory, remedy)
    plan = make_plan(command, recipe, directory)
    refuse_differences(directory, read_manifest(directory), plan.fingerprint)
    return plan


def with_more_draws(directory: Path, recipe: Recipe, more: int) -> Recipe:
    """The recipe of a finished run with `more` draws per chain, or as many more repetitions.

    Raises InputError where they cannot be appended, before anything is changed.
    """
    from sampler.mcmc.convergence import FEWEST_DRAWS

    manifest, remedy = read_manifest(directory), None
    drawn = read_stamp(directory / DRAWS_FILE)
    if recipe.sweep:
        remedy = "this is a sweep; name the directory of one of its points"
    elif not drawn or drawn["numbers"] != drawn["numbers"] | numbers_of(recipe):
        remedy = "its sampling is not finished; first use `resume` without --more"
    elif not has_checkpoint(directory):
        remedy = "it has no checkpoint of chains to go on from; run the recipe with more draws"
    if remedy:
        raise InputError("DIR", directory, remedy)
    checkpoints = Checkpoints(directory / CHECKPOINT_FOLDER, manifest.plan or {})
    reached, made = checkpoints.newest().header["done"], drawn["made"]
    # Of either kind there are four at least; those that minutes ended may be fewer.
    fewest = max(reached, FEWEST_DRAWS)
    if made + more < fewest:
        remedy = f"{reached} are saved already; append at least {fewest - made}"
        raise InputError("--more", more, remedy)
    chosen = recipe  # an algorithm that the recipe leaves open is the one that was chosen
    if manifest.choice is not None:
        chosen = SamplingMethod(**manifest.choice).applied_to(recipe)
    key = chosen.sampler.algorithm_class.counts.more
    further = recipe.sampler.model_copy(update={"until": "draws", key: made + more})
    return recipe.model_copy(update={"sampler": further})
