"""What all other examples predict of one, against refits without it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import theory.leave_one_out as module
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    random_order_parameters,
    random_problem,
)
from theory import (
    Architecture,
    Features,
    LeftOutAtSaddle,
    Predictor,
    compress,
    left_out_log_density,
    predict,
    solve_saddle_point,
)


def refitted(problem, overlap):
    """ln p(y_i | y_{−i}, U_1) of each example: the kernel machine is fitted without it."""
    outputs = problem.architecture.outputs
    form = Features(problem.features, None)
    kernel = np.asarray(form.kernel(jnp.asarray(np.linalg.cholesky(overlap))))
    noisy = kernel + problem.temperature * np.eye(len(kernel))
    labels, found = np.asarray(problem.labels), []
    for example in range(len(labels)):
        out = np.zeros(len(labels), bool)
        out[example] = True
        rows = np.repeat(out, outputs)
        weights = np.linalg.solve(noisy[~rows][:, ~rows], noisy[~rows][:, rows])
        mean = labels[~out].reshape(-1) @ weights
        covariance = noisy[rows][:, rows] - noisy[rows][:, ~rows] @ weights
        found.append(multivariate_normal(mean, covariance).logpdf(labels[example]))
    return np.array(found)


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_left_out_examples_are_predicted_as_by_a_refit(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng, examples=9)
    overlap = random_order_parameters(problem.architecture, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    received = left_out_log_density(problem, factor)
    np.testing.assert_allclose(received, refitted(problem, overlap), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["one head", "one layer, two outputs"])
@pytest.mark.parametrize("at_a_time", [3, 1000])
def test_examples_that_rows_stand_for_are_predicted_as_by_a_refit(
    name, at_a_time, rng, monkeypatch
):
    arch = ARCHITECTURES[name]
    problem = random_problem(arch, rng, examples=arch.path_count * arch.channels + 7)
    overlap = random_order_parameters(arch, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    rows = compress(problem)
    assert len(rows.labels) < len(problem.labels)
    monkeypatch.setattr(module, "examples_at_a_time", lambda *_: at_a_time)
    module._of_examples.clear_cache()
    received = left_out_log_density(rows, factor, problem.attended, problem.labels)
    np.testing.assert_allclose(received, refitted(problem, overlap), rtol=1e-10, atol=1e-10)


@pytest.mark.heavy
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", ["one layer", "one layer, two outputs"])
def test_slopes_in_the_order_parameter_are_those_of_jax(name, compressed, rng):
    arch = ARCHITECTURES[name]
    problem = random_problem(arch, rng, examples=arch.path_count * arch.channels + 7)
    factor = jnp.asarray(np.linalg.cholesky(random_order_parameters(arch, rng)[0]))
    learning = compress(problem) if compressed else problem
    features = problem.features if compressed else None

    def densities(factor):
        return left_out_log_density(learning, factor, problem.attended, problem.labels)

    arguments = learning.energy, learning.features, factor, features, problem.labels
    values, slopes = module._with_slope(*arguments)
    np.testing.assert_allclose(values, densities(factor), rtol=1e-9)
    # ∂/∂F = 2 (∂/∂U) F
    expected = jax.jacfwd(densities)(factor)
    np.testing.assert_allclose(2.0 * slopes @ factor[None], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.heavy
def test_a_saddle_point_moves_as_if_the_example_had_not_been_there(rng):
    """Against saddle points solved without each example; what is left is of second order."""
    arch = Architecture((2,), (30, 30), (1.0, 1.0, 1.0), channels=4)
    problem = random_problem(arch, rng, examples=40, temperature=0.3)
    saddle = solve_saddle_point(problem)
    at_fixed = left_out_log_density(
        problem, saddle.order_parameters.factors[0], problem.attended, problem.labels
    )
    moved = LeftOutAtSaddle.of(problem, saddle).log_density(problem.attended, problem.labels)
    refitted = []
    for example in range(40):
        kept = np.arange(40) != example
        rest = replace(problem, attended=problem.attended[kept], labels=problem.labels[kept])
        found = solve_saddle_point(rest)
        factor, test = found.order_parameters.factors[0], problem.attended[example : example + 1]
        mean, variance = predict(Predictor.for_examples(rest, test), factor)
        spread = float(variance[0, 0] + problem.temperature) ** 0.5
        refitted.append(norm.logpdf(float(problem.labels[example, 0]), float(mean[0, 0]), spread))
    first = np.asarray(at_fixed) - refitted
    second = moved - np.array(refitted)
    # An error of first order is positive: labels are predicted by a U_1 that knows them.
    assert (first > 0).all()
    assert np.abs(second).max() < first.max() / 5
    assert abs(second.sum()) < first.sum() / 10
