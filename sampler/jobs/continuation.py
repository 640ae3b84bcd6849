"""Going on with a run that was interrupted, and appending draws to one that was finished."""

from pathlib import Path

from sampler.errors import InputError
from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import TrainingRecipe, load_any_recipe
from sampler.storage.claim import claim_directory
from sampler.storage.fingerprint import fingerprint
from sampler.storage.manifest import MANIFEST_FILE, forget_stage, read_manifest
from sampler.storage.run_directory import (
    CHECKPOINT_FOLDER,
    CHECKPOINT_SLOTS,
    RECIPE_FILE,
    write_whole,
)
from sampler.tasks.make import make_task
from sampler.tasks.task import Task


def recipe_in(directory: Path) -> tuple[str, Recipe | TrainingRecipe]:
    """Command and recipe that a directory was begun with. Raises InputError if there are none."""
    if not directory.is_dir():
        raise InputError(
            "DIR", str(directory), "is no directory; name the directory of an earlier run"
        )
    manifest = read_manifest(directory)
    if "command" not in manifest:
        raise InputError(
            "DIR",
            str(directory),
            f"holds no {MANIFEST_FILE} that says which command began it; use `run` with its recipe",
        )
    if not (directory / RECIPE_FILE).is_file():  # killed between the two
        write_whole(directory / RECIPE_FILE, manifest["recipe"])
    return manifest["command"], load_any_recipe(directory / RECIPE_FILE)


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
    elif "sample" not in read_manifest(directory).get("seconds", {}):
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
