"""The point of a sweep chosen on the validation split, or by evidence (`selection.json`)."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from sampler.analysis.selection import CRITERIA, EVIDENCE, Candidate, choose
from sampler.analysis.validation import theory_scores
from sampler.errors import InputError
from sampler.jobs.select_by_evidence import select_by_evidence
from sampler.progress_display import LOG
from sampler.recipes.recipe import Recipe
from sampler.storage.json_file import read_json, write_json
from sampler.storage.point_directory import point_directory
from sampler.storage.results import COMPARISON_FILE, THEORY_FILE, read_theory

SELECTION_FILE = "selection.json"
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
        if not (directory / THEORY_FILE).is_file():
            return "not solved"
        scores = theory_scores(read_theory(directory), name)
        if not scores:
            return "no validation split"
        if not all(np.isfinite(score["value"]) for score in scores.values()):
            return "saddle point not converged"
        return scores

    return read


def sampled_scores_at(directory: Path) -> dict | str:
    """Scores of a point's samples, or why they are not to be chosen by."""
    if not (directory / COMPARISON_FILE).is_file():
        return "not sampled"
    comparison = read_json(directory / COMPARISON_FILE)
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
    return lambda directory: {"value": float(read_theory(directory)[f"accuracy_{name}"])}


def sampled_test_accuracy(directory: Path) -> dict | None:
    accuracy = read_json(directory / COMPARISON_FILE).get("accuracy") or {}
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
