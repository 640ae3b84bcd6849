"""The directory a run writes to: what it is called, how it is found, and how files get there."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from sampler.errors import InputError
from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import TrainingRecipe

RECIPE_FILE = "recipe.toml"
RESULTS = Path("runs") / "results"
CHECKPOINT_FOLDER = "checkpoint"
FIGURE_FOLDER = "figures"
# Files in the making; a killed process leaves them behind.
UNFINISHED = ".part-"
# Two checkpoints take turns, so that one is whole whatever happens to the other.
CHECKPOINT_SLOTS = ("state-0.bin", "state-1.bin")


def default_directory(recipe: Recipe | TrainingRecipe) -> Path:
    """runs/results/<name>-<hash8>, relative to the current directory."""
    return RESULTS / f"{recipe.name}-{recipe.hash8}"


def find_directory(directory: Path) -> Path:
    """The directory of an earlier run; InputError if it is none."""
    try:
        found = (directory / RECIPE_FILE).is_file()
    except OSError:
        found = False
    if not found:
        raise InputError(
            "DIR", str(directory), f"holds no {RECIPE_FILE}; name the directory of an earlier run"
        )
    return directory


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there completely or not at all."""
    fill_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def fill_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    prefix = f"{UNFINISHED}{path.stem}-"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # or the new name might not survive a power failure
        finally:
            os.close(folder)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed process left half-written; only for whoever holds the directory."""
    for folder in (directory, directory / CHECKPOINT_FOLDER, directory / FIGURE_FOLDER):
        for path in folder.glob(f"{UNFINISHED}*"):
            path.unlink(missing_ok=True)
