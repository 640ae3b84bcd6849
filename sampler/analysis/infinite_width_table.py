"""Infinite width: at the temperature that is best for it, and with nonlinear values."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from sampler.analysis.names import label, with_long_names
from sampler.analysis.predictors import (
    AXIS,
    BY_EVIDENCE,
    BY_VALIDATION,
    INFINITE,
    TUNED,
    TUNED_BY,
    along_predictors,
    predictor_name,
)
from sampler.analysis.scores import moment_columns
from sampler.analysis.validation import scores_of
from sampler.errors import InputError
from sampler.problem import Problem
from sampler.token_problem import TokenProblem
from theory import InfiniteWidth, LearningProblem, TemperatureTooSmall, best_temperature
from theory.nonlinear_kernels import NonlinearProblem, TokenExamples, kernels_at


@dataclass(frozen=True)
class TunedInfiniteWidth:
    """Infinite width at the temperature that it chooses for itself.

    The temperature that is best for a network of finite width need not be so for the infinitely
    wide one: others are compared with it at its best.

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
        limit = InfiniteWidth.of(problem.learning)
        chosen_by, score = BY_EVIDENCE, limit.log_evidence
        if problem.attended_validation is not None:
            moments = limit.predictor(problem.attended_validation)
            chosen_by = BY_VALIDATION

            def score(temperature: float) -> float:
                scores = scores_of(moments(temperature), problem, temperature)
                return float(scores[BY_VALIDATION].mean())

        lowest = problem.learning.lowest_temperature
        best = best_temperature(score, limit.mean_square_label, problem.temperature, lowest)
        evidence = limit.log_evidence(best.temperature)
        return cls(problem.learning.at(best.temperature), chosen_by, best.bound, evidence)

    @property
    def attributes(self) -> dict[str, str]:
        """How the temperature was chosen, as attributes of `theory.nc`."""
        return {TUNED_BY: self.chosen_by, f"{TUNED}_bound": self.bound}


def nonlinear_table(problem: TokenProblem) -> xr.Dataset:
    """The content of `theory.nc` for nonlinear values: infinite width is the only predictor.

    Raises InputError for a temperature that is lost in the rounding of the kernel.
    """
    network, temperature = problem.network, float(problem.temperature)

    train, test = (
        TokenExamples.read(inputs, attention, network.readout)
        for inputs, attention, *_ in (problem.data.tokens, problem.data.tokens_test)
    )
    learning = NonlinearProblem(
        network.architecture, network.values, train, problem.labels, temperature
    )
    try:
        kernels = kernels_at(learning, test)
    except TemperatureTooSmall as error:
        raise InputError("temperature", error.temperature, error.remedy) from None
    moments = kernels.regression(learning.labels, temperature)
    mean, variance, evidence = map(np.asarray, moments)
    columns = moment_columns(mean, variance, problem.labels_test)
    columns |= {"log_evidence": ((), evidence), "temperature": ((), temperature)}
    table = along_predictors({INFINITE: columns})
    table = with_long_names(label(table, problem).assign_coords({AXIS: [INFINITE]}))
    return table.assign_attrs(
        converged=1,
        explanation=f"ln p(y) = {float(evidence):.4g} at {predictor_name(INFINITE)}",
        temperature=problem.temperature,
        widths=list(problem.architecture.widths),
    )
