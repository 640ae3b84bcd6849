"""The point of a sweep with the best score, and how sure that is."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

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
