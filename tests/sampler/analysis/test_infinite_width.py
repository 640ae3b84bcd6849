"""Infinite width at its own temperature: the table of the theory, and the comparison."""

from dataclasses import replace

import numpy as np
import pytest

from sampler.analysis.predictors import (
    BY_EVIDENCE,
    BY_VALIDATION,
    INFINITE,
    TUNED,
    number,
)
from sampler.analysis.theory_table import TunedInfiniteWidth, theory_table
from sampler.problem import Problem
from tests.sampler.analysis.test_validation import problem_of
from theory import solve_saddle_point

# Columns that infinite width has at both temperatures.
BOTH = ("predictor_mean", "predictor_variance", "accuracy", "log_evidence", "elpd")
VALIDATED = tuple(f"validation_{s}" for s in ("log_predictive_density", "squared_error"))


def table_of(problem):
    return theory_table(problem, solve_saddle_point(problem.learning, max_steps=1), ())


def without_validation(problem):
    split = (problem.labels_test, problem.path_names, problem.head_names)
    return Problem(problem.learning, problem.attended_test, *split)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["one head", "two layers, three outputs"])
@pytest.mark.parametrize("validated", [True, False])
def test_it_is_infinite_width_of_a_problem_at_that_temperature(name, validated, rng):
    """Solved anew there; and among many temperatures none is better."""
    full = problem_of(name, rng)
    problem = full if validated else without_validation(full)
    table = table_of(problem)
    temperature = number(table, "temperature", TUNED)
    chosen_by = BY_VALIDATION if validated else BY_EVIDENCE
    assert table.attrs["infinite_tuned_by"] == chosen_by

    def at(temperature):
        return table_of(
            replace(problem, learning=replace(problem.learning, temperature=temperature))
        )

    there = at(temperature)
    for column in BOTH + (VALIDATED if validated else ()):
        expected, received = (
            one[column].sel(predictor=name) for one, name in ((there, INFINITE), (table, TUNED))
        )
        assert received.dims == expected.dims
        np.testing.assert_allclose(received, expected, rtol=1e-10, err_msg=column)
    score = "validation_log_predictive_density" if validated else "log_evidence"
    for other in temperature * np.array([1e-3, 0.1, 0.5, 0.98, 1.02, 2.0, 10.0, 1e3]):
        assert number(at(other), score, INFINITE) < number(there, score, INFINITE)


def test_an_end_of_the_range_is_said(rng):
    """Labels that are all 0 have the larger a density the less noise there is."""
    problem = without_validation(problem_of("one head", rng))
    zero = replace(problem.learning, labels=0.0 * problem.learning.labels)
    found = TunedInfiniteWidth.of(replace(problem, learning=zero))
    assert found.bound == "lowest"
