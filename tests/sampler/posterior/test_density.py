"""What algorithms see of a posterior, in every space."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.posterior.order_parameters import OrderParameterPosterior, StandardisedLogChi
from sampler.posterior.spaces import make_density
from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, random_problem
from theory.wishart_chain import BartlettShape, bartlett_matrix

SPACES = ("order_parameters", "hidden_weights", "weights")


@pytest.fixture(scope="module")
def problem():
    return random_problem(ARCHITECTURES["two layers"], np.random.default_rng(4))


@pytest.fixture(scope="module", params=SPACES)
def density(request, problem):
    return make_density(request.param, problem, problem.attended[:1], with_weights=False)


def test_coordinates_and_positions_are_each_others_inverse(density, rng):
    flat = jnp.asarray(rng.standard_normal(density.coordinates.size))
    position = density.coordinates.unflatten(flat)
    assert {n: v.shape for n, v in position.items()} == {
        name: prior.event_shape for name, prior in density.priors.items()
    }
    np.testing.assert_array_equal(density.coordinates.flatten(position), flat)
    started = density.start(jax.random.key(1))
    assert {n: v.shape for n, v in started.items()} == {n: v.shape for n, v in position.items()}


def one_by_one(density, points):
    at = density.coordinates.unflatten
    return [float(density.log_density(at(jnp.asarray(point)))) for point in points]


@pytest.mark.heavy
def test_many_values_at_a_time_are_those_one_by_one(density, rng, problem):
    if density.name != "order_parameters":
        assert density.log_densities is None
        return
    points = 0.5 * rng.standard_normal((5, density.coordinates.size))
    expected = one_by_one(density, points)
    assert_equal_to_rounding(
        density.log_densities(points),
        expected,
        operations=problem.labels.size**2,
        condition=np.abs(expected).max() / problem.temperature,
    )
    with pytest.raises(ValueError, match="batch_size = 0: must be at least 1"):
        OrderParameterPosterior.of(problem).log_densities(points, 0)


@pytest.mark.heavy
def test_the_gradient_is_the_slope(density, rng):
    coordinates = density.coordinates
    point, along = 0.5 * rng.standard_normal((2, coordinates.size))
    value, gradient = jax.jit(density.value_and_gradient)(coordinates.unflatten(jnp.asarray(point)))
    step = 1e-5
    up, down = one_by_one(density, [point + step * along, point - step * along])
    slope = float(coordinates.flatten(gradient) @ along)
    np.testing.assert_allclose((up - down) / (2 * step), slope, rtol=1e-6)
    assert float(value) == pytest.approx(one_by_one(density, [point])[0], rel=1e-10)


def test_the_hessian_is_known_for_order_parameters_alone(density, rng, problem):
    if density.name != "order_parameters":
        assert density.mode is None
        return
    point = jnp.asarray(0.1 * rng.standard_normal(density.coordinates.size))
    expected = -jax.jit(
        jax.hessian(lambda x: density.log_density(density.coordinates.unflatten(x)))
    )(point)
    received = OrderParameterPosterior.of(problem).curvature(point)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_the_prior_of_a_bartlett_factor_is_that_of_a_wishart_matrix(rng):
    """ln p(t, lower) = ln p(B Bᵀ) + ln |∂(B Bᵀ)/∂(t, lower)| with B Bᵀ ~ Wishart(N, 1)."""
    shape = BartlettShape(rows=3, rank=3, width=7)
    lower = np.tril_indices(3)
    point = jnp.asarray(0.7 * rng.standard_normal(6))

    def entries(x):
        matrix = bartlett_matrix(x[:3], x[3:], shape.rows, jnp.asarray(shape.degrees, float))
        return (matrix @ matrix.T)[lower]

    matrix = np.zeros((3, 3))
    matrix[lower] = entries(point)
    matrix = matrix + np.tril(matrix, -1).T
    volume = np.linalg.slogdet(np.asarray(jax.jit(jax.jacfwd(entries))(point)))[1]
    expected = scipy.stats.wishart(7, np.eye(3)).logpdf(matrix) + volume
    chi = StandardisedLogChi(jnp.asarray(shape.degrees, float)).log_prob(point[:3]).sum()
    received = float(chi) + scipy.stats.norm.logpdf(np.asarray(point[3:])).sum()
    assert received == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("degrees", [1.0, 7.0, 1000.0])
def test_draws_of_a_standardised_log_chi_are_those_of_chi(degrees):
    t = np.asarray(StandardisedLogChi(degrees).sample(jax.random.key(5), (4000,)))
    squares = degrees * np.exp(np.sqrt(2.0 / degrees) * t)
    assert scipy.stats.kstest(squares, scipy.stats.chi2(degrees).cdf).pvalue > 1e-4


@pytest.mark.parametrize("degrees", [1.0, 7.0, 1000.0])
def test_moments_of_a_standardised_log_chi(degrees):
    """Against the trapezoidal rule, which converges faster than any power of the spacing."""
    site = StandardisedLogChi(degrees)
    t = np.linspace(-60.0, 12.0, 20_001)
    density = np.exp(np.asarray(site.log_prob(t)))
    total, mean, square = (np.trapezoid(density * t**power, t) for power in range(3))
    assert total == pytest.approx(1.0, rel=1e-9)
    assert float(site.mean) == pytest.approx(mean, rel=1e-9)
    assert float(site.variance) == pytest.approx(square - mean**2, rel=1e-9)
