"""The table of the theory: predictions and scores of every predictor, by dense algebra."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import sampler
import sampler.problem
from sampler.analysis import validation
from sampler.analysis.draws import Draws
from sampler.analysis.predictors import (
    BY_EVIDENCE,
    BY_VALIDATION,
    INFINITE,
    LEADING,
    TUNED,
    number,
    predicted,
)
from sampler.analysis.theory_table import TunedInfiniteWidth, theory_table
from sampler.analysis.validation import validation_draws, validation_scores
from sampler.attention.similarity import HeadDistances
from sampler.data.make import build_task
from sampler.problem import Problem
from tests.assertions import assert_equal_to_rounding
from tests.dense import dense_kernel
from tests.problems import ARCHITECTURES, random_network_data
from tests.told.expected import scores_by_example
from theory import LearningProblem, OrderParameters, solve_saddle_point
from theory.infinite_width import TOLERANCE

NAMES = ["one head", "two layers, three outputs", "narrow"]
TRAIN, TEST, VALIDATION, TEMPERATURE = 6, 3, 5, 0.3
# A few solutions with the 18 × 18 training kernel, whose condition number is below a thousand.
ROUNDING = {"operations": 100, "condition": 1000, "scale": 10.0}


def problem_of(name, rng) -> Problem:
    """A small problem whose labels are classes, with a validation split."""
    architecture, examples = ARCHITECTURES[name], TRAIN + TEST + VALIDATION
    attended = random_network_data(architecture, rng, examples=examples).attended
    labels = rng.choice([-1.0, 1.0], (examples, 1))
    if architecture.outputs > 1:
        labels = np.eye(architecture.outputs)[rng.integers(architecture.outputs, size=examples)]
    splits = (slice(0, TRAIN), slice(TRAIN, TRAIN + TEST), slice(TRAIN + TEST, examples))
    (train, y), test, judged = ((attended[split], labels[split]) for split in splits)
    learning = LearningProblem(architecture, train, jnp.asarray(y), TEMPERATURE)
    paths = tuple(f"path {place}" for place in range(architecture.path_count))
    heads = tuple(tuple(f"{h}" for h in range(count)) for count in architecture.heads)
    return Problem(learning, *test, paths, heads, *judged)


def without_validation(problem: Problem) -> Problem:
    return replace(problem, attended_validation=None, labels_validation=None)


def at_temperature(problem: Problem, temperature: float) -> Problem:
    return replace(problem, learning=replace(problem.learning, temperature=temperature))


def dense_predictor(learning, attended, overlap):
    """Mean and variance [example, output] at U_1, all kernels written out."""
    arch, count = learning.architecture, learning.labels.size
    everything = np.concatenate([learning.attended, attended])
    kernel = dense_kernel(everything, everything, np.asarray(overlap), arch)
    noisy = kernel[:count, :count] + learning.temperature * np.eye(count)
    gain = kernel[count:, :count] @ np.linalg.inv(noisy)
    mean = gain @ np.asarray(learning.labels).ravel()
    covariance = kernel[count:, count:] - gain @ kernel[:count, count:]
    return mean.reshape(-1, arch.outputs), np.diag(covariance).reshape(-1, arch.outputs)


def plain_scores(mean, variance, labels, temperature=TEMPERATURE):
    scores = scores_by_example(mean, variance + temperature, labels)
    return {name: values.mean() for name, values in scores.items()}


def table_of(problem: Problem, subnetworks=()) -> xr.Dataset:
    """The table where the search for a saddle point failed."""
    failed = solve_saddle_point(problem.learning, max_steps=1)
    assert not failed.converged
    return theory_table(problem, failed, subnetworks)


def test_a_sub_network_predicts_by_the_kernel_of_its_own_paths(rng):
    """At infinite width, of its paths alone, divided by their number: accuracy and scores."""
    problem = problem_of("two layers", rng)
    learning, scale = problem.learning, np.prod(problem.architecture.variances[1:])
    # Heads of each layer, and the paths through them alone: 3 h_1 + h_2 of two and three heads.
    kept = {((0,), (0, 1, 2)): [0, 1, 2], ((1,), (0,)): [3], ((0, 1), (2,)): [2, 5]}
    table = table_of(problem, tuple(kept))
    for place, paths in enumerate(kept.values()):
        heads = replace(learning.architecture, heads=(1, len(paths)))
        smaller = replace(learning, architecture=heads, attended=learning.attended[:, paths])
        overlap = scale * np.eye(len(paths))
        mean, _ = dense_predictor(smaller, problem.attended_test[:, paths], overlap)
        share = np.mean((mean > 0) == (problem.labels_test > 0))
        assert float(table["accuracy_of_sub_network"][place]) == share
        moments = dense_predictor(smaller, problem.attended_validation[:, paths], overlap)
        for score, expected in plain_scores(*moments, problem.labels_validation).items():
            received = float(table[f"validation_{score}_of_sub_network"][place])
            assert received == pytest.approx(expected, rel=1e-10), score


def test_a_search_that_failed_leaves_no_prediction(rng):
    table = table_of(problem_of("one head", rng))
    assert table.attrs["converged"] == 0
    of_infinite_width = ("predictor_mean", "predictor_variance", "accuracy", "log_evidence")
    for name in ("order_parameter", "head_score", *of_infinite_width):
        assert predicted(table, name, LEADING) is None, name
    for name in of_infinite_width:
        assert np.isfinite(predicted(table, name, INFINITE)).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_theory_and_gp_scores_are_those_of_dense_algebra(name, rng):
    problem = problem_of(name, rng)
    saddle_point = solve_saddle_point(problem.learning)
    assert saddle_point.converged, saddle_point.explain()
    table = theory_table(problem, saddle_point, ())
    limit = OrderParameters.gp_limit(problem.architecture).matrices[0]
    for who, overlap in ((LEADING, predicted(table, "order_parameter")), (INFINITE, limit)):
        mean, variance = dense_predictor(problem.learning, problem.attended_validation, overlap)
        for score, expected in plain_scores(mean, variance, problem.labels_validation).items():
            received = float(predicted(table, f"validation_{score}", who))
            assert_equal_to_rounding(received, expected, **ROUNDING, what=f"{score} {who}")


@pytest.mark.parametrize("name", NAMES)
def test_predictions_at_an_order_parameter_are_those_of_dense_algebra(name, rng):
    """For a theory of one's own, in the shapes that it has them."""
    problem = problem_of(name, rng)
    rows, outputs = problem.architecture.order_parameter_sizes[0], problem.architecture.outputs
    factor = rng.standard_normal((rows, rows))
    overlap = factor @ factor.T / rows
    received = problem.predictions_at(overlap)
    moments = dense_predictor(problem.learning, problem.attended_test, overlap)
    shape = (TEST,) if outputs == 1 else (TEST, outputs)
    for moment, expected in zip(("mean", "variance"), moments, strict=True):
        found = received[f"predictor_{moment}"]
        assert_equal_to_rounding(found, expected.reshape(shape), **ROUNDING, what=moment)
        assert found.shape == shape


# --- scores of draws on the validation split


def scores_of_draws(table: xr.Dataset):
    return validation_scores(Draws(xr.DataTree.from_dict({"validation": table})))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_sampled", [False, True])
def test_sampled_scores_follow_the_law_of_total_variance(name, is_sampled, rng, monkeypatch):
    """Of evenly spaced draws, each at its own temperature where this is sampled."""
    monkeypatch.setattr(validation, "MOST_DRAWS", 2 * 11)
    problem = problem_of(name, rng)
    rows = problem.architecture.order_parameter_sizes[0]
    factors = rng.standard_normal((2, 30, rows, max(rows - 1, 1)))  # of a rank less than full
    drawn = {"order_parameter": factors @ np.swapaxes(factors, -1, -2) / rows}
    noise = np.full((2, 30), TEMPERATURE)
    if is_sampled:
        drawn["temperature"] = noise = TEMPERATURE * np.exp(rng.standard_normal((2, 30)))
    table = validation_draws(problem, drawn)
    chosen = table["draw"].values
    assert len(chosen) == 11
    given = [
        dense_predictor(
            at_temperature(problem, noise[chain, draw]).learning,
            problem.attended_validation,
            drawn["order_parameter"][chain, draw],
        )
        for chain in range(2)
        for draw in chosen
    ]
    means, variances = map(np.array, zip(*given, strict=True))
    total = variances.mean(axis=0) + means.var(axis=0, ddof=1)
    labels, temperature = problem.labels_validation, noise[:, chosen].mean()
    expected = plain_scores(means.mean(axis=0), total, labels, temperature)
    received = scores_of_draws(table)
    assert set(received) == set(expected)
    for score, value in expected.items():
        assert_equal_to_rounding(float(received[score].value), value, **ROUNDING, what=score)


def test_labels_that_are_no_classes_have_no_accuracy(rng):
    labels = rng.standard_normal((VALIDATION, 1))
    problem = replace(problem_of("one head", rng), labels_validation=labels)
    table = validation_draws(problem, {"order_parameter": np.ones((2, 5, 1, 1))})
    assert set(scores_of_draws(table)) == {"log_predictive_density", "squared_error"}


# --- infinite width at a temperature of its own


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one head", "two layers, three outputs"])
@pytest.mark.parametrize("validated", [True, False])
def test_it_is_infinite_width_of_a_problem_at_that_temperature(name, validated, rng):
    """Solved anew there; and among many temperatures none is better."""
    full = problem_of(name, rng)
    problem = full if validated else without_validation(full)
    table = table_of(problem)
    temperature = number(table, "temperature", TUNED)
    assert table.attrs["infinite_tuned_by"] == (BY_VALIDATION if validated else BY_EVIDENCE)
    there = table_of(at_temperature(problem, temperature))
    columns = ["predictor_mean", "predictor_variance", "accuracy", "log_evidence", "elpd"]
    columns += ["validation_log_predictive_density", "validation_squared_error"] * validated
    for column in columns:
        expected, received = (
            one[column].sel(predictor=who) for one, who in ((there, INFINITE), (table, TUNED))
        )
        assert received.dims == expected.dims
        np.testing.assert_allclose(received, expected, rtol=1e-10, err_msg=column)
    score = "validation_log_predictive_density" if validated else "log_evidence"
    best = number(there, score, INFINITE)
    for factor in (1e-3, 0.1, 0.5, 0.98, 1.02, 2.0, 10.0, 1e3):
        other = table_of(at_temperature(problem, factor * temperature))
        assert number(other, score, INFINITE) < best


def test_an_end_of_the_range_is_said(rng):
    """Labels that are all 0 have the larger a density the less noise there is."""
    problem = without_validation(problem_of("one head", rng))
    zero = replace(problem.learning, labels=0.0 * problem.learning.labels)
    assert TunedInfiniteWidth.of(replace(problem, learning=zero)).bound == "lowest"


@pytest.mark.slow
def test_the_table_is_the_same_where_rows_stand_for_the_examples(monkeypatch):
    """Of 60 examples of twelve features; a kernel has as many components as rows."""
    recipe = sampler.Recipe(
        task=sampler.MarkovChain(
            examples_train=60, examples_test=12, examples_validation=10, tokens=4, features=6
        ),
        attention={"heads": [["good", "uniform"]]},
        network={"widths": 9},
        posterior={"temperature": 0.3},
        theory={"subnetworks": [[[0]]]},
    )
    received, train = sampler.solve(recipe), build_task(recipe).train
    distances = HeadDistances.of(train.attention, train.inputs)
    for what, (mean, deviation) in vars(distances).items():
        assert float(received[f"head_distance_{what}"]) == mean
        assert float(received[f"head_distance_{what}_deviation"]) == deviation
    monkeypatch.setattr(sampler.problem, "is_folded", lambda *_: False)
    expected = sampler.solve(recipe)
    rows = received.sizes["component"]
    assert rows < expected.sizes["component"] == 60
    assert np.isnan(expected["kernel_alignment"][..., rows:]).all()
    expected = expected.isel(component=slice(rows))
    # Two minima, each with |gradient| ≤ 1e-10 where the smallest eigenvalue of the Hessian is above
    # 1; what follows from them magnifies their distance less than a thousand times. The search for
    # a temperature ends within its tolerance of ln 𝒯.
    others = [who for who in expected["predictor"].values if who != TUNED]
    for chosen, limit in ((others, 1e-7), ([TUNED], 10 * TOLERANCE)):
        one, other = (table.sel(predictor=chosen) for table in (received, expected))
        xr.testing.assert_allclose(one, other, rtol=limit, atol=limit)
