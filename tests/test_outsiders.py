"""The samplers that this program is raced against sample the posteriors they are meant to."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from jax.flatten_util import ravel_pytree

from sampler.network import network_outputs
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.benchmarks.outsider_samplers import (
    CRANK_NICOLSON_ACCEPTANCE,
    CrankNicolsonState,
    Whitened,
    crank_nicolson,
    crank_nicolson_step,
    first_order_parameter,
    microcanonical,
    nuts,
    readout_features,
    reparametrised_posterior,
    weight_posterior,
)
from tests.benchmarks.outsiders import FEWEST, Collected, effective_draws, row
from tests.problems import ARCHITECTURES, random_problem, random_weights, space_of
from theory import Architecture

AXES = {"chain_axis": 0, "draw_axis": 1}
PRECISIONS = np.array([1.0, 4.0, 9.0])
OBSERVED = np.array([0.5, -2.0, 1.0])
ENDLESS = float("inf")


def normals(posterior: Whitened, rng) -> dict:
    return {n: jnp.asarray(rng.standard_normal(s)) for n, s in posterior.shapes.items()}


def first_draws(blocks, count: int) -> np.ndarray:
    """The first draws of every chain, [chain, draw, element]."""
    found, total = [], 0
    for block in blocks:
        found.append(block)
        total += block.shape[1]
        if total >= count:
            return np.concatenate(found, axis=1)[:, :count]
    raise AssertionError(f"{total} draws, expected at least {count}")


@pytest.mark.parametrize("name", ["one layer, two outputs", "two layers, three outputs"])
def test_readout_sees_what_the_network_computes(name, rng):
    arch = ARCHITECTURES[name]
    attended = jnp.asarray(rng.standard_normal((4, arch.path_count, arch.channels)))
    weights = {name: jnp.asarray(values) for name, values in random_weights(arch, rng).items()}
    received = readout_features(weights, attended, arch) @ weights["a"].T / arch.widths[-1] ** 0.5
    expected = network_outputs(weights, attended, arch)
    assert_equal_to_rounding(received, expected, operations=500)


@pytest.mark.heavy
@pytest.mark.parametrize("make", [weight_posterior, reparametrised_posterior])
@pytest.mark.parametrize("examples", [5, 11], ids=["examples < width", "width < examples"])
def test_whitened_density_is_the_original_one_times_the_jacobian(make, examples, rng):
    arch = Architecture((2,), (4, 7), (1.4, 0.8, 1.2), 3, outputs=2)
    problem = random_problem(arch, rng, examples=examples)
    posterior, original = make(problem), space_of(problem, "weights")
    for _ in range(2):
        flat, unflatten = ravel_pytree(normals(posterior, rng))

        def weights(flat, unflatten=unflatten):
            position = posterior.weights(unflatten(flat))
            return ravel_pytree({name: position[name] for name in arch.weight_shapes})[0]

        def densities(flat, unflatten=unflatten):
            whitened = unflatten(flat)
            return original.log_density(posterior.weights(whitened)), posterior.log_density(
                whitened
            )

        jacobian = np.linalg.slogdet(jax.jit(jax.jacobian(weights))(flat)).logabsdet
        expected, received = jax.jit(densities)(flat)
        expected = expected + jacobian
        assert_equal_to_rounding(received, expected, operations=1000, condition=1000)


def gaussian() -> Whitened:
    """Three numbers, each observed with its own precision: the posterior is known."""

    def log_likelihood(position):
        return -jnp.sum(PRECISIONS * (position["x"] - OBSERVED) ** 2) / 2

    return Whitened({"x": (3,)}, log_likelihood, dict)


@pytest.mark.heavy
@pytest.mark.parametrize("sampler", [nuts, crank_nicolson, microcanonical])
def test_samplers_find_a_gaussian_posterior(sampler):
    draws = first_draws(sampler(gaussian(), lambda position: position["x"], ENDLESS, 3), 4000)
    variances = 1 / (1 + PRECISIONS)
    means = variances * PRECISIONS * OBSERVED
    for name, values, expected in (
        ("mean", draws, means),
        ("variance", (draws - means) ** 2, variances),
    ):
        mcse = array_stats.mcse(values, method="mean", **AXES)
        ess = array_stats.ess(values, method="bulk", **AXES)
        assert_within_mcse(values.mean((0, 1)), expected, mcse, ess=ess, what=name)


def test_crank_nicolson_keeps_the_prior_without_data():
    """Every proposal is accepted, and independent draws stay independent normal ones."""
    posterior = Whitened({"x": (3,)}, lambda position: jnp.zeros(()), dict)
    state = CrankNicolsonState(
        jax.random.key(1), {"x": jnp.zeros(3)}, jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    )
    step = partial(crank_nicolson_step, posterior=posterior)
    keys = jax.random.split(jax.random.key(2), 20_000)
    starts = jax.random.normal(jax.random.key(3), (len(keys), 3))
    ends = jax.vmap(lambda key, x: step(state._replace(key=key, position={"x": x})))(keys, starts)
    moved = np.asarray(ends.position["x"])
    assert np.all(moved != starts)
    error = 1 / np.sqrt(len(keys))
    assert_within_mcse(moved.mean(0), 0.0, error)
    assert_within_mcse((moved**2).mean(0), 1.0, np.sqrt(2) * error)


def test_crank_nicolson_finds_the_acceptance_that_is_wanted():
    posterior, start = gaussian(), {"x": jnp.zeros(3)}
    step = partial(crank_nicolson_step, posterior=posterior)
    likelihood = posterior.log_likelihood(start)
    state = CrankNicolsonState(jax.random.key(1), start, likelihood, jnp.zeros(()), jnp.ones(()))

    def row(state, _):
        new = step(state)
        return new, jnp.any(new.position["x"] != state.position["x"])

    state, _ = jax.lax.scan(row, state, length=5000)
    after, accepted = jax.lax.scan(row, state._replace(time=jnp.zeros(())), length=5000)
    assert after.log_odds == state.log_odds
    assert float(accepted.mean()) == pytest.approx(CRANK_NICOLSON_ACCEPTANCE, abs=0.05)


@pytest.mark.slow
@pytest.mark.long
def test_reparametrised_weights_have_the_same_order_parameter(rng):
    arch = Architecture((2,), (4, 3), (1.4, 0.8, 1.2), 3)
    problem = random_problem(arch, rng, examples=6)
    found = []
    for make in (weight_posterior, reparametrised_posterior):
        posterior = make(problem)

        def read(position, posterior=posterior):
            return first_order_parameter(posterior.weights(position), arch)

        draws = first_draws(nuts(posterior, read, ENDLESS, 5), 3000)
        ess = array_stats.ess(draws, method="bulk", **AXES)
        assert np.all(ess > 400)
        found.append((draws.mean((0, 1)), array_stats.mcse(draws, method="mean", **AXES)))
    (one, error), (other, other_error) = found
    assert_within_mcse(one, other, np.hypot(error, other_error))


def cells(found: Collected, reference: Collected) -> list[str]:
    return [cell.strip() for cell in row("other", 10, found, reference).split("|")[1:-1]]


def test_too_few_effective_draws_give_a_bound(rng):
    reference = Collected(rng.standard_normal((4, 500, 2)), 10.0)
    good = Collected(0.01 + rng.standard_normal((4, 500, 2)), 100.0)
    none = Collected(np.empty((4, 0, 1)), 100.0)
    assert min(good.effective_draws) > 1000
    assert effective_draws(np.zeros((4, 500, 2))) == (0.0, 0.0)
    assert 5 < float(cells(good, reference)[7]) < 20
    *_, bulk, tail, rate, slower, difference = cells(none, reference)
    assert (bulk, tail, rate, difference) == ("0", "0", f"< {FEWEST / 100}", "–")
    assert float(slower.removeprefix("> ").replace(",", "")) == pytest.approx(
        reference.rate / (FEWEST / 100), abs=1
    )


def test_a_shift_shows_in_the_difference_of_means(rng):
    reference = Collected(rng.standard_normal((4, 500, 2)), 10.0)
    shifted = Collected(reference.draws[::-1] + np.array([0.0, 0.5]), 10.0)
    same = Collected(reference.draws[::-1], 10.0)
    assert float(cells(shifted, reference)[-1]) > 5
    assert float(cells(same, reference)[-1]) < 0.1
