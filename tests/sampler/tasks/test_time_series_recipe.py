"""Slow: the time-series recipe shows the effect that it is there to show."""

import numpy as np
import pytest

from tests.sampler.tasks.test_markov_recipes import at_width, gp_predictor, recipe_problem

pytestmark = pytest.mark.slow

SEEDS = range(6)


def test_accuracy_falls_with_the_width_towards_infinite_width():
    problem = recipe_problem("time_series")
    gp_accuracy = gp_predictor(problem)[1]
    accuracies = [at_width(problem, width)[1] for width in (10, 100, 1000)]
    print(f"\nGP {gp_accuracy:.3f}, N = 10, 100, 1000 {accuracies}")
    assert accuracies[0] > accuracies[1] > accuracies[2] > gp_accuracy
    # The difference on the same test examples has at most the error of independent ones.
    error = np.sqrt(2 * 0.25 / problem.labels_test.size)
    assert accuracies[0] - gp_accuracy > 5 * error


def test_the_gain_does_not_depend_on_the_data():
    """Data of six seeds, the recipe's heads: the mean gain is many standard errors above zero."""
    gains = []
    for seed in SEEDS:
        problem = recipe_problem("time_series", f"task.seed={seed}")
        gains.append(at_width(problem, 10)[1] - gp_predictor(problem)[1])
    mean, error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(len(gains))
    print(f"\ngain {mean:.3f} ± {error:.3f}: {np.round(gains, 3)}")
    # 6.9 standard errors of a t distribution with 5 degrees of freedom: p = 5e-4, one-sided
    assert mean > 6.9 * error
