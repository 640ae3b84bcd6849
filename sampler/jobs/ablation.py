"""Heads of a trained model removed one by one: the work in its order.

The theory is solved first. What is cheap is predicted before heads are removed; what takes long
comes behind, so that Ctrl-C keeps what counts most.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import xarray as xr

from sampler.analysis.estimates import Estimate
from sampler.analysis.predictors import number, predicted
from sampler.analysis.text import Number
from sampler.errors import InputError
from sampler.heads.gates import GatedModel, Head, Numbering, closed_gates, places_of
from sampler.heads.measures import (
    TheoryWithoutHeads,
    predictions_of_model,
    predictions_of_theory,
    predictions_solved_again,
)
from sampler.heads.notes import notes_of_measures, notes_of_orders
from sampler.heads.removal import (
    MeasuredHeads,
    RemovedHeads,
)
from sampler.heads.steps import WorkSteps
from sampler.jobs.progress import ProgressDisplay
from sampler.problem import Problem

# Temperatures that are tried where none is given, times the mean square label.
TEMPERATURES = (0.01, 0.03, 0.1, 0.3, 1.0)
ON_VALIDATION = "validation_squared_error"


@dataclass(frozen=True)
class Asked:
    """Settings of the work with every head.

    solve_again  solve the theory once more without each
    """

    loss: Literal["squared", "likelihood"]
    solve_again: bool = True


class AblationProgress(ProgressDisplay):
    """Shows the heads that were removed, and the time left of each phase."""

    def __init__(self) -> None:
        super().__init__()
        self._began: dict[str, float] = {}

    def __call__(self, phase: str, done: int, total: int) -> None:
        began = self._began.setdefault(phase, time.monotonic())
        left = (time.monotonic() - began) / done * (total - done) if done else None
        self.show(phase, done, total, "" if left is None else f"{left:.0f} s left")


@contextmanager
def shown_steps(progress: bool) -> Iterator[WorkSteps]:
    """WorkSteps of the work inside, shown if asked for."""
    if not progress:
        yield WorkSteps()
        return
    with AblationProgress() as display:
        yield WorkSteps(display)


# --- the work


def chosen_temperature(
    solved_at: Callable[[float], xr.Dataset], mean_square_label: float, progress: bool = False
) -> tuple[float, str]:
    """Choose the temperature whose theory has the least squared loss on validation examples.

    solved_at  the theory at a temperature

    Returns it with a sentence about it. Densities and evidences would choose by how well errors are
    known; what is asked of heads is what the predictor loses without them, which is this loss.
    Raises InputError where no saddle point converges.
    """
    tried = [share * mean_square_label for share in TEMPERATURES]
    losses = np.full(len(tried), np.nan)
    with shown_steps(progress) as steps:
        for place, temperature in steps.over("temperatures", tried):
            table = solved_at(temperature)
            if table.attrs["converged"]:
                losses[place] = number(table, ON_VALIDATION)
    if not np.isfinite(losses).any():
        remedy = "the saddle point converged at none of them; choose a larger width"
        raise InputError("temperature", tried, remedy)
    place = int(np.nanargmin(losses))
    end = {0: ", the lowest that was tried", len(tried) - 1: ", the highest that was tried"}
    return tried[place], (
        f"temperature {Number(tried[place], digits=3)}, of {len(tried)} the one with the theory's "
        f"least squared loss on the validation examples{end.get(place, '')}"
    )


def ablated(
    problem: Problem,
    gated: Mapping[str, GatedModel],
    heads: Numbering,
    asked: Asked,
    theory: xr.Dataset,
    progress: bool = False,
    notes: tuple[str, ...] = (),
) -> RemovedHeads:
    """All predictions on validation examples, and heads removed on test examples.

    heads    that are removed
    notes    that come before all others

    Of work that was ended by Ctrl-C while heads were removed, or later, the rest is missing.
    """
    counts, labels, test = gated["test"].heads, problem.labels_validation, problem.labels_test
    overlap = predicted(theory, "order_parameter")
    solved = TheoryWithoutHeads(problem.learning, problem.attended_validation, overlap)
    predictions = predictions_of_theory(solved, heads.theory, labels)
    of_model = predictions_of_model(gated["validation"], labels, asked.loss)
    places = places_of(heads.gates, counts)
    predictions |= {
        key: Estimate(one.value[places], one.mcse[places]) for key, one in of_model.items()
    }

    def sent(removed: Sequence[Head], replacement: Literal["zero", "mean"]) -> np.ndarray:
        return gated["test"].outputs(closed_gates(counts, removed), replacement)

    ways = {kind: partial(sent, replacement=kind) for kind in ("mean", "zero")}
    with shown_steps(progress) as steps:
        measured = MeasuredHeads.of(heads, ways, test, asked.loss, steps)
        if asked.solve_again and not steps.ended:
            predictions |= predictions_solved_again(solved, heads.theory, labels, steps)
    judged = partial(
        measured.judging,
        widths=problem.architecture.widths,
        temperature=problem.learning.temperature,
        examples_validation=len(labels),
    )
    try:
        found = judged(predictions)
    except KeyboardInterrupt:  # nothing is missing: only a second one ends without a result
        found = judged(predictions)
    ended = ["ended by Ctrl-C: numbers and columns that were not reached are missing"]
    said = (*notes, *(ended if steps.ended else ()), *notes_of_measures(measured, predictions))
    return replace(found, notes=(*said, *notes_of_orders(found)))
