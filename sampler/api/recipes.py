"""Recipes as the functions of Python take them: their data, made once, and warnings about both."""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.errors import DataWarning, ExitCode, InputError, ReliabilityWarning
from sampler.jobs.plan import Plan, SharedData, data_key, make_plan
from sampler.settings.identity import path_marks
from sampler.settings.recipe import AnyRecipe, Recipe
from sampler.storage.directory import default_directory

if TYPE_CHECKING:
    import xarray as xr

    from sampler.analysis.verdict import Verdict
    from sampler.jobs.interruption import Interruption

# A recipe, or the path of a TOML file.
RecipeOrPath = Recipe | str | os.PathLike[str]
# Number of tasks whose data are held, the last ones used.
MOST_KNOWN = 2
# Derived arrays of other networks are made again after this number.
MOST_MADE = 16


def recipe_from(source: Any, kind: type[AnyRecipe] = Recipe) -> Any:
    """The recipe, or that of a TOML file. Raises InputError for anything else."""
    if isinstance(source, kind):
        return source
    if isinstance(source, str | os.PathLike):
        return kind.load(source)
    raise InputError("recipe", source, "give a sampler.Recipe, or the path of a TOML file")


def recipe_of_one(source: RecipeOrPath) -> Recipe:
    """The recipe of one network. Raises InputError for a sweep."""
    recipe = recipe_from(source)
    if recipe.sweep:
        remedy = 'one network is needed; give each of these a value by recipe.changed({"…": …})'
        raise InputError("sweep", ", ".join(recipe.sweep), remedy)
    return recipe


# --- their data


KNOWN: dict[tuple, SharedData] = {}


def data_of(recipe: Recipe) -> SharedData:
    """The data of a recipe, which are made once; with a warning for suspicious data.

    Raises InputError where they cannot be used.
    """
    key = data_key(recipe), *states_of_files(recipe)
    known = KNOWN.pop(key, None)
    if known is None:
        known = SharedData.of(recipe)
        warn_of(known.data.concerns)
    if len(known.made) > MOST_MADE:
        known.made.clear()
    KNOWN[key] = known
    for oldest in list(KNOWN)[:-MOST_KNOWN]:
        KNOWN.pop(oldest, None)
    return known


def states_of_files(recipe: Recipe) -> Iterator[tuple]:
    """Yield size and time of every file that the data come from."""
    for key, mark in path_marks(recipe).items():
        value = reduce(getattr, key.split("."), recipe)
        path = Path(value) if mark.is_path(value) else None
        if path is not None and path.exists():
            for file in sorted(path.iterdir()) if path.is_dir() else (path,):
                state = file.stat()
                yield file.name, state.st_size, state.st_mtime_ns


# --- warnings


def warn_of(concerns: Iterable[str], category: type[Warning] = DataWarning) -> None:
    """Warn of suspicious data or results, at the line that called this package."""
    caller, level, frame = 1, 1, sys._getframe()
    while frame is not None:  # frames of other packages may come between those of this one
        level += 1
        if frame.f_globals.get("__name__", "").startswith("sampler."):
            caller = level
        frame = frame.f_back
    for text in concerns:
        warnings.warn(text, category, stacklevel=caller)


def doubts_of_theory(theory: "xr.Dataset | None") -> list[str]:
    """Warn that a saddle point did not converge."""
    from sampler.analysis.verdict import saddle_point_converged

    failed = saddle_point_converged(theory) is False
    return [f"theory: {theory.attrs['explanation']}"] if failed else []


def judged(draws: "xr.DataTree", category: type[Warning] = ReliabilityWarning) -> "Verdict":
    """The verdict on draws; with a warning where diagnostics fail."""
    from sampler.analysis.verdict import trust_verdict
    from sampler.jobs.stages import diagnose_stage

    verdict = trust_verdict(diagnose_stage(draws))
    warn_of([str(verdict)] if verdict.tone == "bad" else [], category)
    return verdict


# --- commands


def with_directory(recipe: Recipe, out: Any) -> tuple[Recipe, Path]:
    """The recipe, whose data a directory keeps where no file has them, and that directory."""
    if out == "":
        raise InputError("out", out, "name a directory; None is runs/results/<name>-<hash>")
    directory = default_directory(recipe) if out is None else Path(out)
    kept = recipe.task.kept_in(directory.resolve())
    return recipe.model_copy(update={"task": kept}), directory


@contextmanager
def as_a_command(progress: bool) -> "Iterator[Interruption]":
    """Listen to signals as the program does; print nothing if not asked.

    Errors inside name the argument of a function, not an option.
    """
    from sampler.jobs.interruption import listening

    with ExitStack() as stack:
        if not progress:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        try:
            yield stack.enter_context(listening())
        except InputError as problem:
            raise problem.about(problem.field.removeprefix("--")) from None


def carried_out(
    command: str,
    recipe: Recipe,
    out: Any,
    start: "Callable[[Plan, Interruption], ExitCode]",
    figures: bool = True,
    progress: bool = True,
) -> Path:
    """Plan a command and start it; the directory of its results.

    Warns of suspicious data.
    """
    chosen, directory = with_directory(recipe, out)
    with as_a_command(progress) as interruption:
        plan = make_plan(command, chosen, directory.resolve(), figures)
        start(plan, interruption)
    warn_of(plan.task.concerns)
    return plan.directory
