"""The stages of a run: theory, draws, comparison, page; each is computed once and then stored."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import numpy as np
import xarray as xr

from sampler.analysis.comparison import ComparisonTree, compare
from sampler.analysis.draws import Draws
from sampler.analysis.results import RunResults
from sampler.analysis.teacher_table import teacher_table
from sampler.analysis.text import wrapped
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.analysis.theory_table import nonlinear_table, theory_table
from sampler.errors import ExitCode
from sampler.jobs.done import (
    LIMITS,
    comparison_stamp,
    draws_stamp,
    is_done,
    theory_stamp,
    worth,
)
from sampler.jobs.draw import draw_posterior
from sampler.jobs.folding import folded_training_set
from sampler.jobs.interruption import Interruption
from sampler.jobs.keeper import DrawKeeper
from sampler.jobs.plan import Plan
from sampler.jobs.progress import Progress, busy
from sampler.mcmc.algorithm import algorithm_named, lost_points_text
from sampler.mcmc.diagnostics import Diagnostics, diagnose
from sampler.presentation.summary import (
    comparison_text,
    network_text,
    solved_text,
    theory_text,
    verdicts_text,
)
from sampler.presentation.terminal import log_errors, print_line
from sampler.problem import AnyProblem, Problem, build_problem
from sampler.runtime import device_count
from sampler.settings.recipe import Recipe
from sampler.storage.checkpoints import Checkpoints
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    DRAWS_FILE,
    LOG,
    TEACHER_FILE,
    THEORY_FILE,
)
from sampler.storage.fingerprint import FINGERPRINT
from sampler.storage.result_files import read_draws, read_table, write_comparison, write_result
from sampler.storage.run_directory import RunDirectory
from sampler.token_problem import TokenProblem
from theory import Architecture, solve_next_order, solve_saddle_point

# Of ln p(x, y) by rounding: steps are refused by as much, however short they are.
LARGEST_ROUGHNESS = 0.05
# Rows of U_1 up to which the evidence to next order takes less than a second.
MOST_ROWS_CHEAP = 8


def run_stages(plan: Plan, directory: RunDirectory, interruption: Interruption) -> ExitCode:
    """Finish a run in its directory, and return its verdicts.

    Raises RequeueError when the interruption asks to stop, with everything saved.
    """
    problem = cache(lambda: make_problem(plan, interruption))
    store_teacher(plan, problem)
    results = RunResults.held(plan.directory, recipe=plan.asked, manifest=directory.manifest)
    if plan.command == "run":
        print_line(opening_text(plan))
    if plan.is_solved:
        results = results.having(theory=theory_of(plan, directory, problem))
        print_line(solved_text(results) if plan.command == "solve" else theory_text(results.theory))
    if plan.is_sampled:
        interruption.leave_if_asked("everything before the sampling")
        results = results.having(draws=draws_of(plan, directory, problem, interruption))
        if not is_done(plan, "compare"):
            results = compare_stage(results)
        print_line(wrapped(str(results.reliability)))
    code = worth(plan)
    if plan.command == "run" and plan.stages:
        interruption.leave_if_asked("everything before the report")
        show(plan, results.having(manifest=directory.manifest), code)
    directory.end(code)
    return code


def theory_of(plan: Plan, directory: RunDirectory, problem: Callable[[], AnyProblem]) -> xr.Dataset:
    """The theory of a run: stored, or solved now."""
    if is_done(plan, "solve"):
        return read_table(plan.directory, THEORY_FILE)
    started = time.perf_counter()
    made = problem()  # which may show how far a pass over the examples is
    with Progress() as progress:
        table = solve_problem(made, plan.recipe, progress.show)
    table.attrs[FINGERPRINT] = theory_stamp(plan)
    write_result(plan.directory, THEORY_FILE, table)
    devices = directory.manifest.devices or device_count()  # chains will begin on them
    directory.record_stage("solve", time.perf_counter() - started, devices=devices)
    return table


def draws_of(
    plan: Plan,
    directory: RunDirectory,
    problem: Callable[[], AnyProblem],
    interruption: Interruption,
) -> xr.DataTree:
    """The draws of a run: stored, or drawn now from its checkpoint."""
    checkpoints = Checkpoints(plan.directory / CHECKPOINT_FOLDER, plan.fingerprint)
    settings = plan.recipe.sampler
    if is_done(plan, "sample"):
        draws = read_draws(plan.directory)
    else:
        started = time.perf_counter()
        print_line(f"space {plan.method.space}, algorithm {plan.method.algorithm}")
        record_devices(directory)
        draws = draw_posterior(problem(), settings, DrawKeeper(checkpoints, interruption))
        made = draws["posterior"].sizes[settings.algorithm_class.counts.axis]
        draws.attrs[FINGERPRINT] = draws_stamp(plan, made)
        write_result(plan.directory, DRAWS_FILE, draws)
        directory.record_stage("sample", time.perf_counter() - started)
    checkpoints.settle(draws)
    return draws


def record_devices(directory: RunDirectory) -> None:
    """Record on how many devices chains begin; warn where they are resumed on fewer."""
    begun, count = directory.manifest.devices, device_count()
    if begun is None:
        directory.record(devices=count)
    elif count < begun:
        LOG.warning(
            "warning: begun on %d devices and resumed on %d: the same law, but not the same bits "
            "as an undisturbed run",
            begun,
            count,
        )


def make_problem(plan: Plan, interruption: Interruption) -> AnyProblem:
    """The problem of theory and samplers, made when the first of them has something to do."""
    shared = plan.directory.parent if plan.label else plan.directory
    rows = folded_training_set(plan.recipe, plan.task, plan.directory, shared, interruption)
    return build_problem(plan.recipe, plan.task, rows, plan.sizes.architecture)


def store_teacher(plan: Plan, problem: Callable[[], AnyProblem]) -> None:
    """Write the teacher that labelled the data, where one did."""
    teacher = plan.task.teacher
    if teacher is not None and not (plan.directory / TEACHER_FILE).is_file():
        write_result(plan.directory, TEACHER_FILE, teacher_table(teacher, problem()))


# --- output of a run, and its page


def opening_text(plan: Plan) -> str:
    """The network and its data in a line, or that there is nothing to be done with them."""
    if not plan.stages:
        return "this network has no theory, and is not sampled at this width: nothing to do"
    temperature = plan.asked.posterior.given_temperature
    examples, infinite = plan.task.train.examples, plan.asked.network.is_infinite
    return network_text(plan.sizes.architecture, examples, temperature, infinite)


def show(plan: Plan, results: RunResults, code: ExitCode) -> None:
    """Print the comparison and the verdicts of a run, and write its report."""
    from sampler.jobs.pages import write_page  # matplotlib takes a second, which no theory needs

    if plan.is_sampled:
        with log_errors("the summary"):
            print_line(comparison_text(results))
    # A sweep draws its own figures; those of a point are a quarter of its time and seldom seen.
    drawn = plan.figures and not plan.label
    with busy("drawing figures") if drawn else nullcontext(), log_errors("the report"):
        write_page(plan.directory, code, results, drawn)
    with log_errors("the verdict"):
        print_line(verdicts_text(results))


# --- theory and comparison as values


def solve_problem(
    problem: Problem | TokenProblem,
    recipe: Recipe,
    show: Callable[[str, int, int, str], None] = lambda *_: None,
) -> xr.Dataset:
    """The content of `theory.nc`.

    show  how far it is: stage, parts that are done and in all, and the part in work
    """
    settings, shown = recipe.theory, "theory"
    if isinstance(problem, TokenProblem):
        show(shown, 0, 1, "infinite width")
        return nonlinear_table(problem)
    done, parts = settings.starts, settings.starts + settings.next_order + 1
    show(shown, 0, parts, "saddle point")
    saddle_point = solve_saddle_point(
        problem.learning,
        tolerance=settings.tolerance,
        max_steps=settings.max_steps,
        starts=settings.starts,
        seed=settings.seed,
        on_start=lambda ended: show(shown, ended, parts, "saddle point"),
    )
    next_order = None
    if settings.next_order:
        show(shown, done, parts, "next order")
        evidence = wants_evidence(recipe, problem.architecture)
        next_order = solve_next_order(problem.learning, saddle_point, evidence=evidence)
    show(shown, parts - 1, parts, "predictions")
    table = theory_table(problem, saddle_point, settings.subnetworks, next_order)
    show(shown, parts, parts, "")
    return table


def wants_evidence(recipe: Recipe, architecture: Architecture) -> bool:
    """Whether the evidence to next order is computed: where it is cheap, or one is sampled."""
    cheap = architecture.order_parameter_sizes[0] <= MOST_ROWS_CHEAP
    return cheap or recipe.sampler.evidence


def diagnose_stage(tree: xr.DataTree) -> Diagnostics:
    """Judge stored draws. Raises InputError for draws of an algorithm that is not registered."""
    attributes = tree["sample_stats"].attrs
    algorithm = algorithm_named(attributes["algorithm"], attributes)
    more = algorithm.counts.more
    if attributes.get("ended_by") in LIMITS:
        more = attributes["ended_by"]
    draws = Draws(tree)
    arguments = draws.statistics, algorithm, lambda: draws.fixed
    diagnostics = diagnose(draws.judged, *arguments, more_draws=more)
    if reasons := reasons_of_density(tree):
        diagnostics = replace(diagnostics, verdict="fail", reasons=diagnostics.reasons + reasons)
    if attributes.get("mode_converged", 1):
        return diagnostics
    remark = f"{attributes['mode_search']}; chains are whitened at its last point"
    return replace(diagnostics, remarks=(*diagnostics.remarks, remark))


def reasons_of_density(tree: xr.DataTree) -> tuple[str, ...]:
    """Reasons not to trust draws from checks of the density."""
    attributes, reasons = tree["sample_stats"].attrs, []
    if lost := int(attributes.get("log_evidence_lost", 0)):
        reasons.append(lost_points_text(lost, "draws of the proposal of its evidence"))
    if (roughness := attributes.get("roughness", 0.0)) > LARGEST_ROUGHNESS:
        text = f"rounding changes ln p(x, y) by {roughness:.2g} between neighbouring points"
        if "condition_number" in attributes:
            temperature = float(tree["constant_data"]["temperature"])
            condition = attributes["condition_number"]
            text += (
                f": K + temperature has the condition number {condition:.1e} at temperature "
                f"{temperature:.3g}"
            )
        reasons.append(text)
    return tuple(reasons)


def compare_stage(results: RunResults) -> RunResults:
    """Compare the draws of a run with its theory, store the comparison, and hand both on."""
    comparison = compare_tables(results.theory, results.draws)
    stamped = comparison_stamp(results.draws.attrs, results.theory is not None)
    comparison.tree.attrs[FINGERPRINT] = stamped
    write_comparison(results.directory, comparison.tree, comparison.to_json())
    return results.having(comparison=comparison)


def compare_tables(
    theory: xr.Dataset | None,
    tree: xr.DataTree,
    own: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> ComparisonTree:
    """Compare theories and draws; without a theory, judge the draws alone.

    own: name of a theory of the user's own → its predictions.
    """
    diagnostics = diagnose_stage(tree)
    given = TheoryAndDraws(theory, tree, own or {})
    return compare(given, diagnostics, cost(tree, diagnostics))


def cost(tree: xr.DataTree, diagnostics: Diagnostics) -> dict:
    """Seconds, gradients, and effective draws per second of the worst element of U_1.

    Seconds include compilation and warm-up. Without U_1 it is the worst test example that counts.
    """
    attributes, judged = tree["sample_stats"].attrs, diagnostics.quantities
    worst = judged.get("order_parameter", judged.get("predictor"))
    ess = float("nan") if worst is None else min(worst.ess_bulk, worst.ess_tail)
    times = {
        name: float(attributes[name]) for name in ("seconds", "seconds_warmup", "seconds_draws")
    }
    seconds = times["seconds"]  # zero by a clock that stood still
    return {
        **times,
        "gradients": int(attributes["gradients"]),
        "effective_draws": ess,
        "effective_draws_per_second": ess / seconds if seconds else float("nan"),
    }
