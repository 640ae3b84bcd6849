"""The directory a run writes to: claimed before anything is computed, and found again later."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sampler.errors import InputError
from sampler.jobs.recipe import Recipe, load_recipe

RECIPE_FILE = "recipe.toml"
RESULTS = Path("runs") / "results"


def default_directory(recipe: Recipe) -> Path:
    """runs/results/<name>-<hash8>, relative to the current directory."""
    return RESULTS / f"{recipe.name}-{recipe.hash8}"


def claim_directory(directory: Path, recipe: Recipe) -> Path:
    """Make the directory of this recipe and write the resolved recipe into it.

    A directory that holds results of the same recipe is used again. Raises InputError, leaving
    nothing behind, if the directory cannot be written or holds anything else.
    """
    made = missing_ancestors(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        entries = list(directory.iterdir())
        if entries and directory / RECIPE_FILE not in entries:
            raise InputError(
                "--out", str(directory), "is neither empty nor a run directory; choose another"
            )
        if entries and load_recipe(directory / RECIPE_FILE) != recipe:
            raise InputError(
                "--out", str(directory), "holds a run of another recipe; choose another directory"
            )
        write_whole(directory / RECIPE_FILE, recipe.to_toml())
    except OSError as problem:
        for folder in made:  # the deepest first; only what was made here, and only if empty
            remove_if_empty(folder)
        reason = problem.strerror or str(problem)
        raise InputError(
            "--out", str(directory), f"{reason}; choose a directory that can be written"
        ) from None
    return directory


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
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def missing_ancestors(directory: Path) -> list[Path]:
    """The directory and those above it that do not exist, the deepest first."""
    missing = []
    with suppress(OSError):
        for folder in (directory, *directory.parents):
            if folder.exists():
                break
            missing.append(folder)
    return missing


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
