"""Which point of a sweep its validation split or its evidence chooses."""

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sampler.analysis.theory_table import known
from sampler.analysis.validation import theory_scores
from sampler.errors import InputError
from sampler.jobs.progress import LOG
from sampler.recipes.recipe import Recipe
from sampler.storage.results import RunResults
from sampler.storage.run_directory import point_directory, write_json
from sampler.storage.sweeps import SELECTION_FILE

# What a point is chosen by, each for itself; ties go to the better log predictive density.
CRITERIA = ("log_predictive_density", "accuracy")
# A score of the training data alone: it has no examples to be uncertain by.
EVIDENCE = "log_evidence"


@dataclass(frozen=True)
class Candidate:
    """A point of a sweep with its scores, and nothing of the test set.

    settings  the swept keys and their values here
    data      equal for two points whose examples are the same
    scores    name → value and, where sampled, mcse; on the validation split also validation_error
              and by_example
    """

    point: str
    settings: Mapping[str, object]
    data: Hashable
    scores: Mapping[str, Mapping]

    def value(self, criterion: str) -> float:
        return float(self.scores[criterion]["value"])

    def mcse(self, criterion: str) -> float:
        return float(self.scores[criterion].get("mcse", 0.0))


@dataclass(frozen=True)
class Choice:
    """The best point by one criterion, and the second best (None if there is only one)."""

    criterion: str
    best: Candidate
    runner_up: Candidate | None

    @property
    def difference(self) -> float:
        """How much better the best point is than the second best."""
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

    def as_dict(self) -> dict:
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
        return found


def choose(candidates: Sequence[Candidate], criterion: str) -> Choice | None:
    """The best two candidates by a criterion; the earlier one where nothing tells them apart.

    None if no candidate has this score.
    """
    scored = [one for one in candidates if criterion in one.scores]
    first = CRITERIA[0] if all(CRITERIA[0] in one.scores for one in scored) else criterion
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


# Evidence says which network explains one set of labels best, not which labels are easier.
OTHER_DATA = "other training data than at the first point"


def select_by_evidence(
    name: str, directory: Path, points: Sequence[tuple[str, dict, Recipe]]
) -> dict:
    """The choice for "theory", "gp" or "sampled", and the points left out with their reasons."""
    candidates, left_out = [], {}
    for label, settings, point in points:
        score = EVIDENCE_READERS[name](point_directory(directory, label))
        if point.task != points[0][2].task:
            left_out[label] = OTHER_DATA
        elif isinstance(score, str):
            left_out[label] = score
        else:
            candidates.append(Candidate(label, settings, point.task, {EVIDENCE: score}))
    choice = choose(candidates, EVIDENCE)
    chosen = None if choice is None else choice.as_dict()
    return {"candidates": len(candidates), "left_out": left_out, EVIDENCE: chosen}


def evidence_of_theory(name: str) -> Callable[[Path], dict | str]:
    def read(directory: Path) -> dict | str:
        """ln p(y) of a point, or why it has none to be chosen by."""
        theory = RunResults(directory).theory
        if theory is None:
            return "not solved"
        value = known(theory, name)
        return "no saddle point, or a narrow layer" if value is None else {"value": value}

    return read


def evidence_of_samples(directory: Path) -> dict | str:
    """ln p(y) of a point's samples and its error, or why it is not to be chosen by."""
    comparison = RunResults(directory).comparison
    if comparison is None:
        return "not sampled"
    found = (comparison.get(EVIDENCE) or {}).get("sampled")
    if found is None:
        return "sampled without evidence"
    if not found["trusted"]:
        return "evidence not to be trusted"
    return {"value": found["value"], "mcse": found["mcse"]}


EVIDENCE_READERS = {
    "theory": evidence_of_theory("log_evidence"),
    "gp": evidence_of_theory("log_evidence_gp"),
    "sampled": evidence_of_samples,
}


TEMPERATURE = "posterior.temperature"
# Label, swept settings and recipe.
SweptPoint = tuple[str, dict, Recipe]
NO_VALIDATION = (
    "nothing selected on a validation split, which no point has; set "
    "task.examples_validation, or add inputs_validation, labels_validation and "
    "attention_validation_1, … to the arrays"
)


def select_point(directory: Path, recipe: Recipe) -> dict | None:
    """Choose a point for theory, GP limit and samples each, and store `selection.json`.

    The accuracy on the test set is looked up for the chosen point alone, after the choice. Beside
    them, under `log_evidence`, stands what is chosen by evidence, on the training data alone. None,
    and no file, where no point has scores on a validation split or an evidence.
    """
    points = list(swept_points(recipe))
    selection: dict = {name: select_for(name, directory, points) for name in READERS}
    by_evidence = {name: select_by_evidence(name, directory, points) for name in READERS}
    validated = any(found["candidates"] for found in selection.values())
    if not validated:
        LOG.info(NO_VALIDATION)
    if not validated and not any(found["candidates"] for found in by_evidence.values()):
        return None
    for name, found in selection.items() if validated else ():
        LOG.info(one_line(name, found))
    groups = by_other_settings(points)
    if TEMPERATURE in recipe.sweep and len(groups) > 1:
        selection["by_temperature"] = [
            {
                "settings": other_settings(group[0][1]),
                **{name: select_for(name, directory, group) for name in READERS},
                EVIDENCE: {name: select_by_evidence(name, directory, group) for name in READERS},
            }
            for group in groups
        ]
    selection[EVIDENCE] = by_evidence
    write_json(directory / SELECTION_FILE, selection)
    return selection


def chosen_points(directory: Path, recipe: Recipe) -> set[str]:
    """Labels of the points whose temperature the theory chooses, one for each other setting.

    Raises InputError if no temperature can be chosen: the tasks have no validation split, or no
    saddle point converged.
    """
    chosen, by = set(), recipe.sampler.selected_by
    select = select_by_evidence if by == EVIDENCE else select_for
    remedy = "network.widths" if by == EVIDENCE else "task.examples_validation"
    for group in by_other_settings(list(swept_points(recipe))):
        found = select("theory", directory, group)
        if found[by] is None:
            reasons = sorted(set(found["left_out"].values())) or ["labels are no classes"]
            raise InputError(
                "sampler.points",
                "selected",
                f"nothing to choose by at {group[0][0]} ({', '.join(reasons)}); set {remedy}, "
                'or sampler.points = "all"',
            )
        chosen.add(found[by]["point"])
    return chosen


def other_settings(settings: Mapping[str, object]) -> dict:
    """The swept settings but for the temperature."""
    return {key: value for key, value in settings.items() if key != TEMPERATURE}


def by_other_settings(points: Sequence[SweptPoint]) -> list[list[SweptPoint]]:
    """The points in groups that differ in nothing but the temperature, in the order of the grid."""
    groups: dict[str, list[SweptPoint]] = {}
    for one in points:
        groups.setdefault(repr(other_settings(one[1])), []).append(one)
    return list(groups.values())


def select_for(name: str, directory: Path, points: Sequence[SweptPoint]) -> dict:
    """The choice for "theory", "gp" or "sampled" by each criterion, and the points left out."""
    read_scores, read_test_accuracy = READERS[name]
    candidates, left_out = [], {}
    for label, settings, point in points:
        scores = read_scores(point_directory(directory, label))
        if isinstance(scores, str):
            left_out[label] = scores
        else:
            candidates.append(Candidate(label, settings, point.task, scores))
    found: dict = {"candidates": len(candidates), "left_out": left_out}
    for criterion in CRITERIA:
        choice = choose(candidates, criterion)
        found[criterion] = None if choice is None else choice.as_dict()
        if choice is not None:
            chosen = point_directory(directory, choice.best.point)
            found[criterion]["test_accuracy"] = read_test_accuracy(chosen)
    return found


def swept_points(recipe: Recipe) -> Iterator[SweptPoint]:
    """Label, swept settings and recipe of every point."""
    values = itertools.product(*recipe.sweep.values())
    for (label, point), of_point in zip(recipe.points(), values, strict=True):
        yield label, dict(zip(recipe.sweep, of_point, strict=True)), point


def scores_of_theory(name: str) -> Callable[[Path], dict | str]:
    def read(directory: Path) -> dict | str:
        """Scores of a point, or why it has none to be chosen by."""
        theory = RunResults(directory).theory
        if theory is None:
            return "not solved"
        scores = theory_scores(theory, name)
        if not scores:
            return "no validation split"
        if not all(np.isfinite(score["value"]) for score in scores.values()):
            return "saddle point not converged"
        return scores

    return read


def sampled_scores_at(directory: Path) -> dict | str:
    """Scores of a point's samples, or why they are not to be chosen by."""
    comparison = RunResults(directory).comparison
    if comparison is None:
        return "not sampled"
    scores = comparison.get("validation", {}).get("sampled")
    if not scores:
        return "no validation split"
    if comparison["diagnostics"]["verdict"] != "pass":
        return "diagnostics failed"
    # null in a file is a number that does not exist
    return {
        name: {key: np.asarray(value, dtype=np.float64) for key, value in score.items()}
        for name, score in scores.items()
    }


def theory_test_accuracy(name: str) -> Callable[[Path], dict]:
    return lambda directory: {"value": float(RunResults(directory).theory[f"accuracy_{name}"])}


def sampled_test_accuracy(directory: Path) -> dict | None:
    accuracy = (RunResults(directory).comparison or {}).get("accuracy") or {}
    return accuracy.get("sampled")


# How the scores on the validation split are read, and how the accuracy on the test set is.
READERS = {
    "theory": (scores_of_theory("theory"), theory_test_accuracy("theory")),
    "gp": (scores_of_theory("gp"), theory_test_accuracy("gp")),
    "sampled": (sampled_scores_at, sampled_test_accuracy),
}


def one_line(name: str, found: dict) -> str:
    """What was chosen, for the log."""
    chosen = found[CRITERIA[0]]
    if chosen is None:
        return f"selected on the validation split, {name}: nothing"
    second = chosen["runner_up"]
    doubt = f" (within errors: {second['point']})" if second and second["within_errors"] else ""
    return f"selected on the validation split, {name}: {chosen['point']}{doubt}"
