"""The integrals that reference values come from, against the formulas of others."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import kve
from scipy.stats import multivariate_normal

from runs.references.truths import log_chi_squared, prior_draws, scalars
from sampler.analysis.functionals import FunctionalsOfData

P, D = 6, 9


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    inputs, tests = rng.standard_normal((P, D)), rng.standard_normal((4, D))
    return inputs, np.sign(rng.standard_normal(P)), tests, np.ones(4)


def test_density_of_a_logarithm_is_that_of_scipy():
    from scipy.stats import chi2

    logs = np.linspace(-4, 2, 7)
    x = 7 * np.exp(logs) / 1.5
    np.testing.assert_allclose(log_chi_squared(7, 1.5, logs), x * chi2.pdf(x, 7), rtol=1e-12)


def test_one_layer_is_an_integral_with_a_bessel_function(data):
    """U_1 is a product of two scaled χ² variables, whose density is a Bessel function K."""
    inputs, labels, tests, _ = data
    first, readout, temperature = 5, 8, 0.3
    values, evidence = scalars([first, readout], [1.0, 1.0, 1.0], *data, temperature)
    kernel = inputs @ inputs.T / D

    def density(u):
        x = first * readout * u  # of χ²_5 χ²_8
        log = (
            (first + readout) / 4 * math.log(x) - (first + readout) / 2 * math.log(2) - math.log(x)
        )
        log += math.log(2) - math.lgamma(first / 2) - math.lgamma(readout / 2)
        return (
            math.exp(log - math.sqrt(x))
            * kve((first - readout) / 2, math.sqrt(x))
            * first
            * readout
        )

    def likelihood(u):
        noisy = u * kernel + temperature * np.eye(P)
        logarithm = np.linalg.slogdet(2 * np.pi * noisy)[1]
        return math.exp(-0.5 * (logarithm + labels @ np.linalg.solve(noisy, labels)))

    def integral(function):
        return quad(lambda s: function(math.exp(s)) * math.exp(s), -14, 5, limit=400, epsabs=0)[0]

    assert integral(density) == pytest.approx(1.0, rel=1e-8)
    total = integral(lambda u: density(u) * likelihood(u))
    assert evidence["value"] == pytest.approx(math.log(total), abs=1e-8)

    def expected(function):
        return integral(lambda u: function(u) * density(u) * likelihood(u)) / total

    def mean_at(u):
        noisy = u * kernel + temperature * np.eye(P)
        return u * tests[0] @ inputs.T / D @ np.linalg.solve(noisy, labels)

    points, weights = values["order_parameter"]
    assert weights @ points[:, 0] == pytest.approx(expected(lambda u: u), rel=1e-7)
    points, weights = values["predictor_mean"]
    assert weights @ points[:, 0] == pytest.approx(expected(mean_at), rel=1e-7)


@pytest.mark.parametrize("widths", [(5, 8), (4, 7, 9), (6, 5, 8, 11)])
def test_evidence_at_zero_noise_is_a_meijer_g_function(data, widths):
    """arXiv 2212.14457: ln p(y) of a deep linear network of any depth that fits its labels."""
    inputs, labels, *_ = data
    variances = np.ones(len(widths) + 1)
    evidence = scalars(widths, variances, *data, 1e-11)[1]["value"]
    kernel = inputs @ inputs.T / D
    size = labels @ np.linalg.solve(kernel, labels)
    argument = size / 2 * math.prod(width / 2 for width in widths)
    function = mpmath.meijerg([[], []], [[0, *((n - P) / 2 for n in widths)], []], argument)
    expected = float(mpmath.log(function)) - 0.5 * np.linalg.slogdet(2 * np.pi * kernel)[1]
    for width in widths:
        expected += P / 2 * math.log(width / 2) - math.lgamma(width / 2)
    assert evidence == pytest.approx(expected, abs=1e-6)


def test_order_parameters_of_upper_layers_are_those_of_a_double_integral(data):
    inputs, labels, *_ = data
    values, _ = scalars([5, 8], [1.0, 2.0, 0.5], *data, 0.3)
    logs = np.linspace(-7, 4, 401)
    readout, below = np.meshgrid(logs, logs)
    prior = log_chi_squared(8, 0.5, readout) * log_chi_squared(5, 2.0, below)
    eigenvalues, vectors = np.linalg.eigh(inputs @ inputs.T / D)
    noisy = np.exp(readout + below)[..., None] * eigenvalues + 0.3
    energy = (np.log(noisy) + (vectors.T @ labels) ** 2 / noisy).sum(axis=-1)
    weights = prior * np.exp(-energy / 2)
    expected = (weights * np.exp(readout)).sum() / weights.sum()
    points, mass = values["readout_order_parameter"]
    assert mass @ points[:, 0] == pytest.approx(expected, rel=1e-6)


def test_a_sampled_temperature_is_integrated_as_well(data):
    values, evidence = scalars([5, 8], [1.0, 1.0, 1.0], *data, 0.3, 0.7)
    nodes, masses = np.polynomial.hermite_e.hermegauss(60)
    temperatures = 0.3 * np.exp(0.7 * nodes)
    each = [scalars([5, 8], [1.0, 1.0, 1.0], *data, T)[1]["value"] for T in temperatures]
    weights = masses / masses.sum() * np.exp(each)
    assert evidence["value"] == pytest.approx(math.log(weights.sum()), abs=1e-7)
    points, mass = values["temperature"]
    expected = weights @ temperatures / weights.sum()
    assert mass @ points[:, 0] == pytest.approx(expected, rel=1e-6)


def test_draws_from_the_prior_of_two_logits_are_an_integral_over_their_difference():
    """Attention to two positions depends on one normal number, that quadrature integrates."""
    rng = np.random.default_rng(8)
    inputs, labels = rng.standard_normal((5, 2, 3)), rng.standard_normal((3, 1))
    data = FunctionalsOfData(labels, np.ones((2, 1)), 0.4)
    values, evidence = prior_draws(data, inputs, 0.9, 40_000, 10_000, 3)
    nodes, masses = np.polynomial.hermite_e.hermegauss(80)
    likelihood, kernel = [], []
    for node in nodes:
        share = 1 / (1 + math.exp(-0.9 * math.sqrt(2) * node))
        attended = share * inputs[:, 0] + (1 - share) * inputs[:, 1]
        K = attended @ attended.T / 3
        law = multivariate_normal(np.zeros(3), K[:3, :3] + 0.4 * np.eye(3))
        likelihood.append(law.pdf(labels[:, 0]))
        kernel.append(K[3, 4])
    weights = masses * likelihood
    expected = math.log(weights.sum() / masses.sum())
    assert abs(evidence["value"] - expected) < 4.5 * evidence["mcse"]
    points, shares = values["kernel"]
    mean = shares @ points[:, 0]
    error = math.sqrt(shares**2 @ (points[:, 0] - mean) ** 2)
    assert abs(mean - weights @ kernel / weights.sum()) < 4.5 * error
    assert error < 0.01
