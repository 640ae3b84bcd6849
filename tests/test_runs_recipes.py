"""A recipe that ships shows the effect of finite width; the published one has its own test."""

import numpy as np
import pytest

from sampler.data.make import build_task
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from tests import ROOT
from theory import (
    Architecture,
    LearningProblem,
    OrderParameters,
    Predictor,
    predict,
    solve_saddle_point,
)
from theory.observables import accuracy


@pytest.mark.slow
def test_finite_width_beats_infinite_width_and_falls_towards_it():
    recipe = load_recipe(ROOT / "runs" / "time_series.toml", ["sweep={}"])
    problem = build_problem(recipe, build_task(recipe))

    def predicted(learning, factor):
        predictor = Predictor.for_examples(learning, problem.attended_test)
        return np.asarray(predict(predictor, factor)[0])

    limit = OrderParameters.gp_limit(problem.architecture)
    infinite = predicted(problem.learning, limit.factors[0])
    old, widths, means = problem.architecture, (10, 100, 1000, 10_000), []
    for width in widths:
        learning = LearningProblem(
            Architecture.uniform(old.heads, width, old.channels),
            problem.learning.attended,
            problem.learning.labels,
            problem.learning.temperature,
        )
        solved = solve_saddle_point(learning)
        assert solved.converged, solved.explain()
        means.append(predicted(learning, solved.order_parameters.factors[0]))
    accuracies = [accuracy(mean, problem.labels_test) for mean in (*means, infinite)]
    assert accuracies == sorted(accuracies, reverse=True)
    # The difference on the same test examples has at most the error of independent ones.
    error = np.sqrt(2 * 0.25 / problem.labels_test.size)
    assert accuracies[0] - accuracies[-1] > 4 * error
    distances = [np.sqrt(np.mean((mean - infinite) ** 2)) for mean in means]
    assert distances == sorted(distances, reverse=True)
    # At fixed data the distance ends as 1/N: tenfold width divides it by ten, up to O(1/N).
    assert 5 < distances[2] / distances[3] < 11
