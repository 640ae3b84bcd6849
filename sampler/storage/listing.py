"""Which runs there are: found, the newest first, each with its state and its verdict."""

import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from sampler.errors import InputError
from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import load_any_recipe
from sampler.storage.manifest import MANIFEST_FILE
from sampler.storage.run_directory import (
    COMPARISON_FILE,
    RECIPE_FILE,
    RESULTS,
    find_directory,
    point_directory,
    read_json,
)
from sampler.storage.status import state_of

# With two columns of indentation, a line of a usual terminal.
WIDTH = 78


def newest_run() -> Path:
    """The directory in runs/results that was last worked at; InputError if there is none."""
    found = runs_in([RESULTS])
    if not found:
        raise InputError("DIR", "latest", f"{RESULTS} holds no run; name the directory of one")
    return found[0]


def runs_in(directories: Sequence[Path]) -> list[Path]:
    """The runs that are or lie in these directories, those last worked at first."""
    found = []
    for directory in directories:
        if (directory / RECIPE_FILE).is_file():
            found.append(directory)
        elif directory.is_dir():
            found += [file.parent for file in directory.glob(f"*/{RECIPE_FILE}")]
    return sorted(dict.fromkeys(found), key=last_worked_at, reverse=True)


def last_worked_at(directory: Path) -> float:
    """When a command last recorded something there, in seconds since 1970."""
    file = directory / MANIFEST_FILE
    return (file if file.is_file() else directory / RECIPE_FILE).stat().st_mtime


def listing_text(directories: Sequence[Path]) -> str:
    """A few lines for every run: where it is, its name, state and time, and the verdict."""
    for directory in directories:
        if not directory.is_dir():
            find_directory(directory)
    where = list(directories) or [RESULTS]
    found = runs_in(where)
    if not found:
        return f"no runs in {', '.join(map(str, where))}"
    return "\n".join(map(entry_text, found))


def entry_text(directory: Path) -> str:
    """The text about one run."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last_worked_at(directory)))
    try:
        recipe = load_any_recipe(directory / RECIPE_FILE)
        said = [f"{recipe.name}, {when}, {state_of(directory)}", *more_text(directory, recipe)]
    except InputError as problem:
        said = [str(problem)]
    lines = [
        textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) for text in said
    ]
    return "\n".join([str(directory), *(textwrap.indent(text, "  ") for text in lines)])


def more_text(directory: Path, recipe: object) -> list[str]:
    """The verdict on the theory, or how many points of a sweep are finished."""
    if isinstance(recipe, Recipe) and recipe.sweep:
        states = [state_of(point_directory(directory, label)) for label, _ in recipe.points()]
        return [f"{sum('finished' in one for one in states)} of {len(states)} points finished"]
    if not (directory / COMPARISON_FILE).is_file():
        return []
    verdict = read_json(directory / COMPARISON_FILE, "compare").get("verdict") or {}
    line = verdict.get("in_short") or verdict.get("headline")
    return [line] if line else []
