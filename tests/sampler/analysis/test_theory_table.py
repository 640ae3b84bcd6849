"""The table of the theory: evidences, what a failed search leaves, and trained columns."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.analysis.predictors import INFINITE, LEADING, predicted
from sampler.analysis.theory_table import evidence_at, theory_table
from tests.dense import dense_kernel_of_infinite_width
from tests.small import signs, small_problem
from theory import OrderParameters, solve_saddle_point

# Heads of each layer of a sub-network, and the paths that lead through them alone: with two heads a
# layer path 2 h_1 + h_2 is that of head h_1 of the first layer and h_2 of the second.
KEPT = {((0,), (0, 1)): [0, 1], ((1,), (0,)): [2], ((0, 1), (1,)): [1, 3]}


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_evidence_of_the_gp_is_the_density_of_a_gaussian(outputs, rng):
    problem = small_problem(rng, outputs=outputs)
    limit = OrderParameters.gp_limit(problem.architecture)
    attended = problem.learning.attended
    kernel = dense_kernel_of_infinite_width(attended, attended, problem.architecture)
    covariance = kernel + problem.learning.temperature * np.eye(len(kernel))
    # Outputs are independent of each other at infinite width.
    normal = scipy.stats.multivariate_normal(np.zeros(len(kernel)), covariance)
    expected = np.sum(normal.logpdf(np.asarray(problem.learning.labels).T))
    received = evidence_at(problem, limit.factors[0])
    assert received == pytest.approx(expected, rel=1e-12)


def test_a_sub_network_predicts_by_the_kernel_of_its_own_paths(rng):
    """Mean k(x)ᵀ (K + 𝒯)⁻¹ y, where K has the paths that are left, divided by their number."""
    problem = replace(
        small_problem(rng, labels_test=signs(rng)),
        attended_validation=jnp.asarray(rng.standard_normal((9, 4, 6))),
        labels_validation=rng.choice([-1.0, 1.0], (9, 1)),
    )
    failed = solve_saddle_point(problem.learning, max_steps=1)
    table = theory_table(problem, failed, tuple(KEPT))
    arch, temperature = problem.architecture, problem.learning.temperature
    labels, train = np.asarray(problem.learning.labels), np.asarray(problem.learning.attended)
    assert problem.learning.residual_examples == 0, "every example is there as it was given"
    shares, densities, errors = [], [], []
    for paths in KEPT.values():
        scale = np.prod(arch.variances) / (arch.channels * len(paths))

        def kernel(left, right, paths=paths, scale=scale):
            rows = (np.asarray(one)[:, paths].reshape(len(one), -1) for one in (left, right))
            return scale * np.matmul(next(rows), next(rows).T)

        inverse = np.linalg.inv(kernel(train, train) + temperature * np.eye(len(train)))

        def moments(at, kernel=kernel, inverse=inverse):
            cross = kernel(at, train)
            variance = np.diagonal(kernel(at, at) - cross @ inverse @ cross.T)
            return (cross @ inverse @ labels)[:, 0], variance + temperature

        mean, _ = moments(problem.attended_test)
        shares.append(np.mean((mean > 0) == (problem.labels_test[:, 0] > 0)))
        mean, variance = moments(problem.attended_validation)
        y = problem.labels_validation[:, 0]
        densities.append(scipy.stats.norm.logpdf(y, mean, np.sqrt(variance)).mean())
        errors.append(np.mean((y - mean) ** 2))
    np.testing.assert_allclose(table["accuracy_of_sub_network"], shares)
    name = "validation_{}_of_sub_network"
    np.testing.assert_allclose(table[name.format("log_predictive_density")], densities, rtol=1e-10)
    np.testing.assert_allclose(table[name.format("squared_error")], errors, rtol=1e-10)


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
