"""Slow: recipes of `runs` show the effect that they are there to show."""

import numpy as np
import pytest

from sampler.problem import build_problem
from sampler.recipes.recipe import load_recipe
from sampler.tasks.make import build_task
from tests import ROOT
from tests.problems import all_but
from theory import (
    Architecture,
    LearningProblem,
    OrderParameters,
    Predictor,
    predict,
    solve_saddle_point,
)
from theory.observables import accuracy

pytestmark = pytest.mark.slow

RUNS = ROOT / "runs"
SEEDS = range(6)
# Accuracy gained over infinite width at N = 10 by each recipe's own heads: mean over the data of
# twelve seeds, 6 to 17, and its standard error.
GAINS = {"markov_two_paths": (0.124, 0.008), "markov_four_paths": (0.114, 0.006)}


def recipe_problem(name, *overrides):
    recipe = load_recipe(RUNS / f"{name}.toml", [*overrides, "sweep={}"])
    return build_problem(recipe, build_task(recipe))


def gp_predictor(problem):
    """Mean prediction and accuracy at infinite width."""
    predictor = Predictor.for_examples(problem.learning, problem.attended_test)
    limit = OrderParameters.gp_limit(problem.architecture)
    mean = np.asarray(predict(predictor, limit.factors[0])[0])
    return mean, accuracy(mean, problem.labels_test)


def at_width(problem, width):
    """Mean prediction, accuracy and U_1 of the saddle point at another width."""
    old = problem.architecture
    arch = Architecture.uniform(old.heads, width, old.channels)
    learning = LearningProblem(
        arch, problem.learning.attended, problem.learning.labels, problem.learning.temperature
    )
    solved = solve_saddle_point(learning)
    assert solved.converged, solved.explain()
    predictor = Predictor.for_examples(learning, problem.attended_test)
    mean = np.asarray(predict(predictor, solved.order_parameters.factors[0])[0])
    overlap = np.asarray(solved.order_parameters.matrices[0])
    return mean, accuracy(mean, problem.labels_test), overlap


@pytest.mark.parametrize("name", GAINS)
def test_finite_width_beats_infinite_width_and_falls_towards_it(name):
    problem = recipe_problem(name)
    assert problem.labels_test.shape == (1000, 1)
    gp_mean, gp_accuracy = gp_predictor(problem)
    widths = (10, 100, 1000, 10_000)
    solved = {width: at_width(problem, width) for width in widths}
    accuracies = {width: found[1] for width, found in solved.items()}
    print(f"\n{name}: GP {gp_accuracy:.3f}, theory {accuracies}")
    assert accuracies[10] > gp_accuracy
    assert accuracies[10] > accuracies[100] > accuracies[1000] >= accuracies[10_000]
    distances = [np.sqrt(np.mean((solved[width][0] - gp_mean) ** 2)) for width in widths]
    print(f"root mean square distance of the predictor from GP: {np.round(distances, 4)}")
    assert distances == sorted(distances, reverse=True)
    # at fixed data the distance ends as 1/N: tenfold width divides it by ten, up to O(1/N)
    assert 5 < distances[2] / distances[3] < 11


def test_paths_cooperate_in_the_four_path_network():
    overlap = at_width(recipe_problem("markov_four_paths"), 10)[2]
    print(f"\n{np.round(overlap, 3)}")
    good, adversarial_1, denoising, adversarial_2 = np.diag(overlap)
    assert overlap[0, 2] < 0, "good and denoising path must be anticorrelated"
    assert good > denoising > max(adversarial_1, adversarial_2)


@pytest.mark.parametrize("name", GAINS)
def test_the_mean_gain_over_the_data_is_the_known_one(name):
    """Data of six other seeds than those of the known mean, the recipe's own heads."""
    problems = [recipe_problem(name, f"task.seed={seed}") for seed in SEEDS]
    gains = [at_width(problem, 10)[1] - gp_predictor(problem)[1] for problem in problems]
    mean, error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(len(gains))
    known, known_error = GAINS[name]
    print(f"\n{name}: gain {mean:.3f} ± {error:.3f}, known {known:.3f} ± {known_error:.3f}")
    # The spread over data is known better from twice as many seeds: six have √2 times their error.
    assert abs(mean - known) <= 4.0 * np.hypot(np.sqrt(2.0) * known_error, known_error)


@pytest.mark.parametrize("name", all_but(GAINS, ["markov_two_paths"], pytest.mark.long))
def test_the_gain_does_not_depend_on_the_seed(name):
    """Data and heads of six seeds: the mean gain is many standard errors above zero."""
    gains = []
    for seed in SEEDS:
        problem = recipe_problem(name, f"task.seed={seed}", f"task.head_seed={seed}")
        gp_accuracy = gp_predictor(problem)[1]
        narrow = at_width(problem, 10)[1]
        gains.append(narrow - gp_accuracy)
        print(f"\n{name}, seed {seed}: GP {gp_accuracy:.3f}, N = 10 {narrow:.3f}", end="")
    mean, error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(len(gains))
    print(f"\n{name}: gain {mean:.3f} ± {error:.3f}, {mean / error:.1f} standard errors")
    # 6.9 standard errors of a t distribution with 5 degrees of freedom: p = 5e-4, one-sided
    assert mean > 6.9 * error


def test_averaging_tokens_hides_the_effect():
    last = gp_predictor(recipe_problem("markov_four_paths"))[1]
    averaged = gp_predictor(recipe_problem("markov_four_paths", "network.readout=mean"))[1]
    print(f"\nGP accuracy: last token {last:.3f}, mean over tokens {averaged:.3f}")
    assert averaged > 0.9 > last


def test_accuracy_of_time_series_falls_with_the_width_towards_infinite_width():
    problem = recipe_problem("time_series")
    gp_accuracy = gp_predictor(problem)[1]
    accuracies = [at_width(problem, width)[1] for width in (10, 100, 1000)]
    print(f"\nGP {gp_accuracy:.3f}, N = 10, 100, 1000 {accuracies}")
    assert accuracies[0] > accuracies[1] > accuracies[2] > gp_accuracy
    # The difference on the same test examples has at most the error of independent ones.
    error = np.sqrt(2 * 0.25 / problem.labels_test.size)
    assert accuracies[0] - gp_accuracy > 5 * error


def test_the_gain_does_not_depend_on_the_series():
    """Data of six seeds, the recipe's heads: the mean gain is many standard errors above zero."""
    gains = []
    for seed in SEEDS:
        problem = recipe_problem("time_series", f"task.seed={seed}")
        gains.append(at_width(problem, 10)[1] - gp_predictor(problem)[1])
    mean, error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(len(gains))
    print(f"\ngain {mean:.3f} ± {error:.3f}: {np.round(gains, 3)}")
    # 6.9 standard errors of a t distribution with 5 degrees of freedom: p = 5e-4, one-sided
    assert mean > 6.9 * error
