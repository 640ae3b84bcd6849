"""Scores on the validation split: against dense linear algebra, and their Monte Carlo errors."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import xarray as xr

from sampler.analysis.draws import Draws
from sampler.analysis.predictors import INFINITE, LEADING, predicted
from sampler.analysis.theory_table import theory_table
from sampler.analysis.validation import validation_draws, validation_scores
from sampler.problem import Problem
from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, random_network_data
from theory import LearningProblem, OrderParameters, solve_saddle_point, sub_network

TRAIN, TEST, VALIDATION, TEMPERATURE = 6, 3, 5, 0.3
# A few solutions with the 18 × 18 training kernel, whose condition number is below a thousand.
ROUNDING = {"operations": 100, "condition": 1000, "scale": 10.0}


def problem_of(name, rng) -> Problem:
    """A small problem whose labels are classes, with a validation split."""
    architecture = ARCHITECTURES[name]
    outputs = architecture.outputs
    examples = TRAIN + TEST + VALIDATION
    attended = random_network_data(architecture, rng, examples=examples).attended
    labels = rng.choice([-1.0, 1.0], (examples, 1))
    if outputs > 1:
        labels = np.eye(outputs)[rng.integers(outputs, size=examples)]
    train, test = slice(0, TRAIN), slice(TRAIN, TRAIN + TEST)
    validation = slice(TRAIN + TEST, examples)
    heads = tuple(tuple(f"{h}" for h in range(count)) for count in architecture.heads)
    return Problem(
        LearningProblem(architecture, attended[train], jnp.asarray(labels[train]), TEMPERATURE),
        attended[test],
        labels[test],
        tuple(f"path {i}" for i in range(architecture.path_count)),
        heads,
        attended[validation],
        labels[validation],
    )


def dense_predictor(learning, attended, overlap):
    """Mean and variance [example, output] at U_1, all kernels written out."""
    arch = learning.architecture
    shape = (arch.path_count, arch.outputs)
    blocks = np.asarray(overlap).reshape(*shape, *shape)
    everything = np.concatenate([learning.attended, attended])
    features = everything * np.sqrt(arch.variances[0] / (arch.channels * arch.path_count))
    kernel = np.einsum("xpi,pcqd,yqi->xcyd", features, blocks, features)
    size, count = len(everything) * arch.outputs, learning.labels.size
    kernel = kernel.reshape(size, size)
    noisy = kernel[:count, :count] + learning.temperature * np.eye(count)
    gain = kernel[count:, :count] @ np.linalg.inv(noisy)
    mean = gain @ np.asarray(learning.labels).ravel()
    covariance = kernel[count:, count:] - gain @ kernel[:count, count:]
    return mean.reshape(-1, arch.outputs), np.diag(covariance).reshape(-1, arch.outputs)


def plain_scores(mean, variance, labels):
    """The three scores, example by example and output by output."""
    density = scipy.stats.norm.logpdf(labels, mean, np.sqrt(variance + TEMPERATURE))
    right = mean.argmax(1) == labels.argmax(1)
    if labels.shape[1] == 1:
        right = np.sign(mean) == labels
    return {
        "log_predictive_density": density.mean(),
        "accuracy": right.mean(),
        "squared_error": ((labels - mean) ** 2).mean(),
    }


def random_overlaps(architecture, rng, chains, draws):
    """Draws of a U_1 of rank one less than full [chain, draw, row, row]."""
    rows = architecture.order_parameter_sizes[0]
    factors = rng.standard_normal((chains, draws, rows, max(rows - 1, 1)))
    return factors @ np.swapaxes(factors, -1, -2) / rows


NAMES = ["one head", "two layers, three outputs", "narrow"]


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_theory_and_gp_scores_are_those_of_dense_algebra(name, rng):
    problem = problem_of(name, rng)
    kept = tuple((0,) for _ in problem.architecture.heads)
    saddle_point = solve_saddle_point(problem.learning)
    assert saddle_point.converged, saddle_point.explain()
    table = theory_table(problem, saddle_point, (kept,))
    limit = OrderParameters.gp_limit(problem.architecture).matrices[0]
    smaller, attended = sub_network(problem.learning, kept, problem.attended_validation)
    only = OrderParameters.gp_limit(smaller.architecture).matrices[0]
    for who, learning, inputs, overlap in (
        (LEADING, problem.learning, problem.attended_validation,
         predicted(table, "order_parameter")),
        (INFINITE, problem.learning, problem.attended_validation, limit),
        ("sub-network", smaller, attended, only),
    ):  # fmt: skip
        mean, variance = dense_predictor(learning, inputs, np.asarray(overlap))
        for score, expected in plain_scores(mean, variance, problem.labels_validation).items():
            received = predicted(table, f"validation_{score}", who)
            if who == "sub-network":
                received = table[f"validation_{score}_of_sub_network"].values.squeeze()
            received = float(received)
            assert_equal_to_rounding(received, expected, **ROUNDING, what=f"{score} {who}")


def sampled_scores_of(problem, overlaps):
    table = validation_draws(problem, {"order_parameter": overlaps})
    return validation_scores(Draws(xr.DataTree.from_dict({"validation": table})))


@pytest.mark.parametrize("name", NAMES)
def test_sampled_scores_follow_the_law_of_total_variance(name, rng):
    problem = problem_of(name, rng)
    overlaps = random_overlaps(problem.architecture, rng, chains=2, draws=30)
    received = sampled_scores_of(problem, overlaps)
    given = [
        dense_predictor(problem.learning, problem.attended_validation, one)
        for one in overlaps.reshape(-1, *overlaps.shape[2:])
    ]
    means, variances = map(np.array, zip(*given, strict=True))
    total = variances.mean(axis=0) + means.var(axis=0, ddof=1)
    expected = plain_scores(means.mean(axis=0), total, problem.labels_validation)
    assert set(received) == set(expected)
    for score, value in expected.items():
        assert_equal_to_rounding(float(received[score].value), value, **ROUNDING, what=score)


def test_labels_that_are_no_classes_have_no_accuracy(rng):
    full = problem_of("one head", rng)
    problem = Problem(
        full.learning, full.attended_test, full.labels_test, full.path_names, full.head_names,
        full.attended_validation, rng.standard_normal((VALIDATION, 1)),
    )  # fmt: skip
    found = sampled_scores_of(problem, np.ones((2, 5, 1, 1)))
    assert set(found) == {"log_predictive_density", "squared_error"}
