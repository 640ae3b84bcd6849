"""Runs begun, resumed and extended: their recipes, their plans, their directories."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from sampler.errors import ExitCode, InputError
from sampler.jobs.interruption import Interruption
from sampler.jobs.method import SamplingMethod
from sampler.jobs.plan import Plan, make_plan
from sampler.jobs.progress import busy
from sampler.presentation.terminal import print_line
from sampler.runtime import (
    DEVICES,
    at_most_devices,
    divide_processor,
    jax_settings,
    refuse_absent_platforms,
)
from sampler.settings.recipe import AnyRecipe, Recipe, TrainingRecipe, load_recipe
from sampler.storage.checkpoints import Checkpoints, has_checkpoint
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    LOG,
    RECIPE_FILE,
    ask_the_same,
    claim_directory,
    left_finished,
    locked,
    log_to,
)
from sampler.storage.files import write_whole
from sampler.storage.manifest import (
    MANIFEST_FILE,
    finished_code,
    read_manifest,
    refuse_differences,
)

# Settings of the sampler that end draws which are not trusted yet.
LIMITS = ("max_draws", "max_minutes")


def start_run(plan: Plan, interruption: Interruption, extended: bool = False) -> ExitCode:
    """Do what is left of a planned run; draws that a limit ended go on where it is raised.

    extended  draws are appended to a finished run

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    with open_run_directory(plan, extended or was_cut_short(plan)):
        loaded = "sampler.jobs.stages" in sys.modules
        with nullcontext() if loaded else busy("loading the numerical libraries"):
            from sampler.jobs.stages import run_stages
        code = run_stages(plan, interruption)
        print_line(f"results: {plan.directory}")
        return code


@contextmanager
def open_run_directory(
    plan: Plan, extended: bool = False, devices: int = DEVICES
) -> Iterator[None]:
    """Hold the directory of a plan, with its log, float64 and devices as JAX is to have them.

    Chains use as many devices as where they began; where nothing is recorded, `devices` of a
    processor. Raises InputError for a directory that holds anything else, or is in use.
    """
    recorded = read_manifest(plan.directory).devices
    divide_processor(recorded or devices)
    refuse_absent_platforms()
    with open_directory(plan, extended), jax_settings(), at_most_devices(recorded):
        yield


@contextmanager
def open_directory(plan: Plan, extended: bool = False) -> Iterator[None]:
    """Claim the directory of a plan and lock it; its log is kept inside.

    Raises InputError for a directory that holds anything else, or is in use.
    """
    with left_finished(plan.directory) if extended else nullcontext():
        claim_directory(
            plan.directory,
            plan.asked,
            plan.command,
            plan.fingerprint,
            plan.manifest_fields,
            extended,
        )
        with locked(plan.directory), log_to(plan.directory):
            for text in plan.task.concerns:
                LOG.warning("warning: %s", text)
            yield


# --- directories of earlier runs


def was_cut_short(plan: Plan) -> bool:
    """Whether a run came to its end, untrusted, by a limit that the plan raises."""
    directory = plan.directory
    code = finished_code(directory, plan.command, plan.files)
    if code in (None, ExitCode.OK) or not plan.is_sampled:
        return False
    from sampler.storage.result_files import read_attribute  # xarray takes a second

    limit = read_attribute(directory, "ended_by", "sample_stats")
    if limit not in LIMITS:
        return False
    stored = load_recipe(directory / RECIPE_FILE)
    raised = getattr(plan.asked.sampler, limit) > getattr(stored.sampler, limit)
    return raised and ask_the_same(stored, plan.asked)


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
    extending = manifest.draws_per_chain is not None and "sample" not in manifest.stages
    if extending or not (directory / RECIPE_FILE).is_file():  # killed between the two, maybe
        write_whole(directory / RECIPE_FILE, manifest.recipe or "")
    return manifest.command, load_recipe(directory / RECIPE_FILE, kind=AnyRecipe)


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
    refuse_differences(directory, read_manifest(directory), plan.fingerprint)
    return plan


def with_more_draws(directory: Path, recipe: Recipe, more: int) -> Recipe:
    """The recipe of a finished run with `more` draws per chain, or so many more repetitions.

    Raises InputError where they cannot be appended, before anything is changed.
    """
    from sampler.mcmc.convergence import FEWEST_DRAWS

    manifest, remedy = read_manifest(directory), None
    if recipe.sweep:
        remedy = "this is a sweep; name the directory of one of its points"
    elif "sample" not in manifest.seconds:
        remedy = "its sampling is not finished; first use `resume` without --more"
    elif not has_checkpoint(directory):
        remedy = "it has no checkpoint of chains to go on from; run the recipe with more draws"
    if remedy:
        raise InputError("DIR", directory, remedy)
    checkpoints = Checkpoints(directory / CHECKPOINT_FOLDER, manifest.plan or {})
    reached = checkpoints.newest().header["done"]
    made = manifest.draws_per_chain or reached  # unknown where it was killed before it was recorded
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
