"""Theory, samples and their comparison for a task and a network.

JAX is imported when something is computed, and float64 is on while it is computed only.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sampler.api.keywords import given, in_python
from sampler.api.networks import ChosenNetwork, joined, problem_of
from sampler.api.tasks import ChosenTask
from sampler.jobs.choice import choose
from sampler.numerics import float64, use_one_blas_thread
from sampler.recipes.validation import refuse_without_theory
from sampler.storage.earlier_chains import read_earlier_chains
from sampler.storage.own_theories import Source, axes_of_table, read_own
from sampler.storage.run_directory import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas
    import xarray as xr

    from sampler.presentation.summary import Comparison
    from sampler.problem import AnyProblem


@in_python
def solve(
    task: ChosenTask,
    network: ChosenNetwork,
    *,
    tolerance: float | None = None,
    max_steps: int = 100,
    starts: int = 2,
    seed: int = 0,
    next_order: bool = True,
    next_order_evidence: bool | Literal["auto"] = "auto",
    subnetworks: Sequence[Sequence[Sequence[int]]] = (),
) -> "xr.Dataset":
    """Solve the theory: order parameters, predictors, GP limit, accuracies, each with its axes.

    task, network        what is solved
    tolerance            where the saddle point counts as found; None: the solver's own
    max_steps            Newton steps at most
    starts               starting points, the first being the GP limit
    seed                 of the other starting points
    next_order           the correction of order 1/N as well, where it can be computed
    next_order_evidence  that of the evidence, too; "auto": where it takes little
    subnetworks          the heads kept, layer by layer, of each sub-network whose GP limit is
                         wanted

    The variables are those of `theory.nc`; a saddle point that did not converge has `converged` = 0
    among its attributes and predictions that are NaN. Raises InputError for a keyword that cannot
    be used, and where task and network do not fit.
    """
    recipe, data = joined(task, network, theory=keywords_of(solve, locals()))
    refuse_without_theory(recipe.network, "use `sample`")
    use_one_blas_thread()
    with float64():
        from sampler.jobs.stages import solve_problem

        table = solve_problem(problem_of(task, recipe, data), recipe)
    return table.assign_attrs(schema_version=SCHEMA_VERSION)


@in_python
def sample(
    task: ChosenTask,
    network: ChosenNetwork,
    *,
    draws: int | None = None,
    chains: int = 4,
    warmup: int | None = None,
    space: Literal["auto", "order_parameters", "upper_weights", "weights"] = "auto",
    algorithm: str = "auto",
    seed: int = 0,
    until: Literal["trusted", "draws"] | None = None,
    max_draws: int = 20_000,
    max_minutes: float = 60.0,
    thinning: int = 1,
    precision: Literal["float64", "float32"] = "float64",
    weight_draws: int = 0,
    keep_weights: bool = False,
    evidence: bool = False,
    leapfrog_steps: int = 64,
    max_tree_depth: int = 10,
    target_acceptance: float | None = None,
    gradient_precision: Literal["auto", "float64", "float32"] = "auto",
    start_from: str | Path | None = None,
    progress: bool = True,
) -> "xr.DataTree":
    """Draw from the exact posterior, in the layout that ArviZ reads.

    task, network       what is sampled
    draws               of each chain; None: until they can be trusted
    chains              how many; one alone is never trusted
    warmup              steps of each chain before its draws; None: as many as its space needs
    space               the coordinates: order parameters, whose number depends on no width, the
                        weights of the upper layers, or all weights; "auto": the fastest
    algorithm           "split_hmc", "nuts", "hmc", "importance", or one of another package;
                        "auto": the fastest
    seed                of all random numbers
    until               "trusted": until the diagnostics pass at two looks in a row; "draws": so
                        many; None: "draws" where these are given or there is one chain
    max_draws           of each chain at most, until they are trusted
    max_minutes         of computing at most, until they are trusted
    thinning            steps from one draw to the next
    precision           of the floating-point numbers
    weight_draws        exact draws of all weights, from so many draws of each chain
    keep_weights        keep the weights of every draw, in the two spaces of weights
    evidence            ln p(y) as well, in the space of order parameters
    leapfrog_steps      of a trajectory, for "hmc"
    max_tree_depth      of a trajectory of "nuts": at most 2^depth steps
    target_acceptance   the mean acceptance that step sizes are adapted to; None: the algorithm's
    gradient_precision  of algorithms that accept or refuse whole trajectories; "auto": single
                        where that costs no acceptance
    start_from          directory of a finished run where chains begin, relative to the current one
    progress            show on stderr, or in one line of a notebook, how far it is

    The groups are those of `draws.nc`. Nothing is stored before the end; `run` keeps what it has.
    Raises InputError for a keyword that cannot be used, and where task and network do not fit.
    """
    recipe, data = joined(task, network, sampler=keywords_of(sample, locals()))
    chosen = choose(recipe, data).applied_to(recipe).sampler
    start = read_earlier_chains(chosen)
    use_one_blas_thread()
    with float64():
        from sampler.jobs.stages import draw_posterior

        found = draw_posterior(problem_of(task, recipe, data), chosen, show=progress, start=start)
    found.attrs["schema_version"] = SCHEMA_VERSION
    return found


def keywords_of(function, values: dict) -> dict:
    """What was given of the settings among the arguments of a call."""
    others = ("task", "network", "progress")
    return {key: value for key, value in given(function, values).items() if key not in others}


@in_python
def compare(
    theory: "xr.Dataset", draws: "xr.DataTree", own: Mapping[str, Source] | None = None
) -> "Comparison":
    """Hold the theory against the draws: every sampled number with its error, and the verdicts.

    theory  what `solve` returns
    draws   what `sample` returns
    own     theories of your own, name → predictions: a dict of arrays, or an .npz or NetCDF file of
            them, under the names and of the shapes that they have in `theory`: any of
            `order_parameter`, `predictor_mean`, `predictor_variance` …; each is one more column,
            with a verdict of its own

    Raises InputError if theory and draws belong to different paths, test sets or temperatures, and
    for predictions of other names or shapes.
    """
    use_one_blas_thread()
    from sampler.analysis.results import RunResults
    from sampler.jobs.stages import compare_tables
    from sampler.presentation.summary import Comparison, refuse_unrelated

    refuse_unrelated(theory, draws)
    axes = axes_of_table(theory)
    arrays = {name: read_own(name, source, axes) for name, source in (own or {}).items()}
    found = compare_tables(theory, draws, arrays)
    return Comparison(RunResults.held(None, theory=theory, draws=draws, comparison=found))


@in_python
def make_problem(task: ChosenTask, network: ChosenNetwork) -> "AnyProblem":
    """What a theory of your own starts from: kernels, labels, widths, temperature, test set.

    task, network  what the theory is about

    `learning` is the training set with the network, `attended_test` [test_example, path, channel]
    the test set; `predictions_at(U_1)` says what follows from an order parameter. Raises InputError
    where task and network do not fit.
    """
    recipe, data = joined(task, network)
    use_one_blas_thread()
    with float64():
        return problem_of(task, recipe, data)


@in_python
def head_importance(theory: "xr.Dataset", draws: "xr.DataTree | None" = None) -> "pandas.DataFrame":
    """Scores of the heads: the share of |U₁| on paths through each, relative to the largest.

    theory  what `solve` returns
    draws   what `sample` returns: the scores of the exact posterior as well, with their Monte Carlo
            standard error `mcse`

    A row for each layer, from 1, and head, from 0. To next order where the theory has it, and
    those of the trained network where there is one. Raises InputError if the two do not belong
    together.
    """
    use_one_blas_thread()
    from sampler.presentation.summary import head_table, refuse_unrelated

    if draws is not None:
        refuse_unrelated(theory, draws)
    return head_table(theory, draws)
