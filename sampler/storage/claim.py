"""Claiming a directory for a run, before anything is computed."""

from contextlib import suppress
from pathlib import Path

from sampler.errors import InputError
from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import TrainingRecipe, load_any_recipe
from sampler.storage.lock import LOCK_FILE
from sampler.storage.log import LOG_FILE
from sampler.storage.manifest import MANIFEST_FILE, begin_command
from sampler.storage.run_directory import RECIPE_FILE, UNFINISHED, write_whole

# What a run that was killed while it claimed its directory may have left there.
BEGINNINGS = {MANIFEST_FILE, LOCK_FILE, LOG_FILE}


def claim_directory(
    directory: Path, recipe: Recipe | TrainingRecipe, command: str, fingerprint: dict
) -> Path:
    """Make the directory of this recipe; write down the command, then the resolved recipe.

    A directory that holds results of the same recipe is used again; the sweep may have grown.
    Raises InputError, leaving nothing behind, if the directory cannot be written or holds anything
    else.
    """
    made = missing_ancestors(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        refuse_foreign(directory, recipe)
        begin_command(directory, recipe, command, fingerprint)
        write_whole(directory / RECIPE_FILE, recipe.to_toml())
    except (OSError, InputError) as problem:
        with suppress(OSError):
            if made:  # of the directory's files only the manifest can be there
                (directory / MANIFEST_FILE).unlink(missing_ok=True)
            for folder in made:  # the deepest first; only what was made here
                folder.rmdir()
        if isinstance(problem, InputError):
            raise
        reason = problem.strerror or str(problem)
        raise InputError(
            "--out", str(directory), f"{reason}; choose a directory that can be written"
        ) from None
    return directory


def refuse_foreign(directory: Path, recipe: Recipe | TrainingRecipe) -> None:
    """Raise InputError unless the directory is empty or holds a run of this recipe."""
    names = {path.name for path in directory.iterdir()}
    if RECIPE_FILE not in names:
        if any(name not in BEGINNINGS and not name.startswith(UNFINISHED) for name in names):
            raise InputError(
                "--out", str(directory), "is neither empty nor a run directory; choose another"
            )
        return
    held = load_any_recipe(directory / RECIPE_FILE)
    if without_sweep(held) == without_sweep(recipe):
        return
    if differ_in_draws(held, recipe):
        raise InputError(
            "--out",
            str(directory),
            f"holds this run with {held.sampler.draws_per_chain} draws; use `resume DIR`, which "
            "appends draws with --more, or choose another directory",
        )
    raise InputError(
        "--out", str(directory), "holds a run of another recipe; choose another directory"
    )


def differ_in_draws(held: Recipe | TrainingRecipe, recipe: Recipe | TrainingRecipe) -> bool:
    """Whether two recipes of runs are the same but for the number of draws."""
    if not (isinstance(held, Recipe) and isinstance(recipe, Recipe)):
        return False
    sampler = held.sampler.model_copy(update={"draws": recipe.sampler.draws})
    return without_sweep(held.model_copy(update={"sampler": sampler})) == without_sweep(recipe)


def without_sweep(recipe: Recipe | TrainingRecipe) -> Recipe | TrainingRecipe:
    """The recipe alone; a key that is swept has its first value there."""
    return recipe.model_copy(update={"sweep": {}}) if isinstance(recipe, Recipe) else recipe


def missing_ancestors(directory: Path) -> list[Path]:
    """The directory and those above it that do not exist, the deepest first."""
    missing = []
    with suppress(OSError):
        for folder in (directory, *directory.parents):
            if folder.exists():
                break
            missing.append(folder)
    return missing
