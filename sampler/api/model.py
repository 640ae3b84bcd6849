"""Theory and draws of a recipe, and their comparison, in memory.

JAX is imported at the first computation, and float64 is on during computations only. Unusable
input raises an `InputError` that names the setting, as `network.widths`.
"""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from sampler.api.recipes import (
    RecipeOrPath,
    carried_out,
    data_of,
    doubts_of_theory,
    judged,
    recipe_of_one,
    warn_of,
)
from sampler.errors import InputError, ReliabilityWarning
from sampler.jobs.plan import plan_with_data
from sampler.runtime import jax_settings
from sampler.settings.recipe import Recipe
from sampler.settings.refusals import refuse_without_theory
from sampler.settings.sampler import SamplerSettings
from sampler.storage.files import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas
    import xarray as xr

    from sampler.presentation.notebook import Comparison
    from sampler.problem import AnyProblem


def solve(recipe: RecipeOrPath) -> "xr.Dataset":
    """Solve the theory: order parameters, predictors, accuracies, each with its axes.

    recipe  a `Recipe`, or the path of a TOML file

    The variables are those of `theory.nc`, along an axis `predictor` of both orders in 1/N and
    infinite width; of a network with nonlinear values there is infinite width alone. If the saddle
    point did not converge, the attribute `converged` is 0, predictions are NaN, and a
    `ReliabilityWarning` is issued.
    """
    table = solved(recipe_of_one(recipe))
    warn_of(doubts_of_theory(table), ReliabilityWarning)
    return table


def solved(recipe: Recipe) -> "xr.Dataset":
    """Solve the theory, without a warning."""
    if not recipe.is_solved:
        refuse_without_theory(recipe.outside_theory, recipe.learns_attention, "use `sample`")
    data = data_of(recipe)
    plan_with_data("solve", recipe, None, data)
    with jax_settings():
        from sampler.jobs.stages import solve_problem

        table = solve_problem(data.problem(recipe), recipe)
    return table.assign_attrs(schema_version=SCHEMA_VERSION)


def sample(
    recipe: RecipeOrPath,
    *,
    out: str | PathLike[str] | None = None,
    progress: bool = True,
    **settings: Unpack[SamplerSettings],
) -> "xr.DataTree":
    """Draw from the exact posterior, in the layout that ArviZ reads.

    recipe    a `Recipe`, or the path of a TOML file
    out       a directory that keeps the draws, as `attention-posterior sample` does: called again,
              an interrupted sampling continues; None: nothing is stored
    progress  show on stderr, or in one line of a notebook, the progress
    settings  of the section `sampler`, instead of the recipe's: see `Sampler`

    The groups are those of `draws.nc`. If diagnostics fail a `ReliabilityWarning` is issued.
    """
    given = {f"sampler.{key}": value for key, value in settings.items() if value is not None}
    chosen = recipe_of_one(recipe).changed(given) if given else recipe_of_one(recipe)
    draws = drawn(chosen, progress) if out is None else stored_draws(chosen, out, progress)
    judged(draws)
    return draws


def drawn(recipe: Recipe, progress: bool) -> "xr.DataTree":
    """Draw from the posterior, without a warning."""
    data = data_of(recipe)
    plan = plan_with_data("sample", recipe, None, data)
    with jax_settings():
        from sampler.jobs.draw import draw_posterior

        draws = draw_posterior(data.problem(recipe), plan.recipe.sampler, show=progress)
    draws.attrs["schema_version"] = SCHEMA_VERSION
    return draws


def stored_draws(recipe: Recipe, out: str | PathLike[str], progress: bool) -> "xr.DataTree":
    """Draw into a directory, or continue there, and read the stored draws."""
    from sampler.jobs.run import start_run
    from sampler.storage.result_files import read_draws

    return read_draws(carried_out("sample", recipe, out, start_run, progress=progress))


def compare(
    theory: "xr.Dataset | None",
    draws: "xr.DataTree",
    own: Mapping[str, "xr.Dataset | Mapping[str, Any]"] | None = None,
) -> "Comparison":
    """Compare theory and draws: every sampled number with its error, and the verdicts.

    theory  what `solve` returns; None for a network without one
    draws   what `sample` returns
    own     theories of your own, name → predictions: a Dataset or a dict of arrays, with names
            and shapes as in `theory`, without its axis of predictors: any of
            `order_parameter`, `predictor_mean`, `predictor_variance` …; each joins the axis, with
            a verdict of its own
    """
    from sampler.analysis.results import RunResults
    from sampler.analysis.user_theories import axes_of, checked
    from sampler.jobs.stages import compare_tables
    from sampler.presentation.notebook import Comparison, refuse_unrelated

    refuse_unrelated(theory, draws)
    axes = axes_of(draws, theory)
    arrays = {name: checked(name, prediction, axes) for name, prediction in (own or {}).items()}
    comparison = compare_tables(theory, draws, arrays)
    results = RunResults.held(None, theory=theory, draws=draws, comparison=comparison)
    return Comparison.of(results)


def head_importance(theory: "xr.Dataset", draws: "xr.DataTree | None" = None) -> "pandas.DataFrame":
    """Scores of the heads: the share of |U₁| on paths through each, relative to the largest.

    theory  what `solve` returns
    draws   what `sample` returns: the scores of the exact posterior as well, with their Monte Carlo
            standard error `mcse`

    A row for each layer, from 1, and head, from 0. To next order where the theory has it, and
    those of the trained network where there is one.
    """
    from sampler.presentation.notebook import head_table, refuse_unrelated

    if draws is not None:
        refuse_unrelated(theory, draws)
    return head_table(theory, draws)


def make_problem(recipe: RecipeOrPath) -> "AnyProblem":
    """Return the data for a theory of your own: kernels, labels, widths, temperature, test set.

    recipe  of the theory

    `learning` is the training set with the network, `attended_test` [test_example, path, channel]
    the test set; `predictions_at(U_1)` gives the predictor at an order parameter.
    """
    chosen = recipe_of_one(recipe)
    with jax_settings():
        return data_of(chosen).problem(chosen)


def teacher_of(recipe: RecipeOrPath) -> "xr.Dataset":
    """Return the teacher network of a task with `labels="teacher"`.

    recipe  with task and network as they are learned

    Its order parameters, and f(x) without noise as `predictor_train`, `predictor_test` and, where
    there is such a split, `predictor_validation`.
    """
    chosen = recipe_of_one(recipe)
    data = data_of(chosen)
    teacher = data.fitted(chosen).teacher
    if teacher is None:
        raise InputError("task.labels", chosen.task.labels, 'no teacher without labels = "teacher"')
    with jax_settings():
        from sampler.analysis.teacher_table import teacher_table

        table = teacher_table(teacher, data.problem(chosen))
    return table.assign_attrs(schema_version=SCHEMA_VERSION)
