"""Slow: another library's NUTS on the same potential finds the same posterior."""

from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import initialize_model

from sampler.mcmc.algorithm import ChainSettings
from sampler.mcmc.chunks import sample_in_chunks
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.hamiltonian import NUTS
from sampler.posterior.order_parameters import factors_at
from sampler.posterior.spaces import order_parameter_density
from tests.assertions import assert_within_mcse
from tests.problems import ARCHITECTURES, all_but, random_problem
from tests.reference_data import reference_problem
from theory.bartlett import WishartChain

pytestmark = pytest.mark.slow

CHAINS, DRAWS = 4, 1500
NAMES = ("order_parameter", "order_parameter_layer_2", "readout_order_parameter")


@pytest.mark.parametrize("name", all_but(["narrow", "reference"], ["narrow"], pytest.mark.long))
@pytest.mark.long
def test_blackjax_finds_the_same_order_parameters(name, rng, reference):
    problem = (
        reference_problem(reference, 10)
        if name == "reference"
        else random_problem(ARCHITECTURES[name], rng)
    )
    space = order_parameter_density(problem, problem.attended[:1])
    collected = DrawCollector()
    settings = ChainSettings(chains=CHAINS, warmup=150, draws=DRAWS, seed=21)
    sample_in_chunks(space, NUTS, settings, collected)
    theirs = blackjax_overlaps(space, problem.architecture)
    names = [n for n in NAMES if n in collected.draws]
    assert len(names) == len(theirs)
    for matrix, received in zip(names, theirs, strict=True):
        rows, columns = np.tril_indices(received.shape[-1])
        (one, error), (other, other_error) = (
            checked_mean(draws[..., rows, columns]) for draws in (received, collected.draws[matrix])
        )
        assert_within_mcse(one, other, np.hypot(error, other_error), what=matrix)


def checked_mean(draws):
    """Mean and standard error of [chain, draw, entry] with enough effective draws."""
    axes = {"chain_axis": 0, "draw_axis": 1}
    ess = array_stats.ess(draws, method="bulk", **axes)
    assert np.all(ess >= 400), f"{ess.min():.0f} effective draws, expected at least 400"
    return draws.mean((0, 1)), array_stats.mcse(draws, method="mean", **axes)


def blackjax_overlaps(space, architecture):
    """U_1 … U_a [chain, draw, p, p] by BlackJAX's NUTS on the potential that NumPyro builds."""
    info = initialize_model(jax.random.key(0), space.model, model_args=space.arguments)
    _, unravel = ravel_pytree(info.param_info.z)

    def log_density(flat):
        return -info.potential_fn(unravel(flat))

    adapt = blackjax.window_adaptation(
        blackjax.nuts, log_density, is_mass_matrix_diagonal=False, max_num_doublings=8
    )

    @partial(jax.jit, static_argnames="steps")
    def chain(key, flat, steps):
        adapted, key = jax.random.split(key)
        (state, parameters), _ = adapt.run(adapted, flat, 400)
        kernel = blackjax.nuts(log_density, **parameters)

        def step(state, key):
            state, info = kernel.step(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    positions, divergent = [], 0
    for key in jax.random.split(jax.random.key(4), CHAINS):
        start, _ = ravel_pytree(space.mode.draw(key))
        flat, diverged = chain(key, start, DRAWS)
        positions.append(flat)
        divergent += int(diverged.sum())
    assert divergent == 0
    draws = jax.vmap(
        jax.vmap(lambda flat: factors_at(unravel(flat), WishartChain.of(architecture)))
    )(jnp.stack(positions))
    return [np.asarray(factor @ factor.swapaxes(-1, -2)) for factor in draws]
