"""The posterior as a function of one flat vector."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.posterior.exported import FlatDensity
from tests.problems import ARCHITECTURES, random_problem, space_of
from theory import Predictor

SPACES = ("order_parameters", "hidden_weights", "weights")


def flat_of(problem, space="weights", test=None) -> FlatDensity:
    return FlatDensity(space_of(problem, space, test, whitened=False))


@pytest.fixture
def problem(rng):
    problem = random_problem(ARCHITECTURES["one layer, two outputs"], rng)
    return replace(problem, temperature_spread=0.5)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES[:2])
def test_the_density_is_prior_times_likelihood(space, problem, rng):
    flat = flat_of(problem, space)
    point = rng.standard_normal(flat.dimension)
    value, prior, likelihood = flat(point), flat.log_prior(point), flat.log_likelihood(point)
    assert float(value) == pytest.approx(float(prior + likelihood), rel=1e-12)
    # Another temperature of the data changes the likelihood alone.
    warmer = flat_of(replace(problem, temperature=2 * problem.temperature), space)
    assert float(warmer.log_prior(point)) == float(prior)
    assert float(warmer.log_likelihood(point)) != float(likelihood)


@pytest.mark.heavy
@pytest.mark.parametrize("space", SPACES[:1])
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


def test_one_output_has_no_axis(rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    flat = flat_of(problem, "order_parameters", problem.attended)
    point = rng.standard_normal(flat.dimension)
    found = flat.observables(point, jax.random.key(0))
    for name in ("predictor_mean", "predictor", "posterior_predictive", "log_likelihood"):
        assert found[name].shape == (6,)
    assert found["log_prior"].shape == ()
    predictor = Predictor.for_examples(problem, problem.attended)
    cholesky = jnp.linalg.cholesky(jnp.asarray(found["order_parameter"]))
    np.testing.assert_allclose(found["predictor_mean"], predictor(cholesky)[0][:, 0], rtol=1e-8)
