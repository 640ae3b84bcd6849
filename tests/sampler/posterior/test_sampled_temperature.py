"""A sampled temperature: identities with problems that have it for given, and quadrature."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.network import network_outputs
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.space import TEMPERATURE
from sampler.posterior.weights_from_order_parameters import draw_weights_back
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import (
    ARCHITECTURES,
    random_problem,
    space_of,
)
from theory import LearningProblem

SPREAD = 0.5


def problem_of(name, rng, temperature=0.3) -> LearningProblem:
    problem = random_problem(ARCHITECTURES[name], rng, temperature=temperature)
    return replace(problem, temperature_spread=SPREAD)


def random_position(space, rng) -> dict:
    """A position of a space, the temperature included."""
    return space.unflatten(jnp.asarray(0.5 * rng.standard_normal(space.size)))


def known_problem(problem: LearningProblem, position) -> LearningProblem:
    """The problem that has the temperature of a position for given."""
    temperature = problem.temperature * float(np.exp(position[TEMPERATURE][0]))
    return LearningProblem(problem.architecture, problem.attended, problem.labels, temperature)


@pytest.mark.slow
@pytest.mark.parametrize("space", ["order_parameters", "hidden_weights", "weights"])
def test_a_position_is_observed_and_weighed_at_its_temperature(space, rng):
    """As in the space that has this temperature for given, but for the prior of the temperature."""
    problem = problem_of("two layers, three outputs", rng)
    attended = jnp.asarray(rng.standard_normal((5, *problem.attended.shape[1:])))
    unknown = space_of(problem, space, attended, whitened=False)
    position = random_position(unknown, rng)
    learning = known_problem(problem, position)
    known = space_of(learning, space, attended, whitened=False)
    shift = float(position[TEMPERATURE][0])

    @jax.jit
    def weighed_and_observed(posterior, position):
        observed = posterior.observe(jax.random.key(1), position)
        return posterior.log_density(position), observed

    value, observed = weighed_and_observed(unknown, position)
    without = {site: values for site, values in position.items() if site != TEMPERATURE}
    expected, at_known = weighed_and_observed(known, without)
    prior = scipy.stats.norm(0.0, SPREAD).logpdf(shift)
    assert float(value) == pytest.approx(float(expected) + prior, rel=1e-10)
    assert float(observed.pop("temperature")) == pytest.approx(learning.temperature, rel=1e-12)
    assert float(observed.pop("log_prior") - at_known.pop("log_prior")) == pytest.approx(prior)
    assert observed.keys() == at_known.keys()
    for quantity, values in at_known.items():
        tolerance = 1e-5 if values.dtype == jnp.float32 else 1e-9
        scale = np.abs(values).max()
        np.testing.assert_allclose(
            observed[quantity], values, rtol=0, atol=tolerance * scale, err_msg=quantity
        )


def test_points_of_stored_draws_are_those_that_were_observed(rng):
    """The evidence of chains and weights drawn back begin with what `draws.nc` has of a draw."""
    problem = problem_of("two layers", rng)
    space = space_of(problem, whitened=False)
    position = random_position(space, rng)
    observed = jax.jit(lambda at: space.observe(jax.random.key(1), at))(position)
    draws = {name: np.asarray(values)[None, None] for name, values in observed.items()}
    found = stored_sites(draws, problem.temperature)
    assert found.keys() == position.keys()
    for site, values in position.items():
        assert_equal_to_rounding(found[site][0, 0], values, operations=10, scale=1.0, what=site)


@pytest.mark.slow
def test_weights_drawn_back_have_the_predictor_of_their_temperature(rng):
    """One draw of the order parameters, many of the weights: the predictor's exact law."""
    problem = problem_of("two layers", rng)
    space = space_of(problem, test=problem.attended[:2], whitened=False)
    position = random_position(space, rng)
    observed = space.observe(jax.random.key(1), position)
    one = {n: np.broadcast_to(v, (1, 4000, *v.shape)) for n, v in position.items()}
    drawn = draw_weights_back(space, problem.architecture, one, 4000, seed=2)
    outputs = jax.vmap(lambda w: network_outputs(w, problem.attended[:2], problem.architecture))(
        {n: jnp.asarray(v[0]) for n, v in drawn.weights.items()}
    )
    mean, variance = (observed[f"predictor_{moment}"] for moment in ("mean", "variance"))
    error = np.sqrt(variance / 4000)
    assert_within_mcse(outputs.mean(axis=0), mean, error)
    assert_within_mcse(outputs.var(axis=0), variance, variance * np.sqrt(2 / 4000))
