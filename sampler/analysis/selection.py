"""Which point of a sweep its validation split or its evidence chooses, for every predictor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.analysis.predictors import (
    INFINITE,
    LEADING,
    NEXT,
    SAMPLED,
    TUNED,
    number,
    predictor_name,
    predictors_of,
)
from sampler.analysis.results import RunResults
from sampler.analysis.scores import ACCURACY, DENSITY, SCORES, error_of_mean
from sampler.analysis.sweep_dataset import SweptPoint, swept_points
from sampler.analysis.sweep_results import SELECTION_FILE
from sampler.analysis.validation import GROUP, predicted_by_example, sampled_by_example
from sampler.errors import InputError, Setting
from sampler.settings.recipe import Recipe
from sampler.storage.directory import LOG
from sampler.storage.files import to_json, write_json

# What a point is chosen by, each for itself; ties go to the better log predictive density.
CRITERIA = (DENSITY, ACCURACY)
# A score of the training data alone: it has no examples to be uncertain by.
EVIDENCE = "log_evidence"
# Evidence says which network explains one set of labels best, not which labels are easier.
OTHER_DATA = "other training data than at the first point"
PREDICTORS = (LEADING, NEXT, INFINITE, TUNED, SAMPLED)
TEMPERATURE = "posterior.temperature"
NO_VALIDATION = (
    "nothing selected on a validation split, which no point has; set "
    "task.examples_validation, or add labels_validation to the arrays with inputs_validation and "
    "attention_validation_1, …, or with attended_validation"
)


@dataclass(frozen=True)
class Score:
    """A score of a point, by which one is chosen.

    mcse        its Monte Carlo standard error; None where nothing was sampled
    by_example  what it is the mean of, on the validation split; None of an evidence
    """

    value: float
    mcse: float | None = None
    by_example: np.ndarray | None = None

    @property
    def validation_error(self) -> float:
        """Standard error by the finite validation split."""
        return 0.0 if self.by_example is None else error_of_mean(self.by_example)

    def to_json(self) -> dict[str, float]:
        error = None if self.by_example is None else self.validation_error
        numbers = {"value": self.value, "mcse": self.mcse, "validation_error": error}
        return {name: number for name, number in numbers.items() if number is not None}


Scores = dict[str, Score]


@dataclass(frozen=True)
class Candidate:
    """A point of a sweep with its scores by name, and the swept keys with their values here.

    data  equal for two points whose examples are the same
    """

    point: str
    settings: Mapping[str, Any]
    data: Any
    scores: Scores


def choose(candidates: Sequence[Candidate], criterion: str) -> dict[str, Any] | None:
    """The best candidate by a criterion and the second best, as `selection.json` has them.

    The earlier one where nothing tells them apart. None if no candidate has this score; one that is
    no number is none.
    """

    def has(candidate: Candidate, name: str) -> bool:
        return name in candidate.scores and math.isfinite(candidate.scores[name].value)

    scored = [candidate for candidate in candidates if has(candidate, criterion)]
    if not scored:
        return None
    further = DENSITY if all(has(candidate, DENSITY) for candidate in scored) else criterion
    best, *others = sorted(
        scored, key=lambda c: (c.scores[criterion].value, c.scores[further].value), reverse=True
    )
    choice = {
        "point": best.point,
        "settings": dict(best.settings),
        **best.scores[criterion].to_json(),
        "runner_up": None,
    }
    if others:
        value = others[0].scores[criterion].value
        difference = best.scores[criterion].value - value
        error = error_of_difference(best, others[0], criterion)
        choice["runner_up"] = {
            "point": others[0].point,
            "settings": dict(others[0].settings),
            "value": value,
            "difference": difference,
            "error_of_difference": error,
            "within_errors": not difference > error,
        }
    return choice


def error_of_difference(chosen: Candidate, other: Candidate, criterion: str) -> float:
    """Standard error of the difference of two scores: finite validation split and Monte Carlo.

    Example by example where both saw the same examples: what these share does not count.
    """
    scores = [candidate.scores[criterion] for candidate in (chosen, other)]
    first, second = (score.by_example for score in scores)
    if first is not None and chosen.data == other.data and first.shape == second.shape:
        of_validation = error_of_mean(first - second)
    else:
        of_validation = np.hypot(*(score.validation_error for score in scores))
    return float(np.hypot(of_validation, np.hypot(*(score.mcse or 0.0 for score in scores))))


# --- scores of stored results: of a point, or the reason why it is not to be chosen


def validation_scores(run: RunResults, predictor: str) -> Scores | str:
    """Scores on the validation split of one of PREDICTORS."""
    if predictor == SAMPLED:
        return scores_from_draws(run)
    reason = reason_against(run, predictor)
    if reason is not None:
        return reason
    if not any(f"validation_{score}" in run.theory for score in SCORES):
        return "no validation split"
    by_example = predicted_by_example(run.theory, predictor)
    scores = {name: Score(values.mean(), None, values) for name, values in by_example.items()}
    if not scores or not all(math.isfinite(score.value) for score in scores.values()):
        # To next order a variance may be so far below zero that a label has no density.
        undefined = "predictive variance not positive at next order"
        return undefined if predictor == NEXT else "saddle point not converged"
    return scores


def reason_against(run: RunResults, predictor: str) -> str | None:
    """Return the reason why a theory is not to be used; None where it may be."""
    if run.theory is None:
        return "not solved"
    if predictor == NEXT:
        if run.theory.attrs.get("next_order_status") == "fine":
            return None
        return str(run.theory.attrs.get("next_order_explanation", "next order not known"))
    return None if predictor in predictors_of(run.theory) else "not solved"


def reason_against_draws(run: RunResults) -> str | None:
    """Return the reason why the samples are not to be used; None where they may be."""
    if run.comparison is None:
        return "not sampled"
    if not run.trusted:
        return "diagnostics failed"
    return None


def scores_from_draws(run: RunResults) -> Scores | str:
    reason = reason_against_draws(run)
    if reason is not None:
        return reason
    if run.drawn("predictor_mean", GROUP) is None:
        return "no validation split"
    names = ("predictor_mean", "predictor_variance", "labels", "temperature")
    table = xr.Dataset({name: run.drawn(name, GROUP).variable for name in names})
    scores = {}
    for name, values in sampled_by_example(table, run.repetition_weights).items():
        error = run.comparison.number(f"validation_{name}", SAMPLED, "error")
        scores[name] = Score(values.mean(), error, values)
    if not all(math.isfinite(score.value) for score in scores.values()):
        return "a score is no number"
    return scores


def evidence_score(run: RunResults, predictor: str) -> Scores | str:
    """ln p(y) of one of PREDICTORS, that of the samples with its error."""
    if predictor != SAMPLED:
        reason = reason_against(run, predictor)
        if reason is not None:
            return reason
        value = number(run.theory, EVIDENCE, predictor)
        if not math.isfinite(value):
            too_many = "not computed of so many order parameters"
            return too_many if predictor == NEXT else "no saddle point, or a narrow layer"
        return {EVIDENCE: Score(value)}
    reason = reason_against_draws(run)
    if reason is not None:
        return reason
    evidence = run.comparison.estimate(EVIDENCE)
    if evidence is None:
        return "sampled without evidence"
    if not evidence.trusted:
        return "evidence not to be trusted"
    return {EVIDENCE: Score(evidence.value, evidence.mcse)}


def test_accuracy(run: RunResults, predictor: str) -> dict | None:
    """The accuracy on the test set, looked up for a point that is chosen already."""
    if predictor != SAMPLED:
        return {"value": number(run.theory, ACCURACY, predictor)}
    accuracy = run.comparison and run.comparison.estimate(ACCURACY)
    if accuracy is None:
        return None
    return {"value": accuracy.value, "mcse": accuracy.mcse, "test_error": accuracy.test_error}


# --- the choice among the points of a sweep


def select(predictor: str, points: Sequence[SweptPoint], *criteria: str) -> dict[str, Any]:
    """The choice by each of CRITERIA on the validation split, or by EVIDENCE alone.

    With the number of points to choose from, and of every other one why it is none of them.
    Infinite width at its own temperature is the same at points that differ in theirs alone: the
    first of them stands for all, with the temperature that was chosen.
    """
    by_evidence, first_task = EVIDENCE in criteria, points[0].recipe.task
    if predictor == TUNED:
        points = [group[0] for group in by_other_settings(points)]
    runs = {point.label: point.run for point in points}
    candidates, left_out = [], {}
    for point in points:
        task, settings = point.recipe.task, dict(point.settings)
        scores = (evidence_score if by_evidence else validation_scores)(point.run, predictor)
        if by_evidence and task != first_task:
            scores = OTHER_DATA
        if isinstance(scores, str):
            left_out[point.label] = scores
            continue
        if predictor == TUNED:
            settings[TEMPERATURE] = number(point.run.theory, "temperature", TUNED)
        candidates.append(Candidate(point.label, settings, task, scores))
    choices = {criterion: choose(candidates, criterion) for criterion in criteria}
    for choice in choices.values():
        if choice is not None and not by_evidence:
            choice["test_accuracy"] = test_accuracy(runs[choice["point"]], predictor)
    return {"candidates": len(candidates), "left_out": left_out, **choices}


def selection(points: Sequence[SweptPoint]) -> dict[str, Any]:
    """Choices among points for each predictor, on validation data and, under EVIDENCE, by it."""
    return {
        **{name: select(name, points, *CRITERIA) for name in PREDICTORS},
        EVIDENCE: {name: select(name, points, EVIDENCE) for name in PREDICTORS},
    }


def write_selection(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> None:
    """Choose a point for every predictor, and store `selection.json`.

    No file where no point has scores on a validation split or an evidence.
    """
    chosen = selection(points)
    validated = any(chosen[name]["candidates"] for name in PREDICTORS)
    if not validated:
        LOG.info(NO_VALIDATION)
    if not validated and not any(of["candidates"] for of in chosen[EVIDENCE].values()):
        return
    for name in PREDICTORS if validated else ():
        if name != NEXT or chosen[name]["candidates"]:
            choice = chosen[name][DENSITY]
            point = "nothing" if choice is None else choice["point"]
            LOG.info("selected on the validation split, %s: %s", predictor_name(name), point)
    groups = by_other_settings(points)
    if TEMPERATURE in recipe.sweep and len(groups) > 1:
        chosen["by_temperature"] = [
            {"settings": other_settings(group[0].settings)} | selection(group) for group in groups
        ]
    write_json(directory / SELECTION_FILE, to_json(chosen))


def chosen_points(directory: Path, recipe: Recipe) -> set[str]:
    """Labels of the points whose temperature the theory chooses, one for each other setting.

    Raises InputError if no temperature can be chosen: the tasks have no validation split, or no
    saddle point converged.
    """
    chosen = set()
    for group in by_other_settings(swept_points(directory, recipe)):
        among = select(LEADING, group, ACCURACY)
        if among[ACCURACY] is None:
            reasons = sorted(set(among["left_out"].values())) or ["labels are no classes"]
            raise InputError(
                Setting("sampler", "points"),
                "selected",
                'nothing to choose by at {} ({}); set {}, or {} = "all"',
                group[0].label,
                ", ".join(reasons),
                Setting("task", "examples_validation"),
                Setting("sampler", "points"),
            )
        chosen.add(among[ACCURACY]["point"])
    return chosen


def other_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The swept settings but for the temperature."""
    return {key: value for key, value in settings.items() if key != TEMPERATURE}


def by_other_settings(points: Sequence[SweptPoint]) -> list[list[SweptPoint]]:
    """The points in groups that differ in nothing but the temperature, in the order of the grid."""
    groups: dict[str, list[SweptPoint]] = {}
    for point in points:
        groups.setdefault(repr(other_settings(point.settings)), []).append(point)
    return list(groups.values())
