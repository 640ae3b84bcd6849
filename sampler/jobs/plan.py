"""Plan of a command: everything that its recipe and its data determine, before JAX is imported.

Every refusal happens while a plan is made: nothing is computed by then, and no directory is there.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.data.make import fit_task, make_data
from sampler.data.task import Task
from sampler.errors import InputError
from sampler.jobs.memory import (
    Part,
    memory_parts,
    parts_before_data,
    peak_bytes,
    require_memory,
)
from sampler.jobs.method import SamplingMethod, choose_method
from sampler.jobs.sizes import Sizes, leading_eigenvalue, refuse_infinite_kernel
from sampler.posterior.spaces import refuse_own_priors
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import Recipe
from sampler.settings.refusals import (
    refuse_evidence,
    refuse_missing_draws,
    refuse_without_theory,
)
from sampler.storage.directory import (
    COMPARISON_FILE,
    COMPARISON_SUMMARY_FILE,
    DRAWS_FILE,
    THEORY_FILE,
    point_directory,
)
from sampler.storage.fingerprint import determining
from sampler.storage.manifest import read_manifest
from sampler.storage.run_directory import refuse_differences
from sampler.teacher import with_teacher

if TYPE_CHECKING:
    from sampler.problem import AnyProblem

# The files that a stage leaves behind.
FILES = {
    "solve": (THEORY_FILE,),
    "sample": (DRAWS_FILE,),
    "compare": (COMPARISON_FILE, COMPARISON_SUMMARY_FILE),
}


@dataclass(frozen=True)
class Plan:
    """The plan of a command with a recipe: of one network, or of the points of a sweep.

    command    "run", "solve" or "sample"
    asked      the recipe as it was given, which its directory keeps
    recipe     the same with space, algorithm and warm-up filled in
    directory  of the results; None: nothing is stored
    task       the data; None at a point of a sweep, whose turn makes them again
    sizes      of the network with its data
    method     space and algorithm; None where nothing is sampled
    arrays     the largest arrays, of the largest point of a sweep
    label      `key=value,…` of a point of a sweep
    sampling   whether it is sampled by now; a sweep may leave that to the points that it selects
    figures    whether figures are drawn in the end; without them the page has no pictures
    points     of a sweep; none of a single run
    data       of the first points of a sweep, for all networks that they have
    """

    command: str
    asked: Recipe
    recipe: Recipe
    directory: Path | None
    task: Task | None
    sizes: Sizes
    method: SamplingMethod | None
    arrays: tuple[Part, ...]
    label: str = ""
    sampling: bool = True
    figures: bool = True
    points: tuple["Plan", ...] = ()
    data: "SharedData | None" = None

    @property
    def is_solved(self) -> bool:
        """Whether the theory is solved; a network that has none is only sampled."""
        return self.command in ("run", "solve") and self.recipe.is_solved

    @property
    def is_sampled(self) -> bool:
        """Whether it is sampled, or left to theory by its width or by its sweep."""
        return self.sampling and self.method is not None

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of a single run, each with files of its own (`FILES`)."""
        return ("solve",) * self.is_solved + ("sample", "compare") * self.is_sampled

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Settings, data and versions that determine the draws.

        Of a sweep those that its points share, so that it can grow: each has its own.
        """
        if self.recipe.sweep:
            return fingerprint_of_sweep(self.asked)
        data = None if self.task is None else self.task.identity
        return determining(settings_that_fix_draws(self.asked), data)


def fingerprint_of_sweep(recipe: Recipe) -> dict[str, Any]:
    """Settings and versions that determine the draws of all points of a sweep."""
    swept = tuple(recipe.sweep)
    within = tuple(f"{key}." for key in swept)
    settings = {
        key: value
        for key, value in settings_that_fix_draws(recipe).items()
        if key not in swept and not key.startswith(within)
    }
    return determining(settings, None)


def make_plan(
    command: str, recipe: Recipe, directory: Path | None = None, figures: bool = True
) -> Plan:
    """Make the data of a recipe and plan a command, "run", "solve" or "sample".

    A directory that holds such a run already fixes space and algorithm. Every point
    of a sweep is planned as if it were alone. Raises InputError for an impossible command.
    """
    grid = recipe.points()
    refuse_command(command, recipe, grid)
    refuse_equal_directories([label for label, _ in grid])
    for _, asked in grid:
        require_memory(parts_before_data(asked.task))
    if not recipe.sweep:
        plan = plan_with_data(command, recipe, directory, SharedData.of(recipe))
        return replace(plan, figures=figures)
    planned: dict[str, Plan] = {}
    whole: Plan | None = None
    for members in points_by_data(grid):
        # Of all data that are made those of the first point alone are held until the end.
        data = SharedData.of(members[0][1])
        for label, asked in members:
            folder = None if directory is None else point_directory(directory, label)
            point = plan_with_data(command, asked, folder, data)
            if folder is not None:
                # Raises InputError where it was begun with other settings, data or versions; what
                # has none yet needs no checksum of its data.
                begun = read_manifest(folder)
                if begun.plan is not None:
                    refuse_differences(folder, begun, point.fingerprint)
            if whole is None:
                whole = replace(point, asked=recipe, recipe=recipe, method=None, data=data)
            planned[label] = replace(point, label=label, figures=figures, task=None)
    points = tuple(planned[label] for label, _ in grid)
    largest = max((point.arrays for point in points), key=peak_bytes)
    return replace(whole, directory=directory, figures=figures, arrays=largest, points=points)


@dataclass(frozen=True)
class SharedData:
    """Data of one or several recipes, and derived arrays, made once.

    key   what decides which data they are
    made  the data with the heads of a network, their leading eigenvalue, and the rows that
          represent for many training examples, by name and what decides these
    """

    key: str
    data: Task
    made: dict[tuple, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Recipe) -> "SharedData":
        """Those that a recipe asks for, made."""
        return cls(data_key(recipe), make_data(recipe))

    def fitted(self, recipe: Recipe) -> Task:
        """The data for a recipe; InputError where its network does not fit them."""
        task = fit_task(self.data, recipe)
        return self.once("task", recipe, lambda: with_teacher(task, recipe))

    def eigenvalue(self, recipe: Recipe, task: Task) -> float | None:
        """The `leading_eigenvalue` of `fitted`, the data for a recipe."""
        return self.once("eigenvalue", recipe, lambda: leading_eigenvalue(task, recipe))

    def problem(self, recipe: Recipe) -> "AnyProblem":
        """The problem of theory and samplers, for which JAX is imported."""
        from sampler.problem import build_problem, fold_training, is_folded

        task, rows = self.fitted(recipe), None
        if is_folded(recipe, task):
            rows = self.once("rows", recipe, lambda: deque(fold_training(recipe, task), 1)[0])
        return build_problem(recipe, task, rows)

    def once(self, name: str, recipe: Recipe, make: Callable[[], Any]) -> Any:
        """Data of a network with the same heads, made now if new."""
        network, teacher = recipe.network, None
        if recipe.task.labels == "teacher":  # which is the network itself
            teacher = recipe.model_dump_json(include={"network", "posterior"})
        of_heads = network.heads, network.hypernetwork, network.readout
        key = name, *of_heads, recipe.has_theory, teacher
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


def points_by_data(grid: Sequence[tuple[str, Recipe]]) -> list[list[tuple[str, Recipe]]]:
    """The points of a sweep in groups that ask for the same data, the first point in front."""
    groups: dict[str, list[tuple[str, Recipe]]] = {}
    for label, asked in grid:
        groups.setdefault(data_key(asked), []).append((label, asked))
    return list(groups.values())


def data_key(recipe: Recipe) -> str:
    """The settings that determine the data of `make_data`."""
    return recipe.model_dump_json(include={"task", "attention"})


def plan_with_data(
    command: str,
    recipe: Recipe,
    directory: Path | None,
    data: SharedData,
    more: Sequence[Part] = (),
) -> Plan:
    """Plan one run with its data, and refuse sizes that exceed the memory.

    more  arrays held in addition to those of the command
    """
    method, filled, sampled, task = None, recipe, command != "solve", data.fitted(recipe)
    eigenvalue = data.eigenvalue(recipe, task) if sampled else None
    sizes = Sizes.of(recipe, task, eigenvalue)
    refuse_infinite_kernel(recipe, task, sizes.architecture)
    if sampled:
        method = choose_method(recipe, sizes)
        recorded = None if directory is None else read_manifest(directory).choice
        if recorded is not None:
            method = SamplingMethod(**recorded)
        filled = method.applied_to(recipe)
        refuse_missing_draws(filled.sampler, sizes.architecture.weight_count)
        if recipe.has_theory:
            refuse_evidence(filled.sampler, sizes.architecture.bartlett_coordinate_count)
    arrays = require_memory([*memory_parts(filled, task, sizes, sampled), *more])
    return Plan(command, recipe, filled, directory, task, sizes, method, arrays)


# --- refusals


def refuse_command(command: str, recipe: Recipe, grid: Sequence[tuple[str, Recipe]]) -> None:
    """Raise InputError where a command has nothing to do, or no way to choose."""
    if recipe.sweep and recipe.sampler.points == "selected" and command == "sample":
        remedy = "use `run`: theory chooses what is sampled"
        raise InputError("sampler.points", "selected", remedy)
    for _, asked in grid if command != "sample" else ():
        if asked.is_solved:
            refuse_own_priors(asked.sampler.space)
        elif command == "solve":
            remedy = "use `run` or `sample`"
            refuse_without_theory(asked.outside_theory, asked.learns_attention, remedy)


def refuse_equal_directories(labels: Sequence[str]) -> None:
    """Raise InputError if two points of a sweep would share a directory."""
    names = Counter(point_directory(Path(), label).name for label in labels)
    label, times = names.most_common(1)[0]
    if times > 1:
        raise InputError("sweep", label, "two points have this directory; give each value once")
