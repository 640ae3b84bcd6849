"""Which point of a sweep its validation split or its evidence chooses."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from sampler.mcmc.tempered import repetition_weights
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
class Candidate:
    """A point of a sweep with its scores, and of the test set no more than where to look it up.

    settings       the swept keys and their values here
    data           equal for two points whose examples are the same
    scores         name → value and, where sampled, mcse; on the validation split also
                   validation_error and by_example
    test_accuracy  looks it up for the point that is chosen; None where none is to be reported
    """

    point: str
    settings: Mapping[str, object]
    data: Hashable
    scores: Mapping[str, Mapping]
    test_accuracy: Callable[[], Mapping | None] | None = None

    def has(self, criterion: str) -> bool:
        """Whether there is a score by this criterion, and it is a number."""
        return criterion in self.scores and math.isfinite(self.value(criterion))

    def value(self, criterion: str) -> float:
        return float(self.scores[criterion]["value"])

    def mcse(self, criterion: str) -> float:
        """The Monte Carlo standard error of the score, zero where nothing was sampled."""
        return float(self.scores[criterion].get("mcse", 0.0))


@dataclass(frozen=True)
class Choice:
    """The best point by one criterion, and the second best (None if there is only one)."""

    criterion: str
    best: Candidate
    runner_up: Candidate | None

    @property
    def difference(self) -> float:
        """Advantage of the best point over the second best."""
        return self.best.value(self.criterion) - self.runner_up.value(self.criterion)

    @property
    def error(self) -> float:
        """Standard error of the difference: finite validation split and Monte Carlo."""
        both = (self.best, self.runner_up)
        monte_carlo = [one.mcse(self.criterion) for one in both]
        return float(np.hypot(validation_error(*both, self.criterion), np.hypot(*monte_carlo)))

    @property
    def within_errors(self) -> bool:
        """Whether the second best may be as good: the difference is at most one error."""
        return not self.difference > self.error

    def to_json(self) -> dict:
        """Return the entries for `selection.json`."""
        score = self.best.scores[self.criterion]
        found = {
            "point": self.best.point,
            "settings": dict(self.best.settings),
            **{key: score[key] for key in ("value", "mcse", "validation_error") if key in score},
            "runner_up": None,
        }
        if self.runner_up is not None:
            found["runner_up"] = {
                "point": self.runner_up.point,
                "settings": dict(self.runner_up.settings),
                "value": self.runner_up.value(self.criterion),
                "difference": self.difference,
                "error_of_difference": self.error,
                "within_errors": self.within_errors,
            }
        if self.best.test_accuracy is not None:
            found["test_accuracy"] = self.best.test_accuracy()
        return found


def choose(candidates: Sequence[Candidate], criterion: str) -> Choice | None:
    """The best two candidates by a criterion; the earlier one where nothing tells them apart.

    None if no candidate has this score; one that is no number is none.
    """
    scored = [one for one in candidates if one.has(criterion)]
    first = CRITERIA[0] if all(one.has(CRITERIA[0]) for one in scored) else criterion
    ranked = sorted(scored, key=lambda one: (one.value(criterion), one.value(first)), reverse=True)
    if not ranked:
        return None
    return Choice(criterion, ranked[0], ranked[1] if len(ranked) > 1 else None)


def validation_error(one: Candidate, other: Candidate, criterion: str) -> float:
    """Standard error, by the finite validation split, of the difference of two scores.

    Example by example where both saw the same examples: what these share does not count. Zero for
    a score that is no mean over examples.
    """
    if criterion == EVIDENCE:
        return 0.0
    scores = [candidate.scores[criterion] for candidate in (one, other)]
    first, second = (np.asarray(score["by_example"], dtype=np.float64) for score in scores)
    if one.data != other.data or first.shape != second.shape:
        return float(np.hypot(*(float(score["validation_error"]) for score in scores)))
    return float((first - second).std(ddof=1) / np.sqrt(first.size)) if first.size > 1 else np.nan


# --- scores of stored results: of a point, or the reason why it is not to be chosen


def validation_scores(run: RunResults, predictor: str) -> dict | str:
    """Scores on the validation split of one of PREDICTORS."""
    if predictor == SAMPLED:
        return scores_from_draws(run)
    reason = unknown(run, predictor)
    if reason is not None:
        return reason
    by_example = predicted_by_example(run.theory, predictor)
    if not any(f"validation_{score}" in run.theory for score in SCORES):
        return "no validation split"
    scores = {score: score_with_error(values) for score, values in by_example.items()}
    if not scores or not all(np.isfinite(score["value"]) for score in scores.values()):
        # To next order a variance may be so far below zero that a label has no density.
        undefined = "predictive variance not positive at next order"
        return undefined if predictor == NEXT else "saddle point not converged"
    return scores


def score_with_error(by_example: np.ndarray) -> dict:
    """A score, its standard error by the finite validation split, and that of every example."""
    error = error_of_mean(by_example)
    return {"value": by_example.mean(), "validation_error": error, "by_example": by_example}


def unknown(run: RunResults, predictor: str) -> str | None:
    """Return the reason why a predictor is not to be used; None where it may be."""
    if run.theory is None:
        return "not solved"
    if predictor == NEXT:
        if run.theory.attrs.get("next_order_status") == "fine":
            return None
        return str(run.theory.attrs.get("next_order_explanation", "next order not known"))
    return None if predictor in predictors_of(run.theory) else "not solved"


def scores_from_draws(run: RunResults) -> dict | str:
    if run.comparison is None:
        return "not sampled"
    if run.drawn("predictor_mean", GROUP) is None:
        return "no validation split"
    if not run.trusted:
        return "diagnostics failed"
    names = ("predictor_mean", "predictor_variance", "labels", "temperature")
    table = xr.Dataset({name: run.drawn(name, GROUP).variable for name in names})
    of_repetitions = {
        name: run.drawn(name, "sample_stats") for name in ("ancestor", "log_evidence")
    }
    known = {name: one.values for name, one in of_repetitions.items() if one is not None}
    weights, scores = repetition_weights(known), {}
    for score, values in sampled_by_example(table, weights).items():
        error = run.comparison.number(f"validation_{score}", SAMPLED, "error")
        scores[score] = score_with_error(values) | {"mcse": error}
    if not all(np.isfinite(score["value"]) for score in scores.values()):
        return "a score is no number"
    return scores


def evidence_score(run: RunResults, predictor: str) -> dict | str:
    """ln p(y) of one of PREDICTORS, that of the samples with its error."""
    if predictor != SAMPLED:
        reason = unknown(run, predictor)
        if reason is not None:
            return reason
        value = number(run.theory, EVIDENCE, predictor)
        if not math.isfinite(value):
            left_out = "not computed of so many order parameters"
            return left_out if predictor == NEXT else "no saddle point, or a narrow layer"
        return {EVIDENCE: {"value": value}}
    if run.comparison is None:
        return "not sampled"
    evidence = run.comparison.estimate(EVIDENCE)
    if evidence is None:
        return "sampled without evidence"
    if run.drawn_attribute("log_evidence_trusted", "sample_stats") == 0:
        return "evidence not to be trusted"
    return {EVIDENCE: {"value": evidence.value, "mcse": evidence.mcse}}


def test_accuracy(run: RunResults, predictor: str) -> dict | None:
    """The accuracy on the test set, looked up for a point that is chosen already."""
    if predictor != SAMPLED:
        return {"value": number(run.theory, ACCURACY, predictor)}
    accuracy = run.comparison and run.comparison.estimate(ACCURACY)
    if accuracy is None:
        return None
    return {"value": accuracy.value, "mcse": accuracy.mcse, "test_error": accuracy.test_error}


# --- the choice


@dataclass(frozen=True)
class Selected:
    """Choice for one of PREDICTORS.

    candidates  number of points to choose from
    left_out    point → why it is none of them
    choices     criterion → its choice, None where no point has the score
    """

    candidates: int
    left_out: Mapping[str, str]
    choices: Mapping[str, Choice | None]

    def to_json(self) -> dict:
        """Return the entries for `selection.json`."""
        counted = {"candidates": self.candidates, "left_out": dict(self.left_out)}
        return counted | to_json(self.choices)


def select(name: str, points: Sequence[SweptPoint], *criteria: str) -> Selected:
    """The choice by each of CRITERIA on the validation split, or by EVIDENCE alone.

    Infinite width at its own temperature is the same at points that differ in theirs alone: the
    first of them stands for all, with the temperature that was chosen.
    """
    by_evidence = EVIDENCE in criteria
    candidates, left_out = [], {}
    own = name == TUNED
    for point in [group[0] for group in by_other_settings(points)] if own else points:
        scores = (evidence_score if by_evidence else validation_scores)(point.run, name)
        task, tested = point.recipe.task, None
        if by_evidence and task != points[0].recipe.task:
            scores = OTHER_DATA
        elif not by_evidence:
            tested = partial(test_accuracy, point.run, name)
        if isinstance(scores, str):
            left_out[point.label] = scores
        else:
            settings = dict(point.settings)
            if own:
                settings[TEMPERATURE] = number(point.run.theory, "temperature", TUNED)
            candidates.append(Candidate(point.label, settings, task, scores, tested))
    choices = {criterion: choose(candidates, criterion) for criterion in criteria}
    return Selected(len(candidates), left_out, choices)


def selection(points: Sequence[SweptPoint]) -> dict[str, Any]:
    """Choices among points for each predictor, on validation data and, under EVIDENCE, by it."""
    return {
        **{name: select(name, points, *CRITERIA) for name in PREDICTORS},
        EVIDENCE: {name: select(name, points, EVIDENCE) for name in PREDICTORS},
    }


def write_selection(directory: Path, recipe: Recipe, points: Sequence[SweptPoint]) -> None:
    """Choose a point for every predictor, and store `selection.json`.

    Beside the choices on validation data, under `log_evidence`, stands what is chosen by evidence,
    on the training data alone. No file where no point has scores on a validation split or an
    evidence.
    """
    chosen = selection(points)
    validated = any(chosen[name].candidates for name in PREDICTORS)
    if not validated:
        LOG.info(NO_VALIDATION)
    if not validated and not any(found.candidates for found in chosen[EVIDENCE].values()):
        return
    for name in PREDICTORS if validated else ():
        if name != NEXT or chosen[name].candidates:
            LOG.info(choice_text(predictor_name(name), chosen[name].choices[CRITERIA[0]]))
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
        found = select(LEADING, group, ACCURACY)
        choice = found.choices[ACCURACY]
        if choice is None:
            reasons = sorted(set(found.left_out.values())) or ["labels are no classes"]
            raise InputError(
                Setting("sampler", "points"),
                "selected",
                'nothing to choose by at {} ({}); set {}, or {} = "all"',
                group[0].label,
                ", ".join(reasons),
                Setting("task", "examples_validation"),
                Setting("sampler", "points"),
            )
        chosen.add(choice.best.point)
    return chosen


def other_settings(settings: Mapping[str, object]) -> dict:
    """The swept settings but for the temperature."""
    return {key: value for key, value in settings.items() if key != TEMPERATURE}


def by_other_settings(points: Sequence[SweptPoint]) -> list[list[SweptPoint]]:
    """The points in groups that differ in nothing but the temperature, in the order of the grid."""
    groups: dict[str, list[SweptPoint]] = {}
    for point in points:
        groups.setdefault(repr(other_settings(point.settings)), []).append(point)
    return list(groups.values())


def choice_text(name: str, choice: Choice | None) -> str:
    """Return the choice on the validation split in one line, for the log."""
    if choice is None:
        return f"selected on the validation split, {name}: nothing"
    second = choice.runner_up
    doubt = f" (within errors: {second.point})" if second and choice.within_errors else ""
    return f"selected on the validation split, {name}: {choice.best.point}{doubt}"
