"""The leading order at draws of attention: against quadrature over scalars, and Gaussian tilts."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from runs.studies.teacher_student.mathematics import (
    exact_log_evidence,
    leading_order,
    over_draws,
)
from theory import Architecture

ONE_HEAD = Architecture((1,), (10, 6), (1.0, 1.0, 1.0), channels=4)
TEMPERATURE = 0.2


def spectrum(rng, examples=12):
    """Attended inputs of one path, labels, and both in the eigenvectors of the kernel."""
    attended = rng.standard_normal((examples, 1, ONE_HEAD.channels))
    labels = rng.standard_normal((examples, 1))
    flat = attended[:, 0] / ONE_HEAD.channels**0.5
    values, vectors = np.linalg.eigh(flat @ flat.T)
    return attended, labels, np.maximum(values, 0.0), vectors.T @ labels[:, 0]


def log_likelihood(scale, values, labels):
    noisy = np.multiply.outer(scale, values) + TEMPERATURE
    return -0.5 * np.sum(np.log(2 * np.pi * noisy) + labels**2 / noisy, axis=-1)


def test_the_leading_order_of_one_head_is_the_minimum_over_two_scalars(rng):
    attended, labels, values, rotated = spectrum(rng)
    lower, upper = ONE_HEAD.widths

    def half_action(logs):
        below, above = np.exp(logs)
        prior = lower * (below - logs[0] - 1.0) + upper * (above - logs[1] - 1.0)
        return 0.5 * prior - log_likelihood(below * above, values, rotated)

    best = scipy.optimize.minimize(half_action, np.zeros(2), tol=1e-12)
    received = leading_order(attended, labels, ONE_HEAD, TEMPERATURE)
    assert received.log_evidence == pytest.approx(-best.fun, abs=1e-8)
    assert received.order_parameter[0, 0] == pytest.approx(np.exp(best.x.sum()), rel=1e-5)


@pytest.mark.heavy
def test_the_exact_evidence_of_one_head_is_that_of_quadrature(rng):
    """U_1 = c_1² c_2²/(N_1 N_a) of two independent χ²."""
    attended, labels, values, rotated = spectrum(rng)
    shares = (np.arange(400) + 0.5) / 400
    squares = [scipy.stats.chi2(width).ppf(shares) / width for width in ONE_HEAD.widths]
    logs = log_likelihood(np.multiply.outer(*squares), values, rotated)
    expected = scipy.special.logsumexp(logs) - math.log(logs.size)
    received, error = exact_log_evidence(attended, labels, ONE_HEAD, TEMPERATURE, seed=1)
    assert error < 0.05
    assert abs(received - expected) < 4 * error


def test_weights_move_a_gaussian_and_repetitions_know_the_error(rng):
    repeated, repetitions, draws, moved = 400, 10, 200, 0.7
    points = rng.standard_normal((repeated, repetitions, draws))
    equal = np.full(repetitions, 1.0 / repetitions)
    found = [over_draws(one, equal, moved * one) for one in points]
    values = np.array([one.value for one in found])
    assert abs(values.mean() - moved) < 4 * values.std() / math.sqrt(repeated)
    squares = np.mean([one.error**2 for one in found])
    # The variance of a variance of 400 values is 2/400 of it.
    assert abs(squares / values.var() - 1) < 4 * math.sqrt(2 / repeated) + 0.05
    effective = np.mean([one.effective for one in found]) / (repetitions * draws)
    assert effective == pytest.approx(math.exp(-(moved**2)), rel=0.05)


def test_without_logarithms_repetitions_alone_have_weights(rng):
    values, weights = rng.standard_normal((8, 20)), rng.dirichlet(np.ones(8))
    received = over_draws(values, weights)
    assert received.value == pytest.approx(weights @ values.mean(axis=1))
    assert over_draws(values, weights, np.full(values.shape, 3.0)) == received
