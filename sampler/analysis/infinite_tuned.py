"""Infinite width at a temperature of its own, so that others are compared with it at its best.

The temperature that is best for a network of finite width need not be so for the infinitely wide
one. It chooses by the validation split or, where nothing was left for that, by its evidence.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sampler.analysis.predictors import BY_EVIDENCE, BY_VALIDATION, TUNED, TUNED_BY
from sampler.analysis.scores import example_scores
from sampler.analysis.text import Number
from sampler.problem import Problem
from theory import InfiniteWidth, LearningProblem, best_temperature

IN_WORDS = {BY_VALIDATION: "its density on the validation split", BY_EVIDENCE: "its evidence"}


@dataclass(frozen=True)
class TunedInfiniteWidth:
    """Infinite width at the temperature that it chooses for itself.

    learning      the training data at this temperature
    chosen_by     BY_VALIDATION or BY_EVIDENCE
    bound         "lowest" or "highest" where it is an end of all that were tried; else empty
    log_evidence  ln p(y) there
    """

    learning: LearningProblem
    chosen_by: str
    bound: str
    log_evidence: float

    @classmethod
    def of(cls, problem: Problem) -> "TunedInfiniteWidth":
        """Choose by the validation split where there is one, else by the evidence."""
        limit, chosen_by = InfiniteWidth.of(problem.learning), BY_EVIDENCE
        score = limit.log_evidence
        if problem.attended_validation is not None:
            chosen_by, score = BY_VALIDATION, validation_score(problem, limit)
        lowest = problem.learning.lowest_temperature
        best = best_temperature(score, limit.mean_square_label, problem.temperature, lowest)
        there, evidence = problem.learning.at(best.temperature), limit.log_evidence
        return cls(there, chosen_by, best.bound, evidence(best.temperature))

    @property
    def temperature(self) -> float:
        return self.learning.temperature

    @property
    def explanation(self) -> str:
        value = Number(self.temperature, digits=3)
        end = f", the {self.bound} that was tried" if self.bound else ""
        return f"infinite width: best temperature {value} by {IN_WORDS[self.chosen_by]}{end}"

    @property
    def attributes(self) -> dict[str, str]:
        return {
            TUNED_BY: self.chosen_by,
            f"{TUNED}_bound": self.bound,
            f"{TUNED}_explanation": self.explanation,
        }


def validation_score(problem: Problem, limit: InfiniteWidth) -> Callable[[float], float]:
    """Return the mean log predictive density on the validation split at every temperature."""
    moments, labels = limit.predictor(problem.attended_validation), problem.labels_validation

    def score(temperature: float) -> float:
        found = example_scores(*moments(temperature), labels, temperature)
        return float(found[BY_VALIDATION].mean())

    return score
