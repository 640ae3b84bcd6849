"""The published curve comes out of the recipe that ships with the published data."""

import numpy as np
import pytest

from sampler.data.make import build_task
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from tests import ROOT
from theory import (
    OrderParameters,
    Predictor,
    predict,
    solve_saddle_point,
    sub_network,
)
from theory.observables import accuracy

pytestmark = pytest.mark.slow

# Figure 2 (c) of arXiv 2405.15926 in the numbers of its published code: shares of 1,000 sequences.
PUBLISHED = {10: 0.964, 30: 0.961, 50: 0.945, 100: 0.911, 300: 0.855, 500: 0.840, 1000: 0.834}
INFINITE_WIDTH, GOOD_PATH, GOOD_AND_DENOISING = 0.826, 0.940, 0.955


@pytest.fixture(scope="module")
def problems():
    """The problem of every point of the recipe by its width."""
    recipe = load_recipe(ROOT / "runs" / "markov_published.toml")
    task = build_task(recipe)
    assert (task.train.examples, task.test.examples, task.heads) == (100, 1000, (2, 2))
    found = {point.network.widths: build_problem(point, task) for _, point in recipe.points()}
    assert list(found) == list(PUBLISHED)
    return found


@pytest.fixture(scope="module")
def saddles(problems):
    return {width: solve_saddle_point(problem.learning) for width, problem in problems.items()}


def mean_prediction(problem, factor) -> np.ndarray:
    predictor = Predictor.for_examples(problem.learning, problem.attended_test)
    return np.asarray(predict(predictor, factor)[0])


@pytest.mark.parametrize("width", PUBLISHED)
def test_accuracy_of_the_theory(width, problems, saddles):
    saddle, problem = saddles[width], problems[width]
    assert saddle.converged, saddle.explain()
    mean = mean_prediction(problem, saddle.order_parameters.factors[0])
    assert accuracy(mean, problem.labels_test) == PUBLISHED[width]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (((0, 1), (0, 1)), INFINITE_WIDTH),
        (((0,), (0,)), GOOD_PATH),
        (((0, 1), (0,)), GOOD_AND_DENOISING),
    ],
)
def test_accuracy_at_infinite_width(kept, expected, problems):
    problem = problems[10]
    learning, attended = sub_network(problem.learning, kept, problem.attended_test)
    factor = OrderParameters.gp_limit(learning.architecture).factors[0]
    mean = np.asarray(predict(Predictor.for_examples(learning, attended), factor)[0])
    assert accuracy(mean, problem.labels_test) == expected
