"""The copy head: its free energy against the saddle point, quadrature and known numbers."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from runs.studies.copy_head.mathematics import FORMS, CopyHead, lowest_eigenvalue, width_cost
from theory import Architecture, LearningProblem, solve_saddle_point

SYMBOLS, TEMPERATURE = 6, 0.2


def head(tokens=24, scale=0.3, form="softmax", width=math.inf):
    return CopyHead(tokens, SYMBOLS, TEMPERATURE, scale, form, width)


# Computed before this was written, by another program.
@pytest.mark.parametrize(
    ("tokens", "scale", "expected"), [(24, 0.15, (18, 19, 22)), (96, 0.1, (53, 67, 137))]
)
def test_two_minima_exist_where_they_were_known_to(tokens, scale, expected):
    """And not with few tokens, or without softmax."""
    assert head(12, 0.15).coexistence() is None
    assert head(48, 0.15, "linear").coexistence() is None
    both = head(tokens, scale).coexistence()
    assert (round(both.first), round(both.equal), round(both.last)) == expected


def test_both_minima_are_equally_deep_at_the_transition_and_one_is_left_outside():
    one = head(48, 0.15)
    both = one.coexistence()
    small, large = one.minima(both.equal)
    assert small.free_energy == pytest.approx(large.free_energy, abs=1e-7)
    assert small.copied < 2 / 48 < large.copied
    counts = [len(one.minima(size)) for size in (both.first * 0.999, both.first * 1.001)]
    counts += [len(one.minima(size)) for size in (both.last * 0.999, both.last * 1.001)]
    assert counts == [1, 2, 2, 1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [math.inf, 10.0])
def test_minima_are_those_of_a_search_that_needs_no_derivatives(form, width):
    """And so are u and u₀, by minimising the bracket of the free energy over both."""
    one, examples = head(48, 0.15, form, width), 30.0

    def bracket(logs, copied, squares):
        u, u0 = np.exp(logs)
        kappa, c = examples * squares / SYMBOLS, examples * copied / math.sqrt(SYMBOLS)
        other = SYMBOLS - 1
        value = other**2 * math.log1p(u * kappa / TEMPERATURE)
        value += other * math.log1p(u0 * kappa / TEMPERATURE)
        value -= other * u * c**2 / (TEMPERATURE * (u * kappa + TEMPERATURE))
        return value + other * width_cost(u, width) + width_cost(u0, width)

    def energy(logit):
        seen = one.attention(np.array(logit))
        given = float(seen.copied), float(seen.squares)
        if math.isinf(width):
            least = infinite(*given)
        else:
            starts = ([x, 0.0] for x in (-2.0, 0.0, 3.0))
            found = [scipy.optimize.minimize(bracket, at, given, "BFGS") for at in starts]
            least = min(one.fun for one in found)
        return 0.5 * one.stiffness * logit**2 + 0.5 * least

    def infinite(copied, squares):
        kappa, c = examples * squares / SYMBOLS, examples * copied / math.sqrt(SYMBOLS)
        value = SYMBOLS * math.log1p(kappa / TEMPERATURE)
        return (SYMBOLS - 1) * (value - c**2 / (TEMPERATURE * (kappa + TEMPERATURE)))

    for minimum in one.minima(examples):
        assert minimum.free_energy == pytest.approx(energy(minimum.logit), rel=1e-9, abs=1e-9)
        near = minimum.logit + np.array([-0.02, 0.02])
        found = scipy.optimize.minimize_scalar(energy, bounds=near, method="bounded")
        assert found.fun >= minimum.free_energy - 1e-8
        assert found.x == pytest.approx(minimum.logit, abs=1e-3)


def population(copied, squares, examples, width):
    """The learning problem whose features have exactly the moments of many examples, and |y_∥|²."""
    differences = np.eye(SYMBOLS) - 1 / SYMBOLS
    kappa, c = examples * squares / SYMBOLS, examples * copied / math.sqrt(SYMBOLS)
    attended = math.sqrt(kappa * SYMBOLS) * differences[:, None]
    labels = c / math.sqrt(kappa) * differences
    architecture = Architecture.uniform((1,), width, SYMBOLS, SYMBOLS)
    return LearningProblem(architecture, jnp.array(attended), jnp.array(labels), TEMPERATURE)


def known_from(problem):
    """u, u₀ and ln p(y | a) − ln p(y | no attention) by the project's own saddle point."""
    saddle = solve_saddle_point(problem)
    assert saddle.converged
    width = problem.architecture.widths[0]
    values = np.linalg.eigvalsh(np.asarray(saddle.order_parameters.matrices[0]))
    ones = np.full(SYMBOLS, 1 / math.sqrt(SYMBOLS))
    equal = ones @ np.asarray(saddle.order_parameters.matrices[0]) @ ones
    differing = (values.sum() - equal) / (SYMBOLS - 1)
    count = problem.labels.size + (problem.examples - len(problem.labels)) * SYMBOLS
    squares = float(np.sum(np.asarray(problem.labels) ** 2)) + problem.residual_squares
    alone = count * math.log(TEMPERATURE) + squares / TEMPERATURE + 2 * width * SYMBOLS
    return differing, equal, -0.5 * (width * saddle.action - alone)


@pytest.mark.parametrize("width", [7, 100])
@pytest.mark.parametrize(("copied", "squares"), [(0.6, 0.4), (1 / 24, 1 / 20)])
def test_order_parameters_and_evidence_are_those_of_the_saddle_point(width, copied, squares):
    one, examples = head(width=float(width)), 600.0
    expected = known_from(population(copied, squares, examples, width))
    received = (
        *one.order_parameters(copied, squares, examples),
        one.log_likelihood(copied, squares, examples),
    )
    np.testing.assert_allclose(received, expected, rtol=1e-8)


def test_the_lowest_of_several_stationary_eigenvalues_is_taken():
    count, width, rng = 5.0, 2.0, np.random.default_rng(0)
    seen, learned = 10.0 ** rng.uniform(-4, 4, 40), 10.0 ** rng.uniform(-4, 8, 40)
    grid = np.exp(np.linspace(-25.0, 25.0, 200_001))

    def value(u, x, b):
        rest = width_cost(u, width)
        return count * np.log1p(x * u) - b * u / (1 + x * u) + rest

    received = lowest_eigenvalue(seen, learned, count, width)
    for x, b, u in zip(seen, learned, received, strict=True):
        lowest = value(grid, x, b).min()
        assert value(u, x, b) <= lowest + 1e-10 * abs(lowest)


def test_what_the_other_logits_leave_is_right_to_second_order_by_quadrature():
    """T = 3: two other logits, whose difference is integrated out by Gauss and Hermite's rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    at, examples = np.array([0.0, 0.7, 1.5]), 1.0

    def exact(one):
        half = one.logit_scale * nodes / math.sqrt(2.0)  # of a difference of variance 2 s²
        pair = np.exp(half) + np.exp(-half)
        total = np.exp(at)[:, None] + pair
        copied = np.exp(at)[:, None] / total
        squares = (np.exp(2 * at)[:, None] + np.exp(2 * half) + np.exp(-2 * half)) / total**2
        likelihood = one.log_likelihood(copied, squares, examples)
        mean = np.exp(likelihood) @ (weights / weights.sum())
        return 0.5 * one.stiffness * at**2 - np.log(mean)

    scales = np.array([0.0125, 0.025, 0.05])
    off = []
    for scale in scales:
        one = head(3, scale)
        off.append(np.abs(one.fluctuating_free_energy(at, examples) - exact(one)).max())
    slope = np.polyfit(np.log(scales), np.log(off), 1)[0]
    assert slope == pytest.approx(4.0, abs=0.05)


@pytest.mark.slow
def test_the_share_of_the_copy_head_follows_depth_and_volume():
    """By logits of all tokens, drawn from the prior but for the copied one, 10 times."""
    one, examples, rng = head(24, 0.3), 8.0, np.random.default_rng(2)
    grid = one.logits(examples)
    barrier = np.argmax(np.where((grid > 1) & (grid < 2.5), one.free_energy(grid, examples), -1e9))
    shares = []
    for _ in range(10):
        others = 0.3 * rng.standard_normal((2000, 23))
        others -= others.mean(axis=1, keepdims=True)
        first, second = np.exp(others).sum(axis=1), np.exp(2 * others).sum(axis=1)
        mean = np.zeros(len(grid))
        for place, at in enumerate(grid):
            total = np.exp(at) + first
            squares = (np.exp(2 * at) + second) / total**2
            mean[place] = np.exp(one.log_likelihood(np.exp(at) / total, squares, examples)).mean()
        weights = mean * np.exp(-0.5 * one.stiffness * grid**2)
        shares.append(weights[barrier:].sum() / weights.sum())
    expected, error = np.mean(shares), np.std(shares, ddof=1) / math.sqrt(10)
    # Of the next order in s², (T − 2) s⁴ at most, of a share's logarithm.
    assert error < 0.01
    assert one.copying_share(examples) == pytest.approx(expected, abs=3 * error + 22 * 0.3**4 / 4)
