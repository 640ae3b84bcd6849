"""The table of the theory: evidences, what a failed search leaves, and trained columns."""

import numpy as np
import pytest
import scipy.stats

from sampler.analysis.predictors import INFINITE, LEADING, predicted
from sampler.analysis.theory_table import evidence_at, theory_table
from tests.small import signs, small_problem
from theory import OrderParameters, solve_saddle_point


def gp_kernel(problem) -> np.ndarray:
    """Π σ² Σ_π ξ^π(x)·ξ^π(x')/(D Π) of training examples, for one output."""
    learning = problem.learning
    arch, attended = learning.architecture, np.asarray(learning.attended)
    kernel = np.einsum("xpi,ypi->xy", attended, attended) / (arch.channels * arch.path_count)
    return np.prod(arch.variances) * kernel


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_evidence_of_the_gp_is_the_density_of_a_gaussian(outputs, rng):
    problem = small_problem(rng, outputs=outputs)
    limit = OrderParameters.gp_limit(problem.architecture)
    kernel = gp_kernel(problem)
    covariance = kernel + problem.learning.temperature * np.eye(len(kernel))
    # Outputs are independent of each other at infinite width.
    normal = scipy.stats.multivariate_normal(np.zeros(len(kernel)), covariance)
    expected = np.sum(normal.logpdf(np.asarray(problem.learning.labels).T))
    received = evidence_at(problem, limit.factors[0])
    assert received == pytest.approx(expected, rel=1e-12)


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
