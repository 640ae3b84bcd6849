"""The point of a sweep with the largest log evidence: a choice on the training data alone."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sampler.analysis.evidence import known
from sampler.analysis.selection import EVIDENCE, Candidate, choose
from sampler.recipes.recipe import Recipe
from sampler.storage.json_file import read_json
from sampler.storage.point_directory import point_directory
from sampler.storage.results import COMPARISON_FILE, THEORY_FILE, read_theory

# Evidence says which network explains one set of labels best, not which labels are easier.
OTHER_DATA = "other training data than at the first point"


def select_by_evidence(
    name: str, directory: Path, points: Sequence[tuple[str, dict, Recipe]]
) -> dict:
    """The choice for "theory", "gp" or "sampled", and the points left out with their reasons."""
    candidates, left_out = [], {}
    for label, settings, point in points:
        score = READERS[name](point_directory(directory, label))
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
        if not (directory / THEORY_FILE).is_file():
            return "not solved"
        value = known(read_theory(directory), name)
        return "no saddle point, or a narrow layer" if value is None else {"value": value}

    return read


def evidence_of_samples(directory: Path) -> dict | str:
    """ln p(y) of a point's samples and its error, or why it is not to be chosen by."""
    if not (directory / COMPARISON_FILE).is_file():
        return "not sampled"
    comparison = read_json(directory / COMPARISON_FILE)
    found = (comparison.get(EVIDENCE) or {}).get("sampled")
    if found is None:
        return "sampled without evidence"
    if not found["trusted"]:
        return "evidence not to be trusted"
    return {"value": found["value"], "mcse": found["mcse"]}


READERS = {
    "theory": evidence_of_theory("log_evidence"),
    "gp": evidence_of_theory("log_evidence_gp"),
    "sampled": evidence_of_samples,
}
