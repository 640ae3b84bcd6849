"""A network and its temperature from Python, and its meeting with a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sampler.api.keywords import given, in_python
from sampler.api.tasks import ChosenTask, Settings, validated
from sampler.errors import InputError
from sampler.recipes.recipe import Recipe, check_layers, resolve_start
from sampler.recipes.sections import PosteriorSection
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


@in_python
def make_network(
    widths: int | Sequence[int],
    *,
    variances: float | Sequence[float] = 1.0,
    readout: Literal["last", "first", "mean"] | None = None,
    heads: Sequence[Sequence[int]] | None = None,
    hypernetwork: bool | Sequence[bool] = False,
    values: Literal["linear", "relu"] = "linear",
    layer_norm: bool = False,
    temperature: float = 0.01,
    temperature_spread: float = 0.0,
    variance_spread: float = 0.0,
) -> ChosenNetwork:
    """Choose a network and its temperature; lists meet the layers of a task when it is used.

    widths              N of all layers, or [N_1, …, N_L, N_a]
    variances           prior variance of all weights, or [σ0², σ1², …, σL², σa²]
    readout             the token that is read out, or "mean" of all; None: "last", but "mean" for
                        `digits_task` and `one_shot_task`
    heads               the heads that each layer keeps, by number from 0; None: all
    hypernetwork        whether heads make two layers of weights, of values and of outputs: in all
                        layers of attention, or a list by layer
    values              "relu" is outside the theory, and only sampled
    layer_norm          normalisation between layers; outside the theory, and only sampled
    temperature         𝒯, the variance of the likelihood
    temperature_spread  above 0: 𝒯 is sampled too, ln 𝒯 with this prior standard deviation
    variance_spread     the same for each prior variance

    Raises InputError, naming the keyword, for what cannot be used.
    """
    settings = given(make_network, locals())
    posterior = {k: settings.pop(k) for k in PosteriorSection.model_fields if k in settings}
    sections = {"network": settings, "posterior": posterior}
    validated(sections)
    return ChosenNetwork(sections)


def joined(
    task: ChosenTask, network: ChosenNetwork, **sections: dict[str, Any]
) -> tuple[Recipe, Task]:
    """The recipe of task, network and further sections, and the data with the heads it keeps."""
    for name, value, kind, remedy in (
        ("task", task, ChosenTask, "make it with markov_chain_task(…) or another …_task"),
        ("network", network, ChosenNetwork, "make it with make_network(widths=…)"),
    ):
        if not isinstance(value, kind):
            raise InputError(name, value, remedy)
    resolve_start(sections, Path.cwd())
    recipe = validated({**task.settings, **network.settings, **sections})
    check_layers(recipe)
    return recipe, fit_task(task.data, recipe)


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
