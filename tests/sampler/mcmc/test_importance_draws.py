"""Importance draws as an algorithm: what is kept of weighted draws, and when chains are needed."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.mcmc import importance
from sampler.mcmc.algorithm import ChainSettings
from tests.problems import order_parameters_of, scalar_problem

SETTINGS = ChainSettings(chains=2, warmup=0, draws=300, seed=5)


def with_point_and_noise(observe, coordinates, key, position, *observed):
    """Observables, the position itself, and something that depends on the key."""
    more = {"point": coordinates.flatten(position), "noise": jax.random.normal(key)}
    return observe(key, position, *observed) | more


@pytest.fixture(scope="module")
def density():
    plain = order_parameters_of(scalar_problem(np.random.default_rng(2))[0])
    return replace(plain, observe=partial(with_point_and_noise, plain.observe, plain.coordinates))


@pytest.fixture(scope="module")
def found(density):
    return importance.IMPORTANCE.independent_draws(density, SETTINGS)


def test_every_draw_has_the_log_density_of_its_point(density, found):
    points = found.observables["point"]
    assert points.shape == (2, 300, density.coordinates.size)
    flat = points.reshape(600, -1)
    each = [density.log_density(density.coordinates.unflatten(jnp.asarray(x))) for x in flat[:20]]
    np.testing.assert_allclose(found.statistics["lp"].reshape(-1)[:20], each, rtol=1e-12)


def test_every_draw_is_observed_with_random_numbers_of_its_own(found):
    noise = found.observables["noise"]
    assert noise.shape == (2, 300)
    assert np.unique(noise).size == noise.size


@pytest.mark.heavy
def test_too_few_effective_draws_are_left_to_chains(density, monkeypatch):
    monkeypatch.setattr(importance, "MOST_EVALUATIONS", importance.FIRST_EVALUATIONS)
    enough = importance.IMPORTANCE.independent_draws(density, SETTINGS)
    assert enough.observables is not None
    effective = enough.attributes["importance_effective_draws"]
    asked = int(effective / importance.EFFECTIVE_PER_KEPT / 2) + 1
    few = importance.IMPORTANCE.independent_draws(density, replace(SETTINGS, draws=asked))
    assert few.attributes["importance_effective_draws"] == effective
    assert few.observables is None
    assert f"fewer than 5 for each of the {2 * asked} draws asked for" in few.text
