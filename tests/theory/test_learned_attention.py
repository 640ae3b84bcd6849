"""Theories of learned attention: values against other ways, gradients against solving again."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from runs.studies.copy_head.mathematics import CopyHead
from tests.problems import ARCHITECTURES
from theory import (
    Architecture,
    LearningProblem,
    evidence_at_infinite_width,
    evidence_at_leading_order,
)
from theory.infinite_width import InfiniteWidth

# More examples than features in the last, whose rows then stand for them.
CASES = [
    ("one head", 3),
    ("one layer, two outputs", 6),
    ("two layers", 8),
    ("two layers, three outputs", 5),
    ("one head", 9),
    ("one layer, two outputs", 21),
]
EVERY_CASE = pytest.mark.parametrize(("name", "examples"), CASES)
TEMPERATURE = 0.2


def data_of(architecture, examples, rng):
    shape = (examples, architecture.path_count, architecture.channels)
    features = rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
    return features, rng.standard_normal((examples, architecture.outputs))


def along(function, features, direction, step):
    """The derivative by five values: an error of order step⁴."""
    values = [function(features + k * step * direction) for k in (-2, -1, 1, 2)]
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)


@pytest.mark.heavy
@EVERY_CASE
def test_infinite_width_is_a_gaussian_of_its_kernel(name, examples, rng):
    architecture = ARCHITECTURES[name]
    features, labels = data_of(architecture, examples, rng)
    found = evidence_at_infinite_width(features, labels, architecture, TEMPERATURE)
    scale = math.prod(architecture.variances[1:])
    kernel = scale * np.einsum("xpi,ypi->xy", features, features)
    law = scipy.stats.multivariate_normal(cov=kernel + TEMPERATURE * np.eye(examples))
    assert found.value == pytest.approx(sum(law.logpdf(one) for one in labels.T), rel=1e-12)
    size = math.sqrt(architecture.variances[0] / math.prod(features.shape[1:]))
    attended = jnp.asarray(features / size)
    problem = LearningProblem(architecture, attended, jnp.asarray(labels), TEMPERATURE)
    expected = InfiniteWidth.of(problem).log_evidence(TEMPERATURE)
    assert found.value == pytest.approx(expected, rel=1e-11)

    def plain(values):
        kernel = scale * jnp.einsum("xpi,ypi->xy", values, values)
        lower = jnp.linalg.cholesky(kernel + TEMPERATURE * jnp.eye(examples))
        white = jax.scipy.linalg.solve_triangular(lower, labels, lower=True)
        logs = labels.shape[1] * jnp.sum(jnp.log(jnp.diagonal(lower)))
        return -logs - 0.5 * jnp.sum(white**2)

    expected = jax.grad(plain)(jnp.asarray(features))
    np.testing.assert_allclose(found.gradient, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.heavy
@EVERY_CASE
def test_the_gradient_at_leading_order_is_that_of_solving_again(name, examples, rng):
    architecture = ARCHITECTURES[name]
    features, labels = data_of(architecture, examples, rng)

    def solve(values, initial=None):
        found = evidence_at_leading_order(values, labels, architecture, TEMPERATURE, initial)
        assert found.saddle.converged
        return found

    here = solve(features)
    start = here.saddle.order_parameters
    again = solve(features, start)
    assert again.saddle.steps == 0
    assert again.value == pytest.approx(here.value, rel=1e-13)
    for _ in range(3):
        direction = rng.standard_normal(features.shape)
        direction /= np.linalg.norm(direction)
        expected = along(lambda values: solve(values, start).value, features, direction, 1e-3)
        received = np.sum(here.gradient * direction)
        assert received == pytest.approx(expected, rel=1e-6, abs=1e-6 * np.abs(received) + 1e-9)


@pytest.mark.parametrize("name", ["one layer, two outputs", "two layers"])
def test_leading_order_tends_to_infinite_width(name, rng):
    """Value and gradient, as one over the width."""
    architecture = ARCHITECTURES[name]
    features, labels = data_of(architecture, 6, rng)
    limit = evidence_at_infinite_width(features, labels, architecture, TEMPERATURE)
    widths, off = (300, 3000, 30_000), []
    for width in widths:
        wide = replace(architecture, widths=(width,) * len(architecture.widths))
        found = evidence_at_leading_order(features, labels, wide, TEMPERATURE)
        gradient = np.abs(found.gradient - limit.gradient).max()
        off.append([abs(found.value - limit.value), gradient])
    slopes = np.polyfit(np.log(widths), np.log(off), 1)[0]
    np.testing.assert_allclose(slopes, -1.0, atol=0.02)


def test_attention_that_learns_to_copy_has_the_free_energy_of_the_copy_head():
    """Its slope along the copied logit, through features of many examples; eight data sets."""
    symbols, tokens, examples, width = 4, 6, 4000, 10
    head = CopyHead(tokens, symbols, TEMPERATURE, 0.3, width=float(width))
    architecture = Architecture.uniform((1,), width, symbols, symbols)
    copied = np.arange(tokens) == tokens - 2

    def softmax(logit):
        weights = np.exp(logit * copied)
        return weights / weights.sum()

    weights = softmax(1.2)
    change, received = weights * (copied - weights[-2]), []  # ∂w_s/∂a
    for seed in range(8):
        drawn = np.random.default_rng(seed).integers(symbols, size=(examples, tokens))
        inputs = math.sqrt(symbols) * (np.eye(symbols)[drawn] - 1 / symbols)
        features, moved = (
            np.einsum("s,xsi->xi", one, inputs)[:, None] / math.sqrt(symbols)
            for one in (weights, change)
        )
        found = evidence_at_leading_order(features, inputs[:, -2], architecture, TEMPERATURE)
        received.append(np.sum(found.gradient * moved))

    def likelihood(logit):
        w = softmax(logit)
        return float(head.log_likelihood(w[-2], np.sum(w**2), float(examples)))

    expected = (likelihood(1.2 + 1e-5) - likelihood(1.2 - 1e-5)) / 2e-5
    error = np.std(received, ddof=1) / math.sqrt(8)
    assert error < 0.01 * expected
    assert np.mean(received) == pytest.approx(expected, abs=4 * error)


def test_a_search_that_fails_says_so(rng):
    architecture = ARCHITECTURES["two layers"]
    features, labels = data_of(architecture, 5, rng)
    found = evidence_at_leading_order(features, labels, architecture, TEMPERATURE, tolerance=1e-300)
    assert not found.saddle.converged
