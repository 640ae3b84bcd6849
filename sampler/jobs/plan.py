"""Plan of a command: everything that its recipe determines, made once, before JAX is imported.

A plan has two parts. What determines the draws (settings, data, space and algorithm) is stored in
the manifest and compared when a run is gone on with. The forecast of memory holds for this machine:
it is printed and stored, and never compared.
"""

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sampler.errors import InputError, Setting
from sampler.jobs.choice import SamplingMethod, Sizes, choose_method, leading_eigenvalue
from sampler.jobs.forecast import Forecast, forecast, memory_parts, refuse_too_large
from sampler.mcmc.algorithm import ALGORITHMS
from sampler.settings.recipe import Recipe, settings_that_fix_draws
from sampler.settings.refusals import (
    refuse_missing_draws,
    refuse_without_hessian,
    refuse_without_theory,
)
from sampler.settings.training import TrainingRecipe
from sampler.storage.directory import (
    COMPARISON_FILE,
    COMPARISON_SUMMARY_FILE,
    DRAWS_FILE,
    THEORY_FILE,
    point_directory,
)
from sampler.storage.manifest import MANIFEST_FILE, Manifest, determining, read_manifest
from sampler.tasks.make import check_network_fits
from sampler.tasks.task import Task
from sampler.teacher import fit_labelled_task


@dataclass(frozen=True)
class Point:
    """A recipe to be done, and the directory of its results (None: nothing is stored).

    label     `key=value,…` of a point of a sweep
    sampling  whether it is sampled at all; a sweep may leave that to the points it selects
    figures   whether figures are drawn in the end; without them the page has no pictures
    """

    recipe: Recipe
    directory: Path | None
    label: str = ""
    sampling: bool = True
    figures: bool = True

    @property
    def solved(self) -> bool:
        """Whether this point has a theory; a network that has none is only sampled."""
        return self.recipe.is_solved

    @property
    def sampled(self) -> bool:
        """Whether this point is sampled, or left to theory by its width or by its sweep."""
        one = self.recipe
        return self.sampling and one.sampler.samples(one.network, one.fits_theory)

    def samples(self, command: str) -> bool:
        """Whether a command samples here; "sample" does at any width."""
        return command == "sample" or (command == "run" and self.sampled)


@dataclass(frozen=True)
class RunPlan:
    """Plan of one run: a command, a point with its data, and what follows from them.

    recipe  of the point, space and algorithm named where it is sampled
    sizes   of the network with its data
    method  space and algorithm; None where nothing is sampled
    """

    command: str
    point: Point
    task: Task
    recipe: Recipe
    sizes: Sizes
    method: SamplingMethod | None = None

    @cached_property
    def determining(self) -> dict[str, Any]:
        """Entries that determine the draws beside the recorded space and algorithm."""
        return determining(settings_that_fix_draws(self.point.recipe), self.task.identity)

    @property
    def files(self) -> list[str]:
        return files_made(self.command, self.point)

    @property
    def known(self) -> dict[str, Any]:
        """Entries of the manifest: sizes, space and algorithm."""
        found: dict[str, Any] = {
            "sizes": self.sizes.as_dict(),
            "concerns": list(self.task.concerns),
        }
        if self.point.sampling and self.method is not None:
            found["choice"] = asdict(self.method)
        return found


@dataclass(frozen=True)
class Plan:
    """Plan of a command: its recipe, its data, and the runs that it consists of.

    runs  one for a recipe without a sweep, else one for each point of the grid
    """

    command: str
    recipe: Recipe
    directory: Path | None
    task: Task
    runs: tuple[RunPlan, ...]
    forecast: Forecast

    @property
    def points(self) -> list[Point]:
        """The points of the grid, or the one run."""
        return [run.point for run in self.runs]

    @cached_property
    def determining(self) -> dict[str, Any]:
        """Settings, data and versions that determine the draws of all runs."""
        return determining(settings_that_fix_draws(self.recipe), self.task.identity)

    @property
    def known(self) -> dict[str, Any]:
        """Entries of the manifest beside those that determine the draws."""
        of_data = {"concerns": list(self.task.concerns)}
        of_run = of_data if self.recipe.sweep else self.runs[0].known
        return of_run | {"forecast": self.forecast.as_dict()}


def make_plan(command: str, asked: Point) -> Plan:
    """Make the data of a recipe and plan a command, "run", "solve" or "sample".

    A directory that holds such a run already says which space and algorithm are used. Raises
    InputError for what cannot be done.
    """
    recipe, points = asked.recipe, points_of(asked)
    refuse_without_points(command, recipe, points)
    data = recipe.task.make(recipe.attention)
    fitted: dict[tuple, tuple[Task, float]] = {}

    def fit(one: Recipe) -> tuple[Task, float]:
        """The data with the heads that a network keeps, and their leading eigenvalue."""
        network = one.network
        key = network.heads, network.hypernetwork, network.readout
        if key not in fitted:
            task = fit_labelled_task(data, one)
            refuse_too_large(one, task)
            fitted[key] = task, leading_eigenvalue(task, network.readout)
        return fitted[key]

    def planned(point: Point) -> RunPlan:
        """Points with data of their own are planned by the sizes of these until theirs are made."""
        if shares_data(point.recipe, recipe):
            return plan_run(command, point, *fit(point.recipe))
        check_network_fits(point.recipe.network, data)
        return plan_run(command, point, *fit(recipe))

    task, _ = fit(recipe)
    runs = tuple(map(planned, points))
    if command != "solve":
        for run in runs:
            refuse_too_many_coordinates(run, recipe)
    found = forecast(
        memory_parts(run.recipe, task, run.sizes, run.method is not None) for run in runs
    )
    return Plan(command, recipe, asked.directory, task, runs, found)


def files_made(command: str, point: Point) -> list[str]:
    solves = command == "solve" or (command == "run" and point.solved)
    sampled = (
        [DRAWS_FILE, COMPARISON_FILE, COMPARISON_SUMMARY_FILE] if point.samples(command) else []
    )
    return [*([THEORY_FILE] if solves else []), *sampled]


def points_of(asked: Point) -> list[Point]:
    """The points of a grid, each with a directory of its own; of a single run, itself.

    Raises InputError if two points would share a directory.
    """
    recipe, directory = asked.recipe, asked.directory
    if not recipe.sweep:
        return [asked]
    points = [
        replace(
            asked,
            recipe=point,
            directory=directory and point_directory(directory, label),
            label=label,
        )
        for label, point in recipe.points()
    ]
    names = Counter(point_directory(Path(), point.label).name for point in points)
    label, times = names.most_common(1)[0]
    if times > 1:
        raise InputError("sweep", label, "two points have this directory; give each value once")
    return points


def refuse_without_points(command: str, recipe: Recipe, points: Sequence[Point]) -> None:
    """Raise InputError where a command leaves nothing to be done, or cannot choose what."""
    if recipe.sweep and recipe.sampler.points == "selected" and command == "sample":
        remedy = "use `run`: theory chooses what is sampled"
        raise InputError(Setting("sampler", "points"), "selected", remedy)
    for point in points if command == "solve" else ():
        one = point.recipe
        if not one.is_solved:
            refuse_without_theory(one.outside_theory, one.learns_attention, "use `run` or `sample`")


def plan_run(
    command: str,
    point: Point,
    task: Task,
    eigenvalue: float | None = None,
    recorded: Manifest | None = None,
) -> RunPlan:
    """Plan one run with its data.

    eigenvalue  `leading_eigenvalue` of the data, computed where it is not given
    recorded    manifest that says what was chosen earlier, by default that of the directory
    """
    recipe = point.recipe
    if eigenvalue is None:
        eigenvalue = leading_eigenvalue(task, recipe.network.readout)
    sizes = Sizes.of(recipe, task, eigenvalue)
    if not point.samples(command):
        return RunPlan(command, point, task, recipe, sizes)
    if recorded is None:
        recorded = Manifest() if point.directory is None else read_manifest(point.directory)
    method = choose_method(recipe, sizes)
    if recorded.choice is not None:
        method = SamplingMethod(**recorded.choice)
    recipe = method.applied_to(recipe)
    refuse_missing_draws(recipe.sampler, sizes.architecture.weight_count)
    return RunPlan(command, point, task, recipe, sizes, method)


def refuse_too_many_coordinates(run: RunPlan, recipe: Recipe) -> None:
    """Raise InputError where importance draws or the evidence would need too large a Hessian."""
    settings = run.recipe.sampler
    if run.method is None or not run.recipe.has_theory or not shares_data(run.recipe, recipe):
        return
    count = run.sizes.architecture.bartlett_coordinate_count
    if ALGORITHMS[settings.algorithm].needs_hessian:
        refuse_without_hessian(Setting("sampler", "algorithm"), settings.algorithm, count)
    if settings.evidence:
        refuse_without_hessian(Setting("sampler", "evidence"), settings.evidence, count)


def shares_data(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes ask for the same data and attention.

    A teacher is the network itself: with another network its labels are others.
    """
    same_network = (one.network, one.posterior) == (other.network, other.posterior)
    if one.task.labels == "teacher" and not same_network:
        return False
    return (one.task, one.attention) == (other.task, other.attention)


# --- the first line of a command, and its last one where it is interrupted


MADE = {
    "run": "theory, sampling, comparison, figures, report",
    "solve": "theory",
    "sample": "sampling",
    "train": "training",
}
# Leaves out the figures of a command, and of what goes on with it.
NO_FIGURES = "--no-figures"
# What `resume` goes on with; every other command is given once more.
RESUMABLE = (*MADE, "resume")


def what_begins(command: str, recipe: Recipe | TrainingRecipe, figures: bool = True) -> str:
    """Return one line about what a command does with a recipe, with or without figures."""
    swept = isinstance(recipe, Recipe) and recipe.sweep
    points = f" at {math.prod(map(len, recipe.sweep.values()))} points" if swept else ""
    made = MADE[command] if figures else MADE[command].replace("figures, ", "")
    return f"{command} {recipe.name}{points}: {made}"


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
        undrawn = [word for word in words if word == NO_FIGURES]
        again = shlex.join([words[0], "resume", str(directory), *undrawn])
    return f"what is done is in {directory}; to go on: {again}"
