"""What all other examples predict of one, against refits without it."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import mpmath
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
    Combinations,
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
    labels, densities = np.asarray(problem.labels), []
    for example in range(len(labels)):
        out = np.zeros(len(labels), bool)
        out[example] = True
        rows = np.repeat(out, outputs)
        weights = np.linalg.solve(noisy[~rows][:, ~rows], noisy[~rows][:, rows])
        mean = labels[~out].reshape(-1) @ weights
        covariance = noisy[rows][:, rows] - noisy[rows][:, ~rows] @ weights
        densities.append(multivariate_normal(mean, covariance).logpdf(labels[example]))
    return np.array(densities)


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_left_out_examples_are_predicted_as_by_a_refit(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng, examples=9)
    overlap = random_order_parameters(problem.architecture, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    received = left_out_log_density(problem, factor)
    np.testing.assert_allclose(received, refitted(problem, overlap), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("at_a_time", [3, 1000])
def test_examples_that_rows_stand_for_are_predicted_as_by_a_refit(at_a_time, rng, monkeypatch):
    arch = ARCHITECTURES["one layer, two outputs"]
    problem = random_problem(arch, rng, examples=arch.path_count * arch.channels + 7)
    overlap = random_order_parameters(arch, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    rows = compress(problem)
    assert len(rows.labels) < len(problem.labels)
    monkeypatch.setattr(module, "examples_at_a_time", lambda *_: at_a_time)
    examples = Combinations.of(rows, problem.attended, problem.labels)
    expected = refitted(problem, overlap)
    # By NumPy, and as of a draw, which JAX compiles.
    by_numpy = partial(left_out_log_density, rows)
    for function in (by_numpy, jax.jit(by_numpy)):
        received = function(factor, examples)
        np.testing.assert_allclose(received, expected, rtol=1e-10, atol=1e-10)


def refitted_with_many_digits(problem, overlap):
    """The same of one output, every number with 60 digits: K is singular but for a tiny 𝒯."""
    with mpmath.workdps(60):
        features = mpmath.matrix(np.asarray(problem.attended).reshape(len(problem.labels), -1))
        arch = problem.architecture
        weights = np.kron(overlap, np.eye(arch.channels))
        scale = mpmath.mpf(arch.variances[0]) / (arch.channels * arch.path_count)
        kernel = scale * features * mpmath.matrix(weights) * features.T
        inverse = (kernel + problem.temperature * mpmath.eye(kernel.rows)) ** -1
        alpha = inverse * mpmath.matrix(np.asarray(problem.labels))
        return np.array(
            [
                float(mpmath.log(c / (2 * mpmath.pi)) / 2 - alpha[i] ** 2 / c / 2)
                for i in range(kernel.rows)
                for c in [inverse[i, i]]
            ]
        )


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("temperature", [1e-3, 1e-13])
def test_digits_are_kept_where_the_temperature_is_tiny(temperature, compressed, rng):
    """𝒯 far below K, which is singular: labels of training examples are predicted to 13 digits.

    Of one example the others say nothing: no other has a part in its direction.
    """
    arch = ARCHITECTURES["one head"]
    problem = random_problem(arch, rng, examples=6, temperature=temperature)
    attended = np.asarray(problem.attended).copy()
    attended[1] = attended[0]  # twice the same
    attended[:5, :, 2], attended[5, :, :2] = 0.0, 0.0
    problem = replace(problem, attended=jnp.asarray(attended))
    overlap = np.array([[0.8]])
    learning, examples = problem, None
    if compressed:
        learning = compress(problem)
        examples = Combinations.of(learning, problem.attended, problem.labels)
    received = left_out_log_density(learning, jnp.sqrt(overlap), examples)
    expected = refitted_with_many_digits(problem, overlap)
    assert np.isfinite(received).all()
    # K + 𝒯 of all examples loses as many digits as it has of condition.
    digits = 1e-12 if compressed else max(1e-15 / temperature, 1e-12)
    np.testing.assert_allclose(received, expected, rtol=digits)


@pytest.mark.slow
def test_a_saddle_point_moves_as_if_the_example_had_not_been_there(rng):
    """Against saddle points solved without each example; what is left is of second order."""
    arch = Architecture((2,), (30, 30), (1.0, 1.0, 1.0), channels=4)
    problem = random_problem(arch, rng, examples=40, temperature=0.3)
    saddle = solve_saddle_point(problem)
    at_fixed = left_out_log_density(problem, saddle.order_parameters.factors[0])
    moved = LeftOutAtSaddle.of(problem, saddle).log_density()
    by_refits = []
    for example in range(40):
        kept = np.arange(40) != example
        rest = replace(problem, attended=problem.attended[kept], labels=problem.labels[kept])
        without = solve_saddle_point(rest)
        factor, test = without.order_parameters.factors[0], problem.attended[example : example + 1]
        mean, variance = predict(Predictor.for_examples(rest, test), factor)
        spread = float(variance[0, 0] + problem.temperature) ** 0.5
        by_refits.append(norm.logpdf(float(problem.labels[example, 0]), float(mean[0, 0]), spread))
    first = np.asarray(at_fixed) - by_refits
    second = moved - np.array(by_refits)
    # An error of first order is positive: labels are predicted by a U_1 that knows them.
    assert (first > 0).all()
    assert np.abs(second).max() < first.max() / 5
    assert abs(second.sum()) < first.sum() / 10
