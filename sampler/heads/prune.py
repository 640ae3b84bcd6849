"""The command `prune`: which heads of a trained network can go, from a solved directory."""

from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.predictors import predicted
from sampler.analysis.results import PRUNING_FILE
from sampler.analysis.text import unbroken, wrapped
from sampler.errors import ExitCode, InputError
from sampler.heads.gates import GatedNetwork, Numbering, all_heads
from sampler.heads.measures import (
    TheoryWithoutHeads,
    predictions_of_model,
    predictions_of_theory,
    predictions_solved_again,
    without_error,
)
from sampler.heads.removal import (
    MODEL,
    ORDERED_BY,
    SOLVED_AGAIN,
    ZEROED,
    MeasuredHeads,
    RemovedHeads,
    removed_in_orders,
)
from sampler.heads.shown import DRAWN, removal_text
from sampler.presentation.style import figure_style, save_figure
from sampler.presentation.terminal import log_errors, print_line
from sampler.problem import Problem, build_problem
from sampler.settings.recipe import Recipe
from sampler.storage.directory import FIGURE_FOLDER, THEORY_FILE
from sampler.storage.files import to_json, write_json
from sampler.storage.results import read_table
from sampler.tasks.splits import Split
from sampler.tasks.task import Task


def prune(
    directory: Path, recipe: Recipe, task: Task, orders: int, seed: int, solve_again: bool
) -> ExitCode:
    """Write `pruning.json` and its figures from the theory stored in a directory."""
    theory = read_table(directory, THEORY_FILE)
    problem = build_problem(recipe, task)
    refuse_unprunable(directory, problem, bool(theory.attrs["converged"]))
    gated = None
    if isinstance(task.test, Split):  # attention of all examples is held
        gated = GatedNetwork.of_blocks(problem.trained, [task.test])
    found = pruned_heads(problem, gated, theory, orders, seed, solve_again)
    write_json(directory / PRUNING_FILE, to_json(found))
    with log_errors("the summary"):
        print_line(removal_text(found))
    folder = directory / FIGURE_FOLDER
    with log_errors("figures"), figure_style():
        for name, draw in DRAWN.items():
            save_figure(draw(found), folder, name)
        print_line(wrapped(f"figures in {folder}: {unbroken(tuple(DRAWN))}"))
    return ExitCode.OK


def pruned_heads(
    problem: Problem,
    gated: GatedNetwork | None,
    theory: xr.Dataset,
    orders: int,
    seed: int,
    solve_again: bool,
) -> RemovedHeads:
    """Heads removed from the trained network of a problem and from its theory, on test examples.

    gated    its trained network on the test examples; None: nothing is predicted from gradients
    theory   the table of the solved theory
    orders   how many random ones
    """
    attended, labels = problem.attended_test, np.asarray(problem.labels_test)
    solved = TheoryWithoutHeads(problem.learning, attended, predicted(theory, "order_parameter"))
    who = {
        MODEL: lambda removed: problem.trained.without(removed).predictor(attended),
        ZEROED: solved.zeroed,
    }
    counts = problem.architecture.heads
    heads = all_heads(counts)
    print_line("one head at a time")
    predictions = predictions_of_theory(solved, heads, labels)
    if solve_again:
        predictions |= predictions_solved_again(solved, heads, labels)
    predictions["magnitude"] = without_error(problem.trained.magnitudes())
    if gated is not None:
        predictions |= predictions_of_model(gated, labels, "squared")
    ways = {"zero": who[MODEL], "theory": who[ZEROED]}
    by = {key: predictions[key].value for key in ORDERED_BY if key in predictions}
    if solve_again:
        who[SOLVED_AGAIN] = solved.solved_again
    print_line("one after the other")
    return MeasuredHeads.of(Numbering.of(counts), ways, labels, "squared").judging(
        predictions,
        widths=problem.architecture.widths,
        temperature=problem.learning.temperature,
        seed=seed,
        orders=removed_in_orders(who, by, orders, seed, Numbering.of(counts), counts, labels),
    )


def refuse_unprunable(directory: Path, problem: Problem, converged: bool) -> None:
    """Raise InputError unless there is a trained network, and a theory, and heads to spare."""
    remedy = None
    if problem.trained is None:
        remedy = (
            "has no trained network to prune; name a run of a one_shot or trained_series task "
            'with readout "mean" and without random heads'
        )
    elif not converged:
        remedy = "its saddle point did not converge; raise theory.max_steps and solve again"
    elif max(problem.architecture.heads) == 1:
        remedy = "has one head in each layer: none can be removed"
    if remedy:
        raise InputError("DIR", directory, remedy)
