"""The first line of a command, and its last one where it is interrupted."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import TrainingRecipe
from sampler.storage.manifest import MANIFEST_FILE

MADE = {
    "run": "theory, sampling, comparison, figures, report",
    "solve": "theory",
    "sample": "sampling",
    "train": "training",
}
# What `resume` goes on with; every other command is given once more.
RESUMABLE = (*MADE, "resume")


def what_begins(command: str, recipe: Recipe | TrainingRecipe) -> str:
    """What a command does with a recipe, in a line."""
    swept = isinstance(recipe, Recipe) and recipe.sweep
    points = f" at {math.prod(map(len, recipe.sweep.values()))} points" if swept else ""
    return f"{command} {recipe.name}{points}: {MADE[command]}"


def going_on(command: str, words: Sequence[str], directory: Path | None) -> str:
    """The directory of what was interrupted, and the command that goes on with it.

    words: the command as it was given.
    """
    again = shlex.join(words)
    if directory is None:
        return f"to do it again: {again}"
    if not (directory / MANIFEST_FILE).is_file():
        return f"nothing was begun; to do it again: {again}"
    if command in RESUMABLE:
        again = shlex.join([words[0], "resume", str(directory)])
    return f"what is done is in {directory}; to go on: {again}"
