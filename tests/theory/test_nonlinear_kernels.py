"""Kernels of nonlinear values against quadrature, wide random networks, and the linear theory."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import theory.nonlinear_kernels as module
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import random_weights
from tests.theory.nonlinear import (
    CASES,
    DEFINITIONS,
    NONLINEAR,
    by_quadrature,
    last_hidden,
    nonlinear_problem,
    read,
)
from theory import Architecture, OrderParameters, Predictor, predict
from theory.learning_problem import LearningProblem
from theory.nonlinear_kernels import (
    activation,
    first_moment,
    kernel_of_pairs,
    kernels_at,
    pair_moment,
    unit_variances,
)

POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(100)
WEIGHTS = WEIGHTS / np.sqrt(2.0 * np.pi)


@pytest.mark.parametrize("values", DEFINITIONS)
def test_they_keep_the_pair_moment_of_standard_normal_numbers(values):
    received = np.asarray(activation(jnp.asarray(POINTS), values))
    assert_equal_to_rounding(received, DEFINITIONS[values](POINTS), operations=8)
    # Quadrature converges geometrically: 100 points leave less than 10⁻⁹, and for |u|² of the
    # ReLU, which is symmetric, nothing.
    assert abs(WEIGHTS @ received**2 - 1.0) < 1e-9


@pytest.mark.parametrize("values", DEFINITIONS)
def test_gaussian_means_are_those_of_quadrature(values):
    """To the error of quadrature: below 10⁻¹⁰ of numbers of order 1."""
    left, both, right = map(jnp.asarray, CASES.T)
    moments = pair_moment(left, both, right, values), first_moment(right, values)
    expected = np.array([by_quadrature(values, *case)[:2] for case in CASES])
    assert np.abs(np.transpose(moments) - expected).max() < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("values", DEFINITIONS)
def test_slopes_of_the_pair_moment_are_finite_at_full_correlation(values):
    """They agree with differences away from it, and along q₁₁ = q₁₂ = q₂₂ everywhere."""

    def moments(cases):
        return pair_moment(*jnp.asarray(cases).T, values)

    slopes = jax.vmap(jax.grad(partial(pair_moment, values=values), (0, 1, 2)))
    received = np.stack(slopes(*jnp.asarray(CASES).T), axis=1)
    assert np.isfinite(received).all()
    step = 1e-5
    away = np.abs(CASES[:, 1]) < 0.9 * np.sqrt(CASES[:, 0] * CASES[:, 2])
    for place, kick in enumerate(step * np.eye(3)):
        difference = np.asarray(moments(CASES + kick) - moments(CASES - kick)) / (2 * step)
        assert np.abs(received[:, place] - difference)[away].max() < 1e-8

    def of_variance(q):
        q = jnp.asarray(q)
        return pair_moment(q, q, q, values)

    there = 1.7
    difference = (of_variance(there + step) - of_variance(there - step)) / (2 * step)
    along = received[np.all(there == CASES, axis=1)].sum()
    assert abs(along - float(difference)) < 1e-8
    curvature = float(jax.hessian(of_variance)(there))
    around = of_variance(there + 1e-3) - 2 * of_variance(there) + of_variance(there - 1e-3)
    assert abs(curvature - float(around) / 1e-6) < 1e-6


# --- kernels of nonlinear values against wide random networks, the linear theory, and themselves


TWO = Architecture((2, 3), (7, 5, 6), (0.9, 1.5, 0.6, 1.3), 4)


@pytest.mark.slow
def test_wide_random_networks_have_these_kernels(rng):
    """Σ f f' over draws of all weights; without means of different heads the ReLU is far off."""
    heads, width, draws = (2, 2), 300, 30
    variances = tuple(rng.uniform(0.7, 1.4, len(heads) + 2))
    arch = Architecture(heads, (width,) * (len(heads) + 1), variances, 4)
    problem, _, (data, _) = nonlinear_problem(arch, "relu", rng, examples=3)
    sums = {values: [] for values in NONLINEAR}
    for _ in range(draws):
        weights = random_weights(arch, rng)
        for values, found in sums.items():
            hidden = last_hidden(arch, data, weights, values)
            found.append(variances[-1] * hidden @ hidden.T / width)
    for values, found in sums.items():
        received = np.asarray(kernels_at(replace(problem, values=values), problem.train).train)
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(draws)
        assert_within_mcse(mean, received, error, what=values)
        if values == "relu":
            same_heads = without_other_heads(problem)
            with pytest.raises(AssertionError, match="standard errors apart"):
                assert_within_mcse(mean, same_heads, error)


def without_other_heads(problem) -> np.ndarray:
    """The kernel of the last layer from pairs of equal heads alone: a network of one head each.

    Σ_h K^{(h)}/H_L, K^{(h)} that of a last layer with head h only.
    """
    *lower, last = problem.train.attention
    arch = replace(problem.architecture, heads=(*problem.architecture.heads[:-1], 1))
    found = []
    for head in range(last.shape[1]):
        attention = (*lower, last[:, head : head + 1])
        train = replace(problem.train, attention=attention)
        found.append(kernels_at(replace(problem, architecture=arch, train=train), train).train)
    return np.mean(found, axis=0)


def test_linear_values_give_the_linear_theory_at_infinite_width(rng):
    arch = replace(TWO, outputs=2)
    problem, test, (train, tested) = nonlinear_problem(arch, "linear", rng, readout="last")
    mean, variance, evidence = kernels_at(problem, test).regression(
        problem.labels, problem.temperature
    )
    learning = LearningProblem(arch, train.attended, problem.labels, problem.temperature)
    limit = OrderParameters.gp_limit(arch).factors[0]
    expected = predict(Predictor.for_examples(learning, tested.attended), limit)
    assert_equal_to_rounding(mean, expected[0], operations=500, condition=100)
    assert_equal_to_rounding(variance, expected[1], operations=500, condition=100)
    energy = float(learning.energy(limit)) + problem.labels.size * np.log(2 * np.pi)
    assert_equal_to_rounding(evidence, -0.5 * energy, operations=500, condition=100)


@pytest.mark.slow
@pytest.mark.parametrize("values", ["relu"])
def test_pairs_in_batches_and_one_set_with_itself_are_all_at_once(values, rng, monkeypatch):
    """Also the diagonal, of examples alone, is that of pairs."""
    problem, _, _ = nonlinear_problem(TWO, values, rng)
    network = problem.network
    together, _ = kernel_of_pairs(problem.train, problem.train, **network)
    monkeypatch.setattr(module, "BATCH_NUMBERS", 2 * 3**2)
    kernel_of_pairs.clear_cache()
    halves, prior = kernel_of_pairs(problem.train, None, **network)
    kernel_of_pairs.clear_cache()
    assert_equal_to_rounding(halves, together, operations=100)
    assert_equal_to_rounding(prior, jnp.diagonal(together), operations=100)
    np.testing.assert_array_equal(halves, halves.T)
    *below, last = unit_variances(problem.train, **network)
    assert [q.shape for q in below] == [(6, 3), (6, 3)]
    np.testing.assert_array_equal(last[:, 0], prior)


@pytest.mark.slow
def test_tokens_that_no_query_reads_do_not_matter(rng):
    """Padding of zeros has variance 0: no attention reaches it, and nothing is undefined."""
    problem, _, (data, _) = nonlinear_problem(TWO, "relu", rng, readout="last")
    inputs = np.pad(data.inputs, ((0, 0), (2, 0), (0, 0)))
    attention = tuple(np.pad(o, ((0, 0), (0, 0), (2, 0), (2, 0))) for o in data.attention)
    padded = read(replace(data, inputs=inputs, attention=attention))
    expected = kernels_at(problem, problem.train)
    received = kernels_at(replace(problem, train=padded), padded)
    for name in ("train", "cross", "prior"):
        assert_equal_to_rounding(getattr(received, name), getattr(expected, name), operations=100)
