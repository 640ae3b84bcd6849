"""Theory, samples and their comparison from Python, by the same functions as the command line.

    import sampler

    task = sampler.make_task("markov_chain", tokens=30, heads=[["good", "random"], ["uniform"]])
    network = sampler.make_network(widths=10, temperature=0.01)
    theory = sampler.solve(task, network)  # what `solve` stores as theory.nc
    draws = sampler.sample(task, network, draws=500)  # what `sample` stores as draws.nc
    sampler.compare(theory, draws)  # what `compare` stores as comparison.json

Every keyword is a key of the recipe, with its default and its limits, and is refused with the same
`InputError`. JAX is imported when something is computed; float64 is on while it is computed only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sampler.errors import InputError
from sampler.numerics import use_one_blas_thread, warn_of_deadlock
from sampler.recipes.recipe import (
    Recipe,
    check_layers,
    make_recipe,
    resolve_data_path,
    resolve_start,
)
from sampler.recipes.sections import PosteriorSection
from sampler.recipes.task_section import section_of
from sampler.recipes.validation import refuse_without_theory
from sampler.storage.run_directory import SCHEMA_VERSION
from sampler.tasks.arrays import arrays_task, is_array_name
from sampler.tasks.make import fit_task
from sampler.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr

    from sampler.presentation.summary import Comparison
    from sampler.problem import AnyProblem
    from theory import Triangle

Settings = Mapping[str, Any]
# Those that no section `task` has too.
KEYS_OF_ATTENTION = ("heads", "inverse_temperature", "form")


@dataclass(frozen=True)
class ChosenTask:
    """A task with its data, made by `make_task`.

    settings  the sections `task` and `attention` of a recipe, as far as they were given
    data      the splits, with the attention matrices that the inputs fix
    folded    rows that stand for the training examples, once they were needed, by the sections
              `network` that they follow from
    """

    settings: Settings
    data: Task = field(repr=False)
    folded: dict[str, "Triangle"] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        data = self.data
        sizes = [f"{data.train.examples} training", f"{data.test.examples} test"]
        if data.validation is not None:
            sizes.append(f"{data.validation.examples} validation")
        return (
            f"<task {self.settings['task']['kind']}: {', '.join(sizes)} examples, "
            f"{data.channels} channels, outputs: {data.outputs}, heads: "
            f"{' | '.join(', '.join(names) for names in data.head_names)}, "
            f"paths: {', '.join(data.path_names)}>"
        )


@dataclass(frozen=True)
class ChosenNetwork:
    """A network and its temperature, made by `make_network`.

    settings  the sections `network` and `posterior` of a recipe, as far as they were given
    """

    settings: Settings

    def __repr__(self) -> str:
        given = {**self.settings["network"], **self.settings["posterior"]}
        return f"<network {', '.join(f'{key} = {value}' for key, value in given.items())}>"


def make_task(kind: str, **settings: Any) -> ChosenTask:
    """Make or read the data of a task: one of the kinds of `task.kind`, such as "markov_chain".

    Keywords are the keys of `task` and, where the task leaves the heads open, of `attention`:
    `heads`, `inverse_temperature`, `form`; `attention={"lag": …}` where both have a key of that
    name. Paths are relative to the current directory. Instead of the `path` of an .npz file,
    "arrays" takes the arrays themselves under their names there:
    `inputs_train` [example, token, channel], `labels_train` [example] or [example, output],
    `attention_train_1` … `_L` [example, head, key, query], and the same with `_test`; or
    `attended_train` [example, path, channel], `labels_train`, `heads` [layer] and `attended_test`.

    Raises InputError, naming key or array, for anything that cannot be used.
    """
    given = {key: plain_setting(value) for key, value in settings.items()}
    if kind == "arrays" and any(map(is_array_name, given)):
        arrays = {key: as_array(key, given.pop(key)) for key in settings if is_array_name(key)}
        if "path" in given:
            raise InputError("task.path", given["path"], "give the path or the arrays, not both")
        sections = {"task": {"kind": kind, "path": "(arrays in memory)", **given}}
        recipe_of(sections)
        return ChosenTask(sections, arrays_task(arrays))
    sections = {"task": {"kind": kind, **given}}
    attention = sections["task"].pop("attention", {})
    if not isinstance(attention, Mapping):
        raise InputError("attention", attention, "give a dict of its keys")
    section = section_of(sections["task"])
    if section is not None and section.head_kinds:
        chosen = [key for key in KEYS_OF_ATTENTION if key in given]
        attention = {**attention, **{key: sections["task"].pop(key) for key in chosen}}
    if attention:
        sections["attention"] = attention
    resolve_data_path(sections, Path.cwd())
    recipe = recipe_of(sections)
    return ChosenTask(sections, recipe.task.make(recipe.attention))


def make_network(**settings: Any) -> ChosenNetwork:
    """Choose widths, variances, readout and kept heads of a network, and its temperature.

    Keywords are the keys of `network` (`widths` is required) and `posterior`. Lists per layer are
    held against the layers of a task when the two meet. Raises InputError for anything else.
    """
    given = {key: plain_setting(value) for key, value in settings.items()}
    posterior = {key: given.pop(key) for key in PosteriorSection.model_fields if key in given}
    sections = {"network": given, "posterior": posterior}
    recipe_of(sections)
    return ChosenNetwork(sections)


def solve(task: ChosenTask, network: ChosenNetwork, **settings: Any) -> "xr.Dataset":
    """Solve the theory: order parameters, predictors, GP limit, accuracies, each with its axes.

    Keywords are the keys of `theory`. The variables are those of `theory.nc`; a saddle point that
    did not converge has `converged` = 0 among its attributes and predictions that are NaN. Raises
    InputError where task and network do not fit.
    """
    recipe, data = joined(task, network, theory=settings)
    refuse_without_theory(recipe.network, "use `sample`")
    use_one_blas_thread()
    warn_of_deadlock()
    import jax

    from sampler.jobs.stages import solve_problem

    with jax.enable_x64(True):
        table = solve_problem(problem_of(task, recipe, data), recipe)
    return table.assign_attrs(schema_version=SCHEMA_VERSION)


def sample(
    task: ChosenTask, network: ChosenNetwork, *, progress: bool = True, **settings: Any
) -> "xr.DataTree":
    """Draw from the exact posterior, in the layout that ArviZ reads.

    Keywords are the keys of `sampler`: `draws` per chain, `chains`, `space`, `seed` … The groups
    are those of `draws.nc`. Nothing is stored before the end; `attention-posterior run` keeps
    what it has. `progress` shows on stderr how far it is. Raises InputError where task and network
    do not fit.
    """
    recipe, data = joined(task, network, sampler=settings)
    use_one_blas_thread()
    warn_of_deadlock()
    import jax

    from sampler.jobs.choice import choose
    from sampler.jobs.stages import draw_posterior
    from sampler.storage.earlier_chains import read_earlier_chains

    chosen = choose(recipe, data).applied_to(recipe).sampler
    start = read_earlier_chains(chosen)
    with jax.enable_x64(True):
        draws = draw_posterior(problem_of(task, recipe, data), chosen, show=progress, start=start)
    draws.attrs["schema_version"] = SCHEMA_VERSION
    return draws


def compare(theory: "xr.Dataset", draws: "xr.DataTree") -> "Comparison":
    """Hold the theory against the draws: every sampled number with its error, and the verdict.

    Raises InputError if the two belong to different paths, test sets or temperatures.
    """
    use_one_blas_thread()
    from sampler.jobs.stages import compare_tables
    from sampler.presentation.summary import Comparison, refuse_unrelated

    refuse_unrelated(theory, draws)
    names = tuple(str(name) for name in theory["path"].values)
    return Comparison(compare_tables(theory, draws), theory, names)


def problem_of(task: ChosenTask, recipe: Recipe, data: Task) -> "AnyProblem":
    """What theory and samplers work on; examples are folded once for all networks that see them."""
    from sampler.problem import fold_training, is_folded, make_problem

    if not is_folded(recipe, data):
        return make_problem(recipe, data)
    network = recipe.network
    key = repr((network.readout, network.heads, network.hypernetwork))
    if key not in task.folded:
        *_, task.folded[key] = fold_training(recipe, data)
    return make_problem(recipe, data, task.folded[key])


def as_array(key: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        raise InputError(key, value, "give an array: lists in a list have one length") from None


def plain_setting(value: Any) -> Any:
    """A path as text and a NumPy number as Python's, as a TOML file would have them."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def recipe_of(sections: Settings) -> Recipe:
    """A validated recipe; what is not given yet is a placeholder that refuses nothing."""
    placeholders = {
        "name": "python",
        "task": {"kind": "markov_chain"},
        "network": {"widths": 2},
    }
    return make_recipe({**placeholders, **sections})


def joined(task: ChosenTask, network: ChosenNetwork, **sections: Any) -> tuple[Recipe, Task]:
    """The recipe of task, network and further sections, and the data with the heads it keeps."""
    for name, given, kind, remedy in (
        ("task", task, ChosenTask, "make it with make_task(kind, …)"),
        ("network", network, ChosenNetwork, "make it with make_network(widths=…)"),
    ):
        if not isinstance(given, kind):
            raise InputError(name, given, remedy)
    plain = {
        name: {key: plain_setting(value) for key, value in section.items()}
        for name, section in sections.items()
    }
    resolve_start(plain, Path.cwd())
    recipe = recipe_of({**task.settings, **network.settings, **plain})
    check_layers(recipe)
    return recipe, fit_task(task.data, recipe)
