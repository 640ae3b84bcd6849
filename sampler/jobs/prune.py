"""The command `prune`: which heads of a trained network can go, from a solved directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.predictors import predicted
from sampler.analysis.results import PRUNING_FILE
from sampler.analysis.text import unbroken, wrapped
from sampler.data.task import Task
from sampler.errors import ExitCode, InputError
from sampler.heads.figures import DRAWN
from sampler.heads.path_sum import PathSum, TheoryOfHeads, all_heads
from sampler.heads.removal import LongWork, RemovedHeads, remove_heads
from sampler.heads.removal_tables import removal_text
from sampler.jobs.progress import Progress
from sampler.presentation.style import figure_style, save_figure
from sampler.presentation.terminal import log_errors, print_line
from sampler.problem import Problem, build_problem
from sampler.settings.recipe import Recipe
from sampler.storage.directory import FIGURE_FOLDER, THEORY_FILE
from sampler.storage.files import to_json, write_json
from sampler.storage.result_files import read_table


@contextmanager
def shown_steps(progress: bool) -> Iterator[LongWork]:
    """Steps of the work inside, shown if asked for."""
    if not progress:
        yield LongWork()
        return
    with Progress() as display:
        yield LongWork(display.show)


def prune(directory: Path, recipe: Recipe, task: Task, orders: int, seed: int) -> ExitCode:
    """Write `pruning.json` and its figures from the theory stored in a directory."""
    theory = read_table(directory, THEORY_FILE)
    problem = build_problem(recipe, task)
    refuse_unprunable(directory, problem, bool(theory.attrs["converged"]))
    print_line("heads are removed, one at a time and one after the other")
    removed = pruned_heads(problem, theory, orders, seed)
    write_json(directory / PRUNING_FILE, to_json(removed))
    with log_errors("the summary"):
        print_line(removal_text(removed, PRUNING_FILE))
    folder = directory / FIGURE_FOLDER
    with log_errors("figures"), figure_style():
        for name, draw in DRAWN.items():
            save_figure(draw(removed), folder, name)
        print_line(wrapped(f"figures in {folder}: {unbroken(tuple(DRAWN))}"))
    return ExitCode.OK


def pruned_heads(problem: Problem, theory: xr.Dataset, orders: int, seed: int) -> RemovedHeads:
    """Heads removed from the trained network of a problem and from its theory, on test examples.

    Numbers of heads come from validation examples, where there are any.
    """
    attended = {"test": problem.attended_test, "numbers": problem.attended_validation}
    labels = {"test": problem.labels_test, "numbers": problem.labels_validation}
    if attended["numbers"] is None:
        attended["numbers"], labels["numbers"] = attended["test"], labels["test"]
    overlap = predicted(theory, "order_parameter")
    models = {name: PathSum.of_trained(problem.trained, of) for name, of in attended.items()}
    if problem.attended_validation is None:
        models["numbers"] = models["test"]
    heads = tuple(all_heads(problem.architecture.heads))
    with shown_steps(progress=False) as steps:
        return remove_heads(
            models,
            {name: np.asarray(of) for name, of in labels.items()},
            heads,
            "squared",
            TheoryOfHeads(problem.learning, attended["test"], overlap),
            replacements=("zero", "mean"),
            random=orders,
            seed=seed,
            steps=steps,
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
