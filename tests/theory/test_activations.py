"""Functions of values against their definitions and Gauss–Hermite quadrature."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, ndtr

from tests.assertions import assert_equal_to_rounding
from theory.nonlinear_kernels import ERF, GELU, activation, first_moment, pair_moment

POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(100)
WEIGHTS = WEIGHTS / np.sqrt(2.0 * np.pi)
DEFINITIONS = {
    "linear": lambda u: u,
    "relu": lambda u: np.sqrt(2.0) * np.maximum(u, 0.0),
    "erf": lambda u: ERF * erf(u),
    "gelu": lambda u: GELU * u * ndtr(u),
}


@pytest.mark.parametrize("values", DEFINITIONS)
def test_they_keep_the_pair_moment_of_standard_normal_numbers(values):
    received = np.asarray(activation(jnp.asarray(POINTS), values))
    assert_equal_to_rounding(received, DEFINITIONS[values](POINTS), operations=8)
    # Quadrature converges geometrically: 100 points leave less than 10⁻⁹, and for |u|² of the
    # ReLU, which is symmetric, nothing.
    assert abs(WEIGHTS @ received**2 - 1.0) < 1e-9


# Variances and covariances: any, independent, nearly and fully correlated, opposite, no u at all.
CASES = np.array(
    [
        (0.7, 0.4, 1.9),
        (1.3, -1.1, 1.2),
        (0.5, 0.0, 2.0),
        (1.0, 1.0 - 1e-9, 1.0),
        (1.7, 1.7, 1.7),
        (4.0, 2.0, 1.0),
        (4.0, -2.0, 1.0),
        (0.0, 0.0, 0.8),
        (0.0, 0.0, 0.0),
    ]
)


def between(edges, count):
    """Points and weights of Gauss–Legendre quadrature between neighbouring edges."""
    points, weights = np.polynomial.legendre.leggauss(count)
    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    half = (high - low) / 2.0
    return (low + half * (1.0 + points)).ravel(), (half * weights).ravel()


def by_quadrature(values, left, both, right):
    """E φ(u)φ(v), E φ(v) and E φ'(v) = E vφ(v)/q₂₂, in polar coordinates.

    Angles are integrated between those at which u or v is zero, where the ReLU has its kink.
    """
    phi = DEFINITIONS[values]
    along = both / np.sqrt(left) if left else 0.0
    across = np.sqrt(max(right - along**2, 0.0))
    kink = np.arctan2(-along, across) % np.pi
    edges = sorted({0.0, np.pi / 2, np.pi, 3 * np.pi / 2, 2 * np.pi, kink, kink + np.pi})
    angles, of_angle = between(edges, 60)
    radius, of_radius = between([0.0, 3.0, 6.0, 13.0], 40)
    weights = np.outer(of_radius * radius * np.exp(-(radius**2) / 2.0), of_angle / (2.0 * np.pi))
    x, y = radius[:, None] * np.cos(angles), radius[:, None] * np.sin(angles)
    u, v = np.sqrt(left) * x, along * x + across * y
    slope = np.sum(weights * phi(v) * v) / right if right else np.nan
    return np.sum(weights * phi(u) * phi(v)), np.sum(weights * phi(v)), slope


@pytest.mark.parametrize("values", DEFINITIONS)
def test_gaussian_means_are_those_of_quadrature(values):
    """To the error of quadrature: below 10⁻¹⁰ of numbers of order 1."""
    left, both, right = map(jnp.asarray, CASES.T)
    moments = pair_moment(left, both, right, values), first_moment(right, values)
    expected = np.array([by_quadrature(values, *case)[:2] for case in CASES])
    assert np.abs(np.transpose(moments) - expected).max() < 1e-10


@pytest.mark.heavy
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
