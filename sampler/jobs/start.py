"""Beginning or going on with a command, up to where JAX is needed."""

from pathlib import Path

from sampler.errors import ExitCode, InputError
from sampler.images.sources import CharacterSplits, images_checksum, read_drawings, split_characters
from sampler.jobs.interruption import Interruption
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.numerics import use_float64
from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import TRAIN, TrainingRecipe, load_any_recipe
from sampler.recipes.validation import refuse_without_hessian, refuse_without_theory
from sampler.storage.lock import locked, remove_lock_of_lost_host
from sampler.storage.manifest import (
    MANIFEST_FILE,
    claim_directory,
    fingerprint,
    forget_stage,
    read_manifest,
)
from sampler.storage.run_directory import (
    CHECKPOINT_FOLDER,
    CHECKPOINT_SLOTS,
    RECIPE_FILE,
    write_whole,
)
from sampler.tasks.make import make_task
from sampler.tasks.task import Task
from theory.architecture import bartlett_coordinate_count


def refuse_too_many_coordinates(recipe: Recipe, task: Task) -> None:
    """Raise InputError where importance draws or the evidence would need too large a Hessian."""
    for _, point in recipe.points():
        settings = point.sampler
        if not point.network.fits_theory or point.network.heads != recipe.network.heads:
            continue
        widths = point.network.layer_widths(task.layers)
        count = bartlett_coordinate_count(task.heads, widths, task.outputs)
        if ALGORITHMS[settings.algorithm].needs_hessian:
            refuse_without_hessian("sampler.algorithm", settings.algorithm, count)
        if settings.evidence:
            refuse_without_hessian("sampler.evidence", settings.evidence, count)


def recipe_in(directory: Path) -> tuple[str, Recipe | TrainingRecipe]:
    """Command and recipe that a directory was begun with. Raises InputError if there are none."""
    if not directory.is_dir():
        raise InputError(
            "DIR", str(directory), "is no directory; name the directory of an earlier run"
        )
    manifest = read_manifest(directory)
    if manifest.command is None:
        raise InputError(
            "DIR",
            str(directory),
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
        raise InputError("DIR", str(directory), "holds a training; only `resume` goes on with it")
    task = make_task(recipe)
    claim_directory(directory, recipe, command, fingerprint(recipe, task.checksum))
    return command, recipe, task


def extended(directory: Path, recipe: Recipe, more: int) -> Recipe:
    """The recipe with `more` draws per chain, written down; its sampling is to be gone on with.

    Raises InputError where draws cannot be appended.
    """
    remedy = None
    slots = [directory / CHECKPOINT_FOLDER / name for name in CHECKPOINT_SLOTS]
    if recipe.sweep:
        remedy = "this is a sweep; name the directory of one of its points"
    elif "sample" not in read_manifest(directory).seconds:
        remedy = "its sampling is not finished; first use `resume` without --more"
    elif not any(slot.is_file() for slot in slots):
        remedy = "it has no checkpoint of chains to go on from; run the recipe with more draws"
    if remedy:
        raise InputError("DIR", str(directory), remedy)
    sampler = recipe.sampler.model_copy(update={"draws": recipe.sampler.draws_per_chain + more})
    longer = recipe.model_copy(update={"sampler": sampler})
    forget_stage(directory, "sample")
    write_whole(directory / RECIPE_FILE, longer.to_toml())
    return longer


def start_run(
    command: str, recipe: Recipe, directory: Path, interruption: Interruption, alone: bool = False
) -> ExitCode:
    """Make the data, claim the directory, and do what is left of the command.

    `alone` says that no other process can be at work there: a lock left behind on another host is
    then that of a lost process.
    """
    if recipe.sweep and recipe.sampler.points == "selected" and command == "sample":
        raise InputError("sampler.points", "selected", "use `run`: theory chooses what is sampled")
    if command == "solve":
        for _, point in recipe.points():
            refuse_without_theory(point.network, "use `run` or `sample`")
    task = make_task(recipe)
    if command != "solve":
        refuse_too_many_coordinates(recipe, task)
    claim_directory(directory, recipe, command, fingerprint(recipe, task.checksum))
    if alone:
        remove_lock_of_lost_host(directory)
    with locked(directory):
        use_float64()
        from sampler.jobs.run import work

        return work(command, recipe, task, directory, interruption)


def read_splits(recipe: TrainingRecipe) -> CharacterSplits:
    """The drawings of a training recipe. Raises InputError where they cannot be used."""
    return split_characters(read_drawings(recipe.task), recipe.task)


def start_training(recipe: TrainingRecipe, directory: Path, interruption: Interruption) -> ExitCode:
    """Read the images, claim the directory, and train what is left of the training."""
    splits = read_splits(recipe)
    images = images_checksum(splits)
    common = fingerprint(recipe, images)
    claim_directory(directory, recipe, TRAIN, common)
    with locked(directory):
        use_float64()
        from sampler.jobs.train import TrainingJob

        job = TrainingJob(recipe, splits, images, directory, common, interruption)
        return job.work()
