"""The posterior itself: a NumPyro model, a function of a flat vector, weighted draws, attention.

The first two compute in float64, which has to be on: nothing is switched here, as the model is used
later.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.api.keywords import takes
from sampler.api.model import ChosenNetwork, problem_of, recipe_and_data
from sampler.api.runs import AnyRecipe, Changes, Run, recipe_from
from sampler.api.tasks import ChosenTask
from sampler.data.make import make_data
from sampler.data.task import Task
from sampler.errors import ABSENT, InputError
from sampler.jobs.memory import FLOAT, Part
from sampler.jobs.plan import plan_with_data
from sampler.posterior.spaces import ORDER_PARAMETERS, SpaceName, has_own_priors
from sampler.runtime import jax_settings
from sampler.settings.recipe import Recipe
from sampler.storage.directory import RECIPE_FILE, find_directory

if TYPE_CHECKING:
    import xarray as xr

    from sampler.analysis.learned_heads import SampledHeads
    from sampler.posterior.exported import FlatDensity
    from sampler.posterior.importance_sampling import ImportanceDraws
    from sampler.problem import Problem

AnySource = ChosenTask | Run | AnyRecipe


@takes()
def numpyro_model(
    task: AnySource,
    network: ChosenNetwork | None = None,
    space: SpaceName = "weights",
    *,
    sites: Sequence[str] = (),
    settings: Changes | None = None,
) -> tuple[Callable[..., None], dict[str, Any]]:
    """Return the posterior as a plain NumPyro model, with the keyword arguments to call it with.

    task      of `markov_chain_task(…)` and the like; or a run, its directory, or a recipe: a TOML
              file, or its tables as nested dicts
    network   of `make_network(…)`, with a task
    space     "weights": all weights, labels example by example; "hidden_weights" and
              "order_parameters": the readout, or all weights, integrated out, and all labels as
              one site; "attention": the logit weights of learned heads alone, at infinite
              width
    sites     further deterministic sites, on the test set: "predictor" where all weights are
              sampled, else "predictor_mean" and "predictor_variance"
    settings  changes of single settings of a recipe, such as {"network.widths": 10}

    The keyword argument `labels` is None where labels are to be drawn; `inputs_new` adds the site
    `y_new`, labels of new examples. Raises InputError where JAX does not compute in float64
    (`numpyro.enable_x64()` comes first), for a network outside the theory in another space than
    "hidden_weights" and "weights", and for what does not fit the memory.
    """
    from sampler.posterior.exported import require_settings

    require_settings()
    chosen, recipe, data = task_recipe_data(task, network, space, settings)
    more = []
    if recipe.has_theory:
        size = FLOAT * data.train.examples * math.prod(data.heads) * data.channels
        remedy = "use fewer examples, or `log_density`, which sees rows in their place"
        more.append(Part("attended inputs of all examples", size, remedy, 3))
    plan_with_data("solve", recipe, None, data, more=more)
    return problem_of(chosen, recipe, data).numpyro_model(space, tuple(sites))


@takes()
def log_density(
    task: AnySource,
    network: ChosenNetwork | None = None,
    space: SpaceName = "order_parameters",
    *,
    settings: Changes | None = None,
) -> "FlatDensity":
    """Return the posterior as a function of one flat vector, for any sampler that takes one.

    task, network, settings  as for `numpyro_model`
    space                    whose coordinates the vector has

    Raises InputError as `numpyro_model` does.
    """
    from sampler.posterior.exported import require_settings

    require_settings()
    chosen, recipe, data = task_recipe_data(task, network, space, settings)
    plan_with_data("solve", recipe, None, data)
    return problem_of(chosen, recipe, data).flat_density(space)


@takes()
def weighted_draws(
    problem: "Problem", draws: int, seed: int = 0, adapted: bool = True
) -> "ImportanceDraws":
    """Return independent weighted draws of the order parameters, and the evidence from them.

    problem  what `make_problem` returns, of fixed attention
    draws    how many
    seed     of their random numbers
    adapted  whether the proposal is fitted to pilot samples; else it is Student's t about the mode,
             whose heavy tails bound the weights of any number of draws

    `weights` sum to one, `points` have the coordinates of `log_density`, and the mean weight is
    the evidence: `log_evidence`, with `log_evidence_error`. Nothing of this means anything unless
    it is `trusted`; where it is not there may be fewer draws.
    """
    from sampler.posterior.importance_sampling import importance_draws

    with jax_settings():
        return importance_draws(problem.space(ORDER_PARAMETERS), draws, seed, adapted)


@takes()
def attention_found(draws: "xr.DataTree | Run | str | Path") -> "SampledHeads":
    """Return what learned heads attend to: numbers with their errors, matrices, U₁, predictor.

    draws  what `sample` returns, a run, or its directory

    Heads are in matched order, so that a mean over draws means something where heads can be
    exchanged. `to_dataframe()` has, of every head, entropy, distances and overlaps, each beside
    what it is a priori. Raises InputError where no attention was sampled.
    """
    from sampler.analysis.learned_heads import SampledHeads

    if isinstance(draws, str | Path):
        draws = Run(find_directory(Path(draws)))
    return SampledHeads.of(draws.draws if isinstance(draws, Run) else draws)


# --- from a task with a network, a run or a recipe


def task_recipe_data(
    source: AnySource, network: ChosenNetwork | None, space: str, settings: Changes | None
) -> tuple[ChosenTask, Recipe, Task]:
    """The task, the recipe of one network in this space, and the data with the heads it keeps."""
    if not isinstance(source, ChosenTask):
        if network is not None:
            remedy = "the run or recipe has one; change it by `settings`"
            raise InputError("network", network, remedy)
        recipe = recipe_of_source(source, settings)
        refuse_other_priors(recipe, space)
        source, network = task_and_network(recipe)
    elif settings is not None:
        raise InputError("settings", settings, "changes a recipe; give keywords of the task")
    elif network is None:
        raise InputError("network", ABSENT, "make it with make_network(widths=…)")
    return source, *recipe_and_data(source, network, sampler={"space": space})


def refuse_other_priors(recipe: Recipe, space: str) -> None:
    """Raise InputError where a recipe samples a space with priors of its own, and not this one."""
    named = recipe.sampler.space
    if has_own_priors(named) and space != named:
        remedy = f'the recipe samples "{named}", which has priors of its own; ask for that space'
        raise InputError("space", space, remedy)


def recipe_of_source(source: Run | AnyRecipe, settings: Changes | None) -> Recipe:
    """The recipe of a run, of its directory, of a file, or of nested dicts."""
    if isinstance(source, Run):
        source = source.directory
    if not isinstance(source, str | Path | Mapping):
        raise InputError("task", source, "give a task, a run, its directory, or a recipe")
    if not isinstance(source, Mapping) and Path(source).is_dir():
        source = find_directory(Path(source)) / RECIPE_FILE
    recipe = recipe_from(source, settings)
    if recipe.sweep:
        remedy = "one network is needed; give each of these keys a value by `settings`"
        raise InputError("sweep", ", ".join(recipe.sweep), remedy)
    return recipe


def task_and_network(recipe: Recipe) -> tuple[ChosenTask, ChosenNetwork]:
    """Task and network of a recipe; what it says of theory and sampling has no part in them."""
    sections = {name: section for name, section in recipe.model_dump().items() if section}
    of_task = {name: sections[name] for name in ("task", "attention") if name in sections}
    of_network = {name: sections[name] for name in ("network", "posterior")}
    return ChosenTask(of_task, make_data(recipe)), ChosenNetwork(of_network)
