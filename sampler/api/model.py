"""A network and its task from Python: theory, draws, and their comparison.

JAX is imported when something is computed, and float64 is on while it is computed only. What cannot
be used is refused with an `InputError` that names the keyword.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sampler.api.keywords import keywords_of, plain_setting, takes, warn_of
from sampler.api.tasks import ChosenTask, Settings, validated
from sampler.data.task import Task
from sampler.errors import InputError, ReliabilityWarning
from sampler.jobs.plan import plan_with_data
from sampler.runtime import jax_settings
from sampler.settings.network_sections import NetworkSection, PosteriorSection, TheorySection
from sampler.settings.recipe import Recipe
from sampler.settings.refusals import refuse_without_theory
from sampler.settings.sampler import SamplerSection
from sampler.storage.files import SCHEMA_VERSION
from sampler.teacher import fit_labelled_task

if TYPE_CHECKING:
    import pandas
    import xarray as xr

    from sampler.presentation.notebook import Comparison
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
    """Choose a network and its temperature; lists meet the layers of a task when it is used."""
    settings = plain_setting(settings)
    posterior = {k: settings.pop(k) for k in PosteriorSection.model_fields if k in settings}
    sections = {"network": settings, "posterior": posterior}
    validated(sections)
    return ChosenNetwork(sections)


@takes(*keywords_of(TheorySection))
def solve(task: ChosenTask, network: ChosenNetwork, **settings: Any) -> "xr.Dataset":
    """Solve the theory: order parameters, predictors, accuracies, each with its axes.

    The variables are those of `theory.nc`, along an axis `predictor` of both orders in 1/N and
    infinite width; of a network with nonlinear values there is infinite width alone. A saddle point
    that did not converge has `converged` = 0 among its attributes and predictions that are NaN: a
    `ReliabilityWarning` says so.
    """
    table = solved(task, network, settings)
    warn_of(doubts_of_theory(table), ReliabilityWarning)
    return table


@takes()
def solved(task: ChosenTask, network: ChosenNetwork, settings: Settings) -> "xr.Dataset":
    """Solve the theory, for a caller who looks at whether it converged."""
    recipe, data = recipe_and_data(task, network, theory=settings)
    if not recipe.is_solved:
        refuse_without_theory(recipe.outside_theory, recipe.learns_attention, "use `sample`")
    plan_with_data("solve", recipe, None, data)
    with jax_settings():
        from sampler.jobs.stages import solve_problem

        table = solve_problem(problem_of(task, recipe, data), recipe)
    return table.assign_attrs(schema_version=SCHEMA_VERSION)


@takes(*keywords_of(SamplerSection))
def sample(
    task: ChosenTask, network: ChosenNetwork, *, progress: bool = True, **settings: Any
) -> "xr.DataTree":
    """Draw from the exact posterior, in the layout that ArviZ reads.

    The groups are those of `draws.nc`. Nothing is stored before the end; `run` keeps what it has.
    With `progress`, stderr or one line of a notebook shows how far it is. A `ReliabilityWarning`
    says where diagnostics fail.
    """
    draws = drawn(task, network, progress, settings)
    warn_of(doubts_of_draws(draws), ReliabilityWarning)
    return draws


@takes()
def drawn(
    task: ChosenTask, network: ChosenNetwork, progress: bool, settings: Settings
) -> "xr.DataTree":
    """Draw from the posterior, for a caller who judges the draws."""
    recipe, data = recipe_and_data(task, network, sampler=settings)
    plan = plan_with_data("sample", recipe, None, data)
    with jax_settings():
        from sampler.jobs.draw import draw_posterior

        problem = problem_of(task, recipe, data)
        draws = draw_posterior(problem, plan.recipe.sampler, show=progress)
    draws.attrs["schema_version"] = SCHEMA_VERSION
    return draws


@takes()
def compare(
    theory: "xr.Dataset | None",
    draws: "xr.DataTree",
    own: Mapping[str, "xr.Dataset | Mapping[str, Any]"] | None = None,
) -> "Comparison":
    """Hold the theory against the draws: every sampled number with its error, and the verdicts.

    theory  what `solve` returns; None for a network without one
    draws   what `sample` returns
    own     theories of your own, name → predictions: a Dataset or a dict of arrays, under the names
            and of the shapes that they have in `theory`, without its axis of predictors: any of
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


@takes()
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


@takes()
def make_problem(task: ChosenTask, network: ChosenNetwork) -> "AnyProblem":
    """Return the start of a theory of your own: kernels, labels, widths, temperature, test set.

    task, network  what the theory is about

    `learning` is the training set with the network, `attended_test` [test_example, path, channel]
    the test set; `predictions_at(U_1)` says what follows from an order parameter.
    """
    recipe, data = recipe_and_data(task, network)
    with jax_settings():
        return problem_of(task, recipe, data)


@takes()
def teacher_of(task: ChosenTask, network: ChosenNetwork) -> "xr.Dataset":
    """Return the network that labels were drawn from, where the task has `labels="teacher"`.

    task, network  as they are learned

    Its order parameters, and f(x) without noise as `predictor_train`, `predictor_test` and, where
    there is such a split, `predictor_validation`.
    """
    recipe, data = recipe_and_data(task, network)
    if data.teacher is None:
        raise InputError("task", task.settings["task"]["kind"], 'make it with labels="teacher"')
    with jax_settings():
        from sampler.analysis.teacher_table import teacher_table

        table = teacher_table(data.teacher, problem_of(task, recipe, data))
    return table.assign_attrs(schema_version=SCHEMA_VERSION)


# --- results that are not to be relied on


def doubts_of_theory(theory: "xr.Dataset | None") -> list[str]:
    """Say that a saddle point did not converge."""
    from sampler.analysis.verdict import saddle_point_converged

    failed = saddle_point_converged(theory) is False
    return [f"theory: {theory.attrs['explanation']}"] if failed else []


def doubts_of_draws(draws: "xr.DataTree") -> list[str]:
    """Say that diagnostics fail, and why."""
    from sampler.analysis.verdict import trust_verdict
    from sampler.jobs.stages import diagnose_stage

    diagnostics = diagnose_stage(draws)
    return [] if diagnostics.passed else [str(trust_verdict(diagnostics))]


# --- a task and a network together


def recipe_and_data(
    task: ChosenTask, network: ChosenNetwork, **sections: Settings
) -> tuple[Recipe, Task]:
    """The recipe of task, network and further sections, and the data with the heads it keeps."""
    if not isinstance(task, ChosenTask):
        raise InputError("task", task, "make it with markov_chain_task(…) or another …_task")
    if not isinstance(network, ChosenNetwork):
        raise InputError("network", network, "make it with make_network(widths=…)")
    recipe = validated({**task.settings, **network.settings, **plain_setting(sections)})
    return recipe, fit_labelled_task(task.data, recipe)


def problem_of(task: ChosenTask, recipe: Recipe, data: Task) -> "AnyProblem":
    """Return the problem of theory and samplers; examples are folded once for all networks."""
    from sampler.problem import build_problem, fold_training, is_folded

    if not is_folded(recipe, data):
        return build_problem(recipe, data)
    network = recipe.network
    key = repr((network.readout, network.heads, network.hypernetwork))
    if recipe.task.labels == "teacher":  # which is the network itself
        key = repr((network, recipe.posterior))
    if key not in task.folded:
        *_, task.folded[key] = fold_training(recipe, data)
    return build_problem(recipe, data, task.folded[key])
