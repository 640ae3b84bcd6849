"""The command `prune`: which heads of a trained network can go, from a solved directory."""

from functools import partial
from pathlib import Path

import numpy as np

from sampler.analysis.as_json import to_json
from sampler.analysis.labels import NEXT_ORDER
from sampler.analysis.pruning_table import PruningSettings, pruning_table
from sampler.analysis.results import PRUNING_FILE, RunResults
from sampler.errors import ExitCode, InputError
from sampler.jobs.run import written_text
from sampler.presentation.figures.draw import draw_figures
from sampler.presentation.summary import pruning_text
from sampler.problem import Problem, make_problem
from sampler.recipes.recipe import Recipe
from sampler.storage.results import read_theory
from sampler.storage.run_directory import write_json
from sampler.tasks.task import Task
from sampler.transformer.pruning import PrunedNetworks


def prune(
    directory: Path, recipe: Recipe, task: Task, orders: int, seed: int, solve_again: bool
) -> ExitCode:
    """Write `pruning.json` and its figures from the theory stored in a directory."""
    theory = read_theory(directory)
    problem = make_problem(recipe, task)
    refuse_unprunable(directory, problem, bool(theory.attrs["converged"]))
    pruned = pruned_networks(problem, theory["order_parameter"].values)
    scores = {"theory": per_head(theory["head_score"].values)}
    if f"head_score{NEXT_ORDER}" in theory:
        scores["next_order"] = per_head(theory[f"head_score{NEXT_ORDER}"].values)
    compared = RunResults(directory).compared("head_score")
    if compared is not None:
        scores["sampled"] = per_head(compared.sampled.value)
    settings = PruningSettings(
        widths=problem.architecture.widths,
        temperature=problem.learning.temperature,
        test=getattr(recipe.task, "test", "series"),
        test_examples=int(task.test.examples),
        seed=seed,
    )
    say = partial(print, flush=True)
    table = pruning_table(pruned, scores, orders, settings, say, solve_again)
    write_json(directory / PRUNING_FILE, to_json(table))
    print(pruning_text(table))
    print(written_text(draw_figures(directory, table)))
    return ExitCode.OK


def pruned_networks(problem: Problem, overlap: np.ndarray) -> PrunedNetworks:
    """Pruning of a problem whose saddle point has this U_1."""
    return PrunedNetworks(
        learning=problem.learning,
        network=problem.trained,
        attended_test=problem.attended_test,
        labels_test=np.asarray(problem.labels_test),
        overlap=overlap,
    )


def per_head(scores: np.ndarray) -> np.ndarray:
    """Scores [layer, head] as one list of all heads; a shorter layer ends in NaN."""
    return scores[np.isfinite(scores)]


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
