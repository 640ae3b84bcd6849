"""The posterior as a function of one flat vector."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.network import network_outputs
from sampler.posterior.flat_density import FlatDensity
from sampler.posterior.spaces import make_density
from tests.problems import ARCHITECTURES, random_problem
from theory import Predictor
from theory.learning_problem import compress

SPACES = ("order_parameters", "hidden_weights", "weights")


def flat_of(problem, space="weights", test=None) -> FlatDensity:
    test = problem.attended[:2] if test is None else test
    density = make_density(space, problem, test, False, whitened=False)
    return FlatDensity(density, problem.residual_log_likelihood)


@pytest.fixture
def problem(rng):
    problem = random_problem(ARCHITECTURES["one layer, two outputs"], rng)
    return replace(problem, temperature_spread=0.5)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES)
def test_the_density_is_prior_times_likelihood(space, problem, rng):
    flat = flat_of(problem, space)
    point = rng.standard_normal(flat.dimension)
    value, prior, likelihood = flat(point), flat.log_prior(point), flat.log_likelihood(point)
    assert float(value) == pytest.approx(float(prior + likelihood), rel=1e-12)
    # Another temperature of the data changes the likelihood alone.
    warmer = flat_of(replace(problem, temperature=2 * problem.temperature), space)
    assert float(warmer.log_prior(point)) == float(prior)
    assert float(warmer.log_likelihood(point)) != float(likelihood)


def test_the_prior_of_weights_is_normal(problem, rng):
    flat = flat_of(replace(problem, temperature_spread=0.0))
    point = rng.standard_normal(flat.dimension)
    arch = problem.architecture
    sites = flat.sites(point)
    expected = sum(
        scipy.stats.norm(0, arch.weight_variances[name] ** 0.5).logpdf(values).sum()
        for name, values in sites.items()
    )
    assert float(flat.log_prior(point)) == pytest.approx(expected, rel=1e-12)
    noise = scipy.stats.norm(
        network_outputs(sites, problem.attended, arch), problem.temperature**0.5
    )
    expected = noise.logpdf(problem.labels).sum()
    assert float(flat.log_likelihood(point)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES)
def test_rows_in_the_place_of_examples_change_nothing(space, rng):
    arch = replace(ARCHITECTURES["one layer"], channels=2)
    whole = random_problem(arch, rng, examples=15)
    rows = compress(whole)
    assert len(rows.labels) == 6
    flat, of_rows = flat_of(whole, space), flat_of(rows, space)
    point = rng.standard_normal(flat.dimension)
    for name in ("log_prior", "log_likelihood", "__call__"):
        expected, received = (float(getattr(one, name)(point)) for one in (flat, of_rows))
        assert received == pytest.approx(expected, rel=1e-10)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES)
def test_it_is_differentiated_compiled_batched_and_an_argument(space, problem, rng):
    flat = flat_of(problem, space)
    points = jnp.asarray(0.5 * rng.standard_normal((3, flat.dimension)))
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(flat)))(points)
    as_argument = jax.jit(lambda density, point: density(point))
    expected = [float(as_argument(flat, point)) for point in points]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    along = jnp.asarray(rng.standard_normal(flat.dimension))
    up, down = (float(as_argument(flat, points[0] + sign * 1e-5 * along)) for sign in (1, -1))
    assert float(slopes[0] @ along) == pytest.approx((up - down) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_names_and_sites_say_what_a_coordinate_is(space, problem):
    flat = flat_of(problem, space)
    assert len(flat.names) == flat.dimension == len(set(flat.names))
    sites = flat.sites(np.arange(flat.dimension, dtype=float))
    for index, name in enumerate(flat.names):
        site, _, place = name.partition("[")
        assert sites[site][tuple(map(int, place.rstrip("]").split(",")))] == index
    np.testing.assert_array_equal(flat.point(sites), np.arange(flat.dimension))


@pytest.mark.heavy
def test_starts_are_draws_from_the_prior(problem):
    """Under which −2 Σ_i ln p would be chi-square for normal coordinates: here by each."""
    flat = flat_of(replace(problem, temperature_spread=0.0))
    draws = np.asarray(jax.vmap(flat.start)(jax.random.split(jax.random.key(0), 500)))
    deviations = flat.point(
        {
            name: np.full(shape, problem.architecture.weight_variances[name] ** 0.5)
            for name, shape in problem.architecture.weight_shapes.items()
        }
    )
    assert scipy.stats.kstest((draws / deviations).ravel(), "norm").pvalue > 1e-4
    again = flat.start(jax.random.split(jax.random.key(0), 500)[3])
    np.testing.assert_allclose(again, draws[3], rtol=1e-14)


def test_one_output_has_no_axis(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    flat = flat_of(problem, "order_parameters", problem.attended)
    point = rng.standard_normal(flat.dimension)
    found = flat.observables(point, jax.random.key(0))
    assert found["predictor_mean"].shape == found["predictor"].shape == (6,)
    predictor = Predictor.for_examples(problem, problem.attended)
    cholesky = jnp.linalg.cholesky(jnp.asarray(found["order_parameter"]))
    np.testing.assert_allclose(found["predictor_mean"], predictor(cholesky)[0][:, 0], rtol=1e-8)
