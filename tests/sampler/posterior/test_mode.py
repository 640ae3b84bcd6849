"""The mode of order parameters and the Hessian there, each way to them against another."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.posterior.importance_sampling import importance_draws
from sampler.posterior.mode import Derivatives
from sampler.posterior.space import TEMPERATURE
from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, EVERY_ARCHITECTURE, random_problem, space_of

SPREAD = 0.5
ROUNDING = {"operations": 1e4}


def plain_potential(problem, space):
    """−ln p(x, y) with no derivative that is written by hand."""

    def potential(point):
        position = space.unflatten(point)
        temperature = space.temperature_at(position)
        noisy = problem.energy.kernels.kernel(space.factors(position)[0])
        noisy = noisy + temperature * jnp.eye(noisy.shape[0])
        flat = problem.labels.reshape(-1)
        energy = jnp.linalg.slogdet(noisy)[1] + flat @ jnp.linalg.solve(noisy, flat)
        constant = flat.size * np.log(2.0 * np.pi)
        return 0.5 * (energy + constant) - space.log_prior(position)

    return potential


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_derivatives_of_the_theory_and_by_columns_are_those_of_repeated_differentiation(
    name, rng, monkeypatch
):
    problem = random_problem(ARCHITECTURES[name], rng, temperature=0.5)
    space = space_of(problem, whitened=False)
    plain, point = plain_potential(problem, space), rng.standard_normal(space.size)
    value, slope = jax.jit(jax.value_and_grad(plain))(point)
    hessian = jax.jit(jax.hessian(plain))(point)
    for largest, of_theory in ((2**26, True), (1, False)):
        monkeypatch.setattr("theory.size_limits.LARGEST_BLOCKS", largest)
        derivatives = Derivatives(space)
        assert derivatives.of_theory is of_theory
        received = derivatives.value_and_slope(point)
        np.testing.assert_allclose(received[0], float(value), rtol=1e-10)
        np.testing.assert_allclose(received[1], slope, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(derivatives.hessian(point), hessian, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one layer", "narrow"])
def test_where_the_temperature_is_sampled_the_hessian_has_its_row(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng, temperature=0.3)
    problem = replace(problem, temperature_spread=SPREAD)
    space = space_of(problem)
    mode, plain = space.mode, plain_potential(problem, space)
    assert mode.converged, mode.explain()
    centre = mode.gaussian.centre
    gradient = jax.jit(jax.grad(plain))(centre)
    hessian = np.asarray(jax.jit(jax.hessian(plain))(centre))
    eigenvalues = np.linalg.eigvalsh(hessian)
    assert np.linalg.norm(gradient) < 1e-4 * np.sqrt(eigenvalues.max())
    assert eigenvalues.min() > 1e-3  # where the mode has a floor for what is not convex
    received = np.asarray(mode.gaussian.covariance) @ hessian
    condition = eigenvalues.max() / eigenvalues.min() / problem.temperature
    assert_equal_to_rounding(received, np.eye(len(hessian)), condition=condition, **ROUNDING)


@pytest.mark.slow
def test_many_coordinates_do_without_a_hessian(rng, monkeypatch):
    """The same mode, the scales of the prior, and a refusal of what needs the Hessian."""
    problem = random_problem(ARCHITECTURES["two layers"], rng, temperature=0.3)
    problem = replace(problem, temperature_spread=SPREAD)
    exact = space_of(problem).mode.gaussian
    monkeypatch.setattr("sampler.posterior.mode.HESSIAN_COORDINATES", 10)
    monkeypatch.setattr("sampler.posterior.importance_sampling.HESSIAN_COORDINATES", 10)
    space = space_of(problem)
    rough = space.mode.gaussian
    assert space.mode.converged
    # Within a fraction of the posterior's own width.
    away = np.asarray(rough.centre - exact.centre)
    distance = float(away @ np.linalg.solve(exact.covariance, away)) ** 0.5
    assert distance < 0.2 * away.size**0.5
    for site, scale in space.unflatten(rough.scale).items():
        np.testing.assert_allclose(scale, SPREAD if site == TEMPERATURE else 1.0, err_msg=site)
    with pytest.raises(ValueError, match="the Hessian at the mode is too large"):
        importance_draws(space, 100, seed=1)
