"""The posterior itself: a NumPyro model, a function of a flat vector, weighted draws, attention.

The first two are methods of `Recipe`. They need float64, which the caller has to
switch on.
"""

import math
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.api.recipes import data_of, recipe_of_one
from sampler.api.runs import Run
from sampler.errors import InputError
from sampler.jobs.memory import FLOAT, Part
from sampler.jobs.plan import plan_with_data
from sampler.posterior.spaces import ORDER_PARAMETERS, has_own_priors
from sampler.runtime import jax_settings
from sampler.settings.recipe import Recipe
from sampler.storage.directory import find_directory

if TYPE_CHECKING:
    import xarray as xr

    from sampler.analysis.learned_heads import SampledHeads
    from sampler.posterior.exported import FlatDensity
    from sampler.posterior.importance_sampling import ImportanceDraws
    from sampler.problem import Problem


def numpyro_model(
    recipe: Recipe, space: str, sites: Sequence[str]
) -> tuple[Callable[..., None], dict[str, Any]]:
    """The posterior of a recipe as a NumPyro model; see `Recipe.numpyro_model`."""
    from sampler.posterior.exported import require_settings

    require_settings()
    chosen = in_space(recipe, space)
    data, more = data_of(chosen), []
    if chosen.has_theory:
        task = data.fitted(chosen)
        size = FLOAT * task.train.examples * math.prod(task.heads) * task.channels
        remedy = "use fewer examples, or `log_density`, which sees rows in their place"
        more.append(Part("attended inputs of all examples", size, remedy, 3))
    plan_with_data("solve", chosen, None, data, more=more)
    return data.problem(chosen).numpyro_model(space, tuple(sites))


def log_density(recipe: Recipe, space: str) -> "FlatDensity":
    """The posterior of a recipe as a function of a flat vector; see `Recipe.log_density`."""
    from sampler.posterior.exported import require_settings

    require_settings()
    chosen = in_space(recipe, space)
    data = data_of(chosen)
    plan_with_data("solve", chosen, None, data)
    return data.problem(chosen).flat_density(space)


def in_space(recipe: Recipe, space: str) -> Recipe:
    """The recipe in this space, without settings of theory and sampling.

    Raises InputError if the recipe names another space with its own priors.
    """
    one = recipe_of_one(recipe)
    named = one.sampler.space
    if has_own_priors(named) and space != named:
        remedy = f'the recipe samples "{named}", which has priors of its own; ask for that space'
        raise InputError("space", space, remedy)
    given = one.model_fields_set & {"name", "task", "attention", "network", "posterior"}
    return Recipe(**{name: getattr(one, name) for name in given}, sampler={"space": space})


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
    the evidence: `log_evidence`, with `log_evidence_error`. All of this is valid only if
    `trusted`; where it is not there may be fewer draws.
    """
    from sampler.posterior.importance_sampling import importance_draws

    with jax_settings():
        return importance_draws(problem.space(ORDER_PARAMETERS), draws, seed, adapted)


def sampled_attention(draws: "xr.DataTree | Run | str | PathLike[str]") -> "SampledHeads":
    """Return the attention of learned heads: numbers with their errors, matrices, U₁, predictor.

    draws  what `sample` returns, a run, or its directory

    Heads are in matched order, so that means over draws are defined if heads can be
    exchanged. `to_dataframe()` has, of every head, entropy, distances and overlaps, each with
    its prior value. Raises InputError where no attention was sampled.
    """
    from sampler.analysis.learned_heads import SampledHeads

    if isinstance(draws, str | PathLike):
        draws = Run(find_directory(Path(draws)))
    return SampledHeads.of(draws.draws if isinstance(draws, Run) else draws)
