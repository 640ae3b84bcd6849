"""Infinite width at every temperature, and the temperature that is best for it."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

from tests.assertions import assert_equal_to_rounding
from tests.dense import dense_kernel_of_infinite_width
from tests.problems import ARCHITECTURES, EVERY_ARCHITECTURE, random_network_data, random_problem
from theory import InfiniteWidth, LearningProblem, best_temperature, compress

TEMPERATURES = (1e-3, 0.1, 7.0)


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_evidence_and_moments_are_those_of_scikit_learn(name, rng):
    """Its Gaussian process has the kernel σ_0² … σ_a² Σ_π ξ^π(x)·ξ^π(x')/(D Π).

    Of examples, and of the rows that stand for them.
    """
    problem = random_problem(ARCHITECTURES[name], rng, examples=20)
    arch, labels = problem.architecture, np.asarray(problem.labels)
    test = np.asarray(random_network_data(arch, rng, examples=4).attended)
    flat, of_test = (np.reshape(one, (len(one), -1)) for one in (problem.attended, test))
    scale = np.prod(arch.variances) / (arch.channels * arch.path_count)
    kernel = ConstantKernel(scale, "fixed") * DotProduct(0.0, "fixed")
    for temperature in TEMPERATURES:
        process = GaussianProcessRegressor(kernel, alpha=temperature, optimizer=None)
        mean, deviation = process.fit(flat, labels).predict(of_test, return_std=True)
        evidence = process.log_marginal_likelihood_value_
        noisy = kernel(flat) + temperature * np.eye(20)
        rounding = {"operations": noisy.size, "condition": np.linalg.cond(noisy)}
        for given in (problem, compress(problem)):
            limit = InfiniteWidth.of(given)
            assert_equal_to_rounding(limit.log_evidence(temperature), evidence, **rounding)
            moments = limit.predictor(test)(temperature)
            size = max(np.abs(noisy).max(), np.abs(labels).max())
            for one, other in zip(moments, (mean, deviation**2), strict=True):
                other = np.reshape(other, np.shape(one))
                assert_equal_to_rounding(one, other, scale=size, **rounding)


def best_of_grid(score, lowest, highest):
    """The best of many temperatures, and how far apart their logarithms are."""
    grid = np.linspace(np.log(lowest), np.log(highest), 4001)
    scores = [score(np.exp(at)) for at in grid]
    place = int(np.argmax(scores))
    return np.exp(grid[place]), scores[place], grid[1] - grid[0]


def test_best_temperature_is_that_of_a_fine_grid(rng):
    """Labels with noise of variance 0.3 about a teacher: by the evidence, in between."""
    problem = random_problem(ARCHITECTURES["two layers"], rng, examples=60)
    arch = problem.architecture
    kernel = dense_kernel_of_infinite_width(problem.attended, problem.attended, arch)
    labels = rng.multivariate_normal(np.zeros(60), kernel + 0.3 * np.eye(60))
    problem = LearningProblem(arch, problem.attended, jnp.asarray(labels[:, None]), 0.01)
    limit = InfiniteWidth.of(problem)
    scale = np.mean(labels**2)
    for given in (problem, compress(problem)):
        np.testing.assert_allclose(InfiniteWidth.of(given).mean_square_label, scale, rtol=1e-12)
    expected, score, step = best_of_grid(limit.log_evidence, 1e-6 * scale, 1e3 * scale)
    received = best_temperature(limit.log_evidence, scale, problem.temperature)
    assert abs(np.log(received.temperature / expected)) <= step
    assert received.score >= score
    assert received.score == limit.log_evidence(received.temperature)
    assert received.bound == ""


@pytest.mark.parametrize(
    ("square", "lowest", "ends"),
    [(5.0, 0.0, (5e-6, 5e3)), (5.0, 0.02, (0.02, 5e3)), (0.0, 0.0, (0.3e-6, 0.3e3))],
)
def test_a_score_without_a_maximum_has_its_best_temperature_at_an_end(square, lowest, ends):
    """Of nine decades about the mean square label; without any label, about the temperature 0.3."""
    for sign, end, bound in zip((-1.0, 1.0), ends, ("lowest", "highest"), strict=True):
        received = best_temperature(lambda t, sign=sign: sign * np.log(t), square, 0.3, lowest)
        assert received.temperature == pytest.approx(end, rel=1e-12)
        assert received.score == pytest.approx(sign * np.log(end), rel=1e-12)
        assert received.bound == bound


@pytest.mark.parametrize("rounding", [-6e-16, 0.0, 6e-16])
def test_a_temperature_beside_the_mean_square_label_is_no_bound(rounding):
    """The score −(ln 𝒯 − ln ½)² has its maximum at ½."""
    received = best_temperature(lambda t: -(np.log(2.0 * t) ** 2), 1.0 + rounding, 1.0)
    assert received.temperature == pytest.approx(0.5, rel=1e-5)
