"""What follows from the definition of a space, in every space."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.posterior.order_parameters import StandardisedLogChi
from sampler.posterior.space import TEMPERATURE, Gaussian
from tests.problems import ARCHITECTURES, random_problem, space_of
from theory.wishart_chain import draw_log_chi

SPACES = ("order_parameters", "hidden_weights", "weights")
SPREAD = 0.5


@pytest.fixture(scope="module")
def problem():
    problem = random_problem(ARCHITECTURES["two layers"], np.random.default_rng(4))
    return replace(problem, temperature_spread=SPREAD)


@pytest.fixture(scope="module", params=SPACES)
def space(request, problem):
    return space_of(problem, request.param, whitened=False)


def test_vectors_and_positions_are_each_others_inverse(space, rng):
    points = jnp.asarray(rng.standard_normal((2, 3, space.size)))
    position = space.unflatten(points)
    assert {n: v.shape for n, v in position.items()} == {
        name: (2, 3, *shape) for name, shape in space.shapes.items()
    }
    of_one = {name: values[1, 2] for name, values in position.items()}
    np.testing.assert_array_equal(space.flatten(of_one), points[1, 2])
    # Whatever the order of the sites.
    backwards = dict(reversed(of_one.items()))
    np.testing.assert_array_equal(space.flatten(backwards), points[1, 2])
    drawn = space.draw_prior(jax.random.key(1))
    assert {n: v.shape for n, v in drawn.items()} == {n: v.shape for n, v in of_one.items()}


@pytest.mark.heavy
def test_the_slope_is_that_of_finite_differences_also_in_single_precision(space, rng):
    point, along = 0.5 * rng.standard_normal((2, space.size))
    value = jax.jit(space.potential)
    up, down = (float(value(point + sign * 1e-5 * along)) for sign in (1, -1))
    slope = np.asarray(jax.jit(space.slope)(jnp.asarray(point)))
    assert slope @ along == pytest.approx((up - down) / 2e-5, rel=1e-6)
    single, point = space.with_single_gradients(), jnp.asarray(point)
    assert (space.gradient_dtype, single.gradient_dtype) == ("float64", "float32")
    rough = np.asarray(jax.jit(single.slope)(point))
    assert rough.dtype == np.float64
    assert 0.0 < np.linalg.norm(rough - slope) < 1e-4 * np.linalg.norm(slope)
    # The value is that of double precision.
    assert float(single.potential(point)) == pytest.approx(float(value(point)), rel=1e-12)


def test_the_reference_is_the_mode_or_else_the_prior(rng):
    """Without a mode: E ln χ² = ψ(ν/2) + ln 2 in Bartlett coordinates, by quadrature of χ."""
    problem = replace(random_problem(ARCHITECTURES["one layer"], rng), temperature_spread=SPREAD)
    known, unknown = (space_of(problem, whitened=whitened) for whitened in (True, False))
    assert known.reference is known.mode.gaussian
    assert unknown.mode is None
    centre = unknown.unflatten(unknown.reference.centre)
    scale = unknown.unflatten(unknown.reference.scale)
    for layer, shape in enumerate(problem.architecture.widths, start=1):
        rank = len(centre[f"chi_{layer}"])
        for place, degrees in enumerate(shape - np.arange(rank)):
            chi = scipy.stats.chi(degrees)

            def t(c, degrees=degrees):
                return np.sqrt(2.0 * degrees) * np.log(c / np.sqrt(degrees))

            mean = chi.expect(t)
            deviation = np.sqrt(chi.expect(lambda c, m=mean, t=t: (t(c) - m) ** 2))
            assert centre[f"chi_{layer}"][place] == pytest.approx(mean, rel=1e-6)
            assert scale[f"chi_{layer}"][place] == pytest.approx(deviation, rel=1e-6)
        if f"lower_{layer}" in centre:
            assert not np.any(centre[f"lower_{layer}"])
            assert np.all(scale[f"lower_{layer}"] == 1.0)
    assert (float(centre[TEMPERATURE][0]), float(scale[TEMPERATURE][0])) == (0.0, SPREAD)


@pytest.mark.heavy
@pytest.mark.parametrize("by_numpy", [False, True])
def test_draws_of_the_prior_have_its_moments(space, by_numpy, rng):
    known = space.draw_by_numpy(4000, rng) if by_numpy else {}
    points = jax.jit(jax.vmap(lambda key, known: space.flatten(space.draw_prior(key, known))))
    draws = np.asarray(points(jax.random.split(jax.random.key(0), 4000), known))
    standard = jax.vmap(space.prior_gaussian.standardise)(jnp.asarray(draws))
    # Of all coordinates: 4.5 errors of means, and of variances where laws are skewed, too.
    assert np.all(np.abs(standard.mean(axis=0)) < 4.5 / 4000**0.5)
    squares = np.asarray(standard) ** 2
    error = squares.std(axis=0) / 4000**0.5
    assert np.all(np.abs(squares.mean(axis=0) - 1.0) < 4.5 * error)


@pytest.mark.parametrize("dense", [False, True])
def test_a_gaussian_maps_points_and_slopes(dense, rng):
    centre, matrix = rng.standard_normal(3), rng.standard_normal((3, 3)) + 3 * np.eye(3)
    scale = matrix if dense else np.diag(matrix)
    gaussian = Gaussian(jnp.asarray(centre), jnp.asarray(scale))
    full = matrix if dense else np.diag(scale)
    z = rng.standard_normal(3)
    x = centre + full @ z
    np.testing.assert_allclose(gaussian.at(jnp.asarray(z)), x, rtol=1e-12)
    np.testing.assert_allclose(gaussian.standardise(jnp.asarray(x)), z, rtol=1e-12)
    np.testing.assert_allclose(gaussian.pull_back(jnp.asarray(x)), full.T @ x, rtol=1e-12)
    covariance = full @ full.T
    expected = covariance if dense else np.diag(covariance)
    np.testing.assert_allclose(gaussian.covariance, expected, rtol=1e-12)


# --- the prior of Bartlett coordinates


@pytest.mark.parametrize("degrees", [1.0, 1000.0])
def test_a_standardised_log_chi_has_the_draws_and_moments_of_chi(degrees):
    """Moments by the trapezoidal rule, which converges faster than any power of the spacing."""
    site = StandardisedLogChi(degrees)
    by_jax = np.asarray(site.sample(jax.random.key(5), (4000,)))
    by_numpy = draw_log_chi(np.array([degrees]), (4000, 1), np.random.default_rng(5))[:, 0]
    for t in (by_jax, by_numpy):
        squares = degrees * np.exp(np.sqrt(2.0 / degrees) * t)
        assert scipy.stats.kstest(squares, scipy.stats.chi2(degrees).cdf).pvalue > 1e-4
    t = np.linspace(-60.0, 12.0, 20_001)
    density = np.exp(np.asarray(site.log_prob(t)))
    total, mean, square = (np.trapezoid(density * t**power, t) for power in range(3))
    assert total == pytest.approx(1.0, rel=1e-9)
    assert float(site.mean) == pytest.approx(mean, rel=1e-9)
    assert float(site.variance) == pytest.approx(square - mean**2, rel=1e-9)
