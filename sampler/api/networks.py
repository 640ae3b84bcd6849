"""A network and its temperature from Python, and its meeting with a task."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.api.keywords import keywords_of, plain_setting, takes
from sampler.api.tasks import ChosenTask, Settings, validated
from sampler.errors import InputError
from sampler.recipes.recipe import Recipe, check_layers, make_paths_absolute, sections_of
from sampler.recipes.sections import NetworkSection, PosteriorSection
from sampler.tasks.make import fit_task
from sampler.tasks.task import Task

if TYPE_CHECKING:
    from sampler.problem import AnyProblem


@dataclass(frozen=True)
class ChosenNetwork:
    """A network and its temperature, made by `make_network`.

    settings  the sections `network` and `posterior` of a recipe, as far as they were given
    """

    settings: Settings

    def __repr__(self) -> str:
        chosen = {**self.settings["network"], **self.settings["posterior"]}
        return f"<network {', '.join(f'{key} = {value}' for key, value in chosen.items())}>"


@takes(*keywords_of(NetworkSection), *keywords_of(PosteriorSection))
def make_network(**settings: Any) -> ChosenNetwork:
    """Choose a network and its temperature; lists meet the layers of a task when it is used.

    Raises InputError, naming the keyword, for what cannot be used.
    """
    settings = plain_setting(settings)
    posterior = {k: settings.pop(k) for k in PosteriorSection.model_fields if k in settings}
    sections = {"network": settings, "posterior": posterior}
    validated(sections)
    return ChosenNetwork(sections)


def recipe_and_data(
    task: ChosenTask, network: ChosenNetwork, **sections: dict[str, Any]
) -> tuple[Recipe, Task]:
    """The recipe of task, network and further sections, and the data with the heads it keeps."""
    for name, value, kind, remedy in (
        ("task", task, ChosenTask, "make it with markov_chain_task(…) or another …_task"),
        ("network", network, ChosenNetwork, "make it with make_network(widths=…)"),
    ):
        if not isinstance(value, kind):
            raise InputError(name, value, remedy)
    sections = plain_setting(sections)
    make_paths_absolute(sections, Path.cwd(), sections_of(sections))
    recipe = validated({**task.settings, **network.settings, **sections})
    check_layers(recipe)
    return recipe, fit_task(task.data, recipe)


def problem_of(task: ChosenTask, recipe: Recipe, data: Task) -> "AnyProblem":
    """Return the problem of theory and samplers; examples are folded once for all networks."""
    from sampler.problem import build_problem, fold_training, is_folded

    if not is_folded(recipe, data):
        return build_problem(recipe, data)
    network = recipe.network
    key = repr((network.readout, network.heads, network.hypernetwork))
    if key not in task.folded:
        *_, task.folded[key] = fold_training(recipe, data)
    return build_problem(recipe, data, task.folded[key])
