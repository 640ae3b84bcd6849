"""Slow: the time-series recipe shows the effect that it is there to show."""

import numpy as np
import pytest

from tests.sampler.test_markov_recipes import at_width, gp_predictor, recipe_problem

pytestmark = pytest.mark.slow

SEEDS = range(6)


def test_finite_width_beats_infinite_width_whatever_the_seed():
    """Data and heads of six seeds: the mean gain is many standard errors above zero."""
    gains = []
    for seed in SEEDS:
        problem = recipe_problem("time_series", f"task.seed={seed}", f"task.head_seed={seed}")
        gp_accuracy = gp_predictor(problem)[1]
        accuracies = [at_width(problem, width)[1] for width in (10, 1000)]
        gains.append([accuracy - gp_accuracy for accuracy in accuracies])
        print(f"\nseed {seed}: GP {gp_accuracy:.3f}, N = 10, 1000 {accuracies}", end="")
    gains = np.array(gains)  # seed, width
    mean, error = gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    print(f"\ngains {mean} ± {error}")
    # 6.9 standard errors of a t distribution with 5 degrees of freedom: p = 5e-4, one-sided
    assert mean[0] > 6.9 * error[0]
    fall = gains[:, 0] - gains[:, 1]
    assert fall.mean() > 6.9 * fall.std(ddof=1) / np.sqrt(len(fall))
