"""The command `prune`: costs of the heads of a trained network, from a solved directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.predictors import predicted
from sampler.analysis.results import PRUNING_FILE
from sampler.analysis.text import unbroken, wrapped
from sampler.errors import ExitCode, InputError
from sampler.heads.cost_tables import ablation_text, described
from sampler.heads.costs import Show, ablation, costs, removed_in_order, silent
from sampler.heads.figures import DRAWN
from sampler.heads.importance import LabelledModel
from sampler.heads.path_sum import PathSum, ZeroedTheory, all_heads
from sampler.jobs.plan import Plan
from sampler.jobs.progress import Progress
from sampler.presentation.style import figure_style, save_figure
from sampler.presentation.terminal import log_errors, print_line
from sampler.problem import Problem, build_problem
from sampler.settings.refusals import refuse_without_theory
from sampler.storage.directory import FIGURE_FOLDER, THEORY_FILE, locked
from sampler.storage.files import write_json
from sampler.storage.result_files import read_table


@contextmanager
def shown_steps(progress: bool) -> Iterator[Show]:
    """A function that shows the steps of the work inside, if asked for."""
    if not progress:
        yield silent
        return
    with Progress() as display:
        yield display.show


def prune(plan: Plan, orders: int, seed: int) -> ExitCode:
    """Write `pruning.json` and its figures from the theory stored in the directory of a run."""
    directory, recipe = plan.directory, plan.recipe
    remedy = "prune the run of a linear network with fixed attention"
    refuse_without_theory(recipe.outside_theory, recipe.learns_attention, remedy)
    with locked(directory):
        theory = read_table(directory, THEORY_FILE)
        problem = build_problem(recipe, plan.task)
        refuse_unprunable(directory, problem, bool(theory.attrs["converged"]))
        print_line("heads are removed, one at a time and one after the other")
        found = pruned(problem, theory, orders, seed)
        write_json(directory / PRUNING_FILE, described(found).to_dict())
        with log_errors("the summary"):
            print_line(ablation_text(found, PRUNING_FILE))
        folder = directory / FIGURE_FOLDER
        with log_errors("figures"), figure_style():
            for name, draw in DRAWN.items():
                save_figure(draw(found), folder, name)
            print_line(wrapped(f"figures in {folder}: {unbroken(tuple(DRAWN))}"))
    return ExitCode.OK


def pruned(problem: Problem, theory: xr.Dataset, orders: int, seed: int) -> xr.Dataset:
    """Heads removed from the trained network of a problem and from its theory, on test examples.

    Taylor importance comes from validation examples, where there are any. With the costs of each
    head [head] are its score, the theory's loss without it, and accuracies in orders of
    removal.
    """

    def model_of(attended: Any, labels: Any) -> LabelledModel | None:
        if attended is None:
            return None
        paths = PathSum.of_trained(problem.trained, attended)
        return LabelledModel(paths, np.asarray(labels), "squared")

    test = model_of(problem.attended_test, problem.labels_test)
    validation = model_of(problem.attended_validation, problem.labels_validation)
    overlap = predicted(theory, "order_parameter")
    zeroed = ZeroedTheory.at(problem.learning, problem.attended_test, overlap)
    of_theory = LabelledModel(zeroed, test.labels, "squared")
    heads = all_heads(problem.architecture.heads)
    found = ablation(validation or test, test, heads)
    lost = costs(of_theory, [[head] for head in heads], ("zero",)).rename(set="head")
    found = found.assign(
        {str(name).replace("zero", "theory"): values for name, values in lost.items()}
    )
    scores = predicted(theory, "head_score")
    found = found.assign(head_score=("head", [scores[head] for head in heads]))
    models = {"accuracy_in_order": test, "theory_accuracy_in_order": of_theory}
    found = found.assign(removed_in_order(models, found, heads, orders, seed))
    known = {"widths": list(problem.architecture.widths), "seed": seed}
    return found.assign_attrs(known, temperature=float(problem.learning.temperature))


def refuse_unprunable(directory: Path, problem: Problem, converged: bool) -> None:
    """Raise InputError unless there is a trained network, and a theory, and heads to spare."""
    remedy = None
    if problem.trained is None:
        remedy = (
            "has no trained network to prune; name a run of a one_shot task "
            'with readout "mean" and without random heads'
        )
    elif not converged:
        remedy = "its saddle point did not converge; raise theory.max_steps and solve again"
    elif max(problem.architecture.heads) == 1:
        remedy = "has one head in each layer: none can be removed"
    if remedy:
        raise InputError("DIR", directory, remedy)
