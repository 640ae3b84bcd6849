"""The table of the theory: infinite width, sub-networks and scores, by dense algebra."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
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
from sampler.problem import Problem
from tests.assertions import assert_equal_to_rounding
from tests.dense import dense_kernel
from tests.problems import ARCHITECTURES, random_network_data
from tests.small import signs, small_problem
from theory import LearningProblem, OrderParameters, solve_saddle_point
from theory.infinite_width import TOLERANCE

# Heads of each layer of a sub-network, and the paths that lead through them alone: with two heads a
# layer path 2 h_1 + h_2 is that of head h_1 of the first layer and h_2 of the second.
KEPT = {((0,), (0, 1)): [0, 1], ((1,), (0,)): [2], ((0, 1), (1,)): [1, 3]}


def test_a_sub_network_predicts_by_the_kernel_of_its_own_paths(rng):
    """At infinite width, of its paths alone, divided by their number: accuracy and scores."""
    problem = replace(
        small_problem(rng, labels_test=signs(rng)),
        attended_validation=jnp.asarray(rng.standard_normal((9, 4, 6))),
        labels_validation=rng.choice([-1.0, 1.0], (9, 1)),
    )
    failed = solve_saddle_point(problem.learning, max_steps=1)
    table = theory_table(problem, failed, tuple(KEPT))
    learning, scale = problem.learning, np.prod(problem.architecture.variances[1:])
    for place, paths in enumerate(KEPT.values()):
        heads = replace(learning.architecture, heads=(1, len(paths)))
        smaller = replace(learning, architecture=heads, attended=learning.attended[:, paths])
        overlap = scale * np.eye(len(paths))
        mean, _ = dense_predictor(smaller, problem.attended_test[:, paths], overlap)
        share = np.mean((mean > 0) == (problem.labels_test > 0))
        assert float(table["accuracy_of_sub_network"][place]) == share
        moments = dense_predictor(smaller, problem.attended_validation[:, paths], overlap)
        scores = plain_scores(*moments, problem.labels_validation, learning.temperature)
        for score, expected in scores.items():
            received = float(table[f"validation_{score}_of_sub_network"][place])
            assert received == pytest.approx(expected, rel=1e-10), score


def test_a_search_that_failed_leaves_no_prediction(rng):
    problem = small_problem(rng, labels_test=signs(rng))
    failed = solve_saddle_point(problem.learning, max_steps=1)
    assert not failed.converged
    table = theory_table(problem, failed, ())
    assert table.attrs["converged"] == 0
    of_infinite_width = ("predictor_mean", "predictor_variance", "accuracy", "log_evidence")
    for name in ("order_parameter", "head_score", *of_infinite_width):
        assert predicted(table, name, LEADING) is None, name
    for name in of_infinite_width:
        assert np.isfinite(predicted(table, name, INFINITE)).all(), name


# --- scores on the validation split: against dense linear algebra, and their Monte Carlo errors


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
    arch, count = learning.architecture, learning.labels.size
    everything = np.concatenate([learning.attended, attended])
    kernel = dense_kernel(everything, everything, np.asarray(overlap), arch)
    noisy = kernel[:count, :count] + learning.temperature * np.eye(count)
    gain = kernel[count:, :count] @ np.linalg.inv(noisy)
    mean = gain @ np.asarray(learning.labels).ravel()
    covariance = kernel[count:, count:] - gain @ kernel[:count, count:]
    return mean.reshape(-1, arch.outputs), np.diag(covariance).reshape(-1, arch.outputs)


def plain_scores(mean, variance, labels, temperature=TEMPERATURE):
    """The three scores, example by example and output by output."""
    density = scipy.stats.norm.logpdf(labels, mean, np.sqrt(variance + temperature))
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


def sampled_scores_of(table):
    return validation_scores(Draws(xr.DataTree.from_dict({"validation": table})))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_sampled", [False, True])
def test_sampled_scores_follow_the_law_of_total_variance(name, is_sampled, rng, monkeypatch):
    """Of evenly spaced draws, each at its own temperature where this is sampled."""
    monkeypatch.setattr(validation, "MOST_DRAWS", 2 * 11)
    problem = problem_of(name, rng)
    drawn = {"order_parameter": random_overlaps(problem.architecture, rng, chains=2, draws=30)}
    noise = np.full((2, 30), TEMPERATURE)
    if is_sampled:
        drawn["temperature"] = noise = TEMPERATURE * np.exp(rng.standard_normal((2, 30)))
    table = validation_draws(problem, drawn)
    chosen = table["draw"].values
    assert len(chosen) == 11
    given = [
        dense_predictor(
            replace(problem.learning, temperature=noise[chain, draw]),
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
    received = sampled_scores_of(table)
    assert set(received) == set(expected)
    for score, value in expected.items():
        assert_equal_to_rounding(float(received[score].value), value, **ROUNDING, what=score)


def test_labels_that_are_no_classes_have_no_accuracy(rng):
    full = problem_of("one head", rng)
    problem = replace(full, labels_validation=rng.standard_normal((VALIDATION, 1)))
    found = sampled_scores_of(validation_draws(problem, {"order_parameter": np.ones((2, 5, 1, 1))}))
    assert set(found) == {"log_predictive_density", "squared_error"}


# --- infinite width at its own temperature: the table of the theory, and the comparison


# Columns that infinite width has at both temperatures.
BOTH = ("predictor_mean", "predictor_variance", "accuracy", "log_evidence", "elpd")
VALIDATED = tuple(f"validation_{s}" for s in ("log_predictive_density", "squared_error"))


def table_of(problem):
    return theory_table(problem, solve_saddle_point(problem.learning, max_steps=1), ())


def without_validation(problem):
    return replace(problem, attended_validation=None, labels_validation=None)


@pytest.mark.slow
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
    received = sampler.solve(recipe)
    monkeypatch.setattr(sampler.problem, "is_folded", lambda *_: False)
    expected = sampler.solve(recipe)
    assert set(received) == set(expected)
    rows = received.sizes["component"]
    assert rows < expected.sizes["component"] == 60
    assert np.isnan(expected["kernel_alignment"][..., rows:]).all()
    expected = expected.isel(component=slice(rows))
    for name, values in expected.items():
        if values.dtype.kind not in "fiu":
            np.testing.assert_array_equal(received[name], values, err_msg=name)
            continue
        for who in expected["predictor"].values if "predictor" in values.dims else ("",):
            one, other = (
                table[name].sel(predictor=who) if who else table[name]
                for table in (received, expected)
            )
            # Two minima, each with |gradient| ≤ 1e-10 where the smallest eigenvalue of the Hessian
            # is above 1; what follows from them magnifies their distance less than a thousand
            # times. The search for a temperature ends within its tolerance of ln 𝒯.
            limit = 10 * TOLERANCE if who == TUNED else 1e-7
            np.testing.assert_allclose(one, other, rtol=limit, atol=limit, err_msg=name)
