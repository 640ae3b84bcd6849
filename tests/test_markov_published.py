"""The published curve comes out of the recipe that ships with the published data."""

import numpy as np
import pytest

from runs.studies.overlap_cuts.mathematics import diagonal_only
from sampler.data.make import build_task
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from tests import ROOT
from tests.reference_data import load_reference
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


@pytest.mark.parametrize("width", [10, 100, 1000])
def test_order_parameters(width, saddles):
    stored = load_reference()
    lower, upper, readout = map(np.asarray, saddles[width].order_parameters.matrices)
    for received, name in ((lower, "U_1"), (upper, "U_2"), (readout[0, 0], "U_a")):
        np.testing.assert_allclose(received, stored[f"N{width}_{name}"], rtol=0, atol=1e-6)


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


@pytest.mark.parametrize(("width", "loss", "error"), [(30, 1.0, 0.35), (50, 1.1, 0.36)])
def test_without_off_diagonal_elements_accuracy_is_lost(width, loss, error, problems, saddles):
    """In points, paired over test sequences: small, but three standard errors."""
    problem, factor = problems[width], saddles[width].order_parameters.factors[0]
    full, cut = (
        np.sign(mean_prediction(problem, one)) == problem.labels_test
        for one in (factor, diagonal_only(factor))
    )
    difference = 100 * (full.astype(float) - cut)
    received = difference.std(ddof=1) / np.sqrt(difference.size)
    print(f"\nN = {width}: {difference.mean():.2f} ± {received:.3f} points")
    np.testing.assert_allclose(difference.mean(), loss, rtol=0, atol=1e-9)
    np.testing.assert_allclose(received, error, rtol=0, atol=0.005)
