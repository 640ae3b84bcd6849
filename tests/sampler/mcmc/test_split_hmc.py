"""Split Hamiltonian Monte Carlo: exact properties of its map, and the law that it samples."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.split_hmc import (
    SHARE_INDEPENDENT,
    Begin,
    moved,
    slope_at,
    state_at,
    trajectory,
    value_and_slope,
)
from sampler.posterior.space import Gaussian, Space
from sampler.settings.sampler import SHORT_WARMUP
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import ARCHITECTURES, HMC, SPLIT_HMC, chain_settings, random_problem, space_of
from tests.sampler.mcmc.laws import Linear, Normal, with_mode

ALGORITHM = SPLIT_HMC
WARMUP = SHORT_WARMUP["order_parameters", "split_hmc"]
CENTRE, COVARIANCE = np.array([1.0, -2.0, 0.5]), np.array([4.0, 0.25, 1.0])


def normal() -> Linear:
    """A normal distribution whose fit at the mode is exact."""
    space = Normal.diagonal(CENTRE, COVARIANCE)
    return with_mode(space, CENTRE, np.diag(np.sqrt(COVARIANCE)))


@pytest.fixture(scope="module")
def space() -> Space:
    return space_of(random_problem(ARCHITECTURES["two layers"], np.random.default_rng(3)))


def collected(space: Space, settings, algorithm=ALGORITHM) -> DrawCollector:
    found = DrawCollector()
    algorithm.draw(algorithm.suited(space), settings, found)
    return found


def test_a_normal_distribution_is_drawn_without_error():
    """The rotation is its exact motion: nothing is refused, at any step."""
    state = state_at(normal(), jnp.array([0.3, -1.0, 2.0]), jax.random.key(1))
    assert_equal_to_rounding(state["slope"], state["z"], operations=20)
    standard = Gaussian.standard(state["z"])
    moved_to, found = moved(state, standard, jnp.asarray(0.7), 3, normal())
    assert_equal_to_rounding(found["acceptance_rate"], 1.0, operations=200)
    assert not found["diverging"]
    _, kick, _ = jax.random.split(state["key"], 3)
    momentum = jax.random.normal(kick, (3,))
    assert_equal_to_rounding(
        moved_to["z"], state["z"] * np.cos(2.1) + momentum * np.sin(2.1), operations=200
    )
    # About a Gaussian that is much too wide the same steps are unstable: nothing is accepted.
    wide = with_mode(Normal.diagonal(CENTRE, COVARIANCE), CENTRE, 50.0 * np.eye(3))
    state = state_at(wide, state["z"], state["key"])
    stayed, found = moved(state, standard, jnp.asarray(0.7), 3, wide)
    np.testing.assert_array_equal(stayed["z"], state["z"])
    assert found["diverging"]
    assert not found["lost"]


def test_a_trajectory_run_backwards_ends_where_it_began(space, rng):
    size = space.size
    gaussian = Gaussian(
        jnp.asarray(0.2 * rng.standard_normal(size)), jnp.asarray(rng.uniform(0.5, 2.0, size))
    )
    here, momentum = jnp.asarray(rng.standard_normal((2, size)))
    first, step = jax.jit(lambda z: slope_at(space, gaussian.at(z)))(here), jnp.asarray(0.2)
    moved_by = jax.jit(lambda *begun: trajectory(*begun, gaussian, step, 5, space))
    there, end, value, last, _ = moved_by(here, momentum, Begin(0.0, first))
    expected, also = jax.jit(lambda z: value_and_slope(space, gaussian.at(z)))(there)
    assert_equal_to_rounding((value, *last), (expected, *also), operations=100)
    assert np.abs(there - here).max() > 0.3
    back, start, *_ = moved_by(there, -end, Begin(value, last))
    assert_equal_to_rounding(back, here, operations=20 * size, condition=100.0)
    assert_equal_to_rounding(-start, momentum, operations=20 * size, condition=100.0)


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True])
def test_a_trajectory_finds_where_it_begins(single, space, rng):
    """Without density and slope there it ends where it ends with them, to the last bit."""
    space = space.with_single_gradients() if single else space
    here, momentum = jnp.asarray(0.5 * rng.standard_normal((2, space.size)))
    gaussian = Gaussian.standard(here)
    potential, slope = jax.jit(lambda z: value_and_slope(space, z))(here)
    move = jax.jit(lambda begin: trajectory(here, momentum, begin, gaussian, 0.2, 3, space))
    unknown = Begin(jnp.full((), jnp.nan), jnp.zeros_like(here), jnp.asarray(True))
    *found, begin = move(unknown)
    *expected, _ = move(Begin(begin.potential, begin.slope, jnp.asarray(False)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert_equal_to_rounding(begin.potential, potential, operations=1000)
    precision = {"rtol": 1e-4, "atol": 1e-4} if single else {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(begin.slope, slope, **precision)


@pytest.mark.slow
def test_a_trajectory_preserves_volume(space, rng):
    """The determinant of its derivative is 1."""
    size = space.size
    gaussian = Gaussian.standard(jnp.zeros(size))

    def flow(both):
        here, momentum = both[:size], both[size:]
        begin = Begin(0.0, slope_at(space, gaussian.at(here)))
        there, end, *_ = trajectory(here, momentum, begin, gaussian, 0.4, 3, space)
        return jnp.concatenate([there, end])

    derivative = jax.jacfwd(flow)(jnp.asarray(rng.standard_normal(2 * size)))
    magnified = float(jnp.linalg.cond(derivative))
    assert_equal_to_rounding(
        jnp.linalg.det(derivative), 1.0, operations=8 * size**2, condition=magnified
    )


def test_warmup_ends_with_what_it_has_found():
    settings = chain_settings(chains=4, warmup=60, draws=40, seed=2)
    received = []
    # A label x_i + noise of variance 1 about each coordinate, whose prior has variance 1.
    space = Linear.of(np.eye(3), 2.0 * CENTRE, 1.0, np.zeros(3), np.ones(3))
    ALGORITHM.draw(space, settings, received.append)
    by_phase = {one.phase: one for one in received}
    warm, last = by_phase["warmup"].snapshot.arrays, by_phase["draws"].snapshot.arrays
    for name in ("['gaussian'].centre", "['gaussian'].scale", "['step_size']"):
        np.testing.assert_array_equal(warm[f"shared{name}"], last[f"shared{name}"])
    assert warm["shared['moments'].count"] == 4 * (60 - 6)  # not of the first tenth
    np.testing.assert_allclose(warm["shared['gaussian'].centre"], CENTRE, atol=0.5)
    np.testing.assert_allclose(warm["shared['gaussian'].scale"], np.sqrt(0.5), rtol=0.5)
    steps = np.concatenate([one.statistics["trajectory_steps"] for one in received], axis=1)
    assert (steps == steps[:1]).all(), "chains advance by trajectories of one length"
    angles = np.concatenate([o.statistics["step_size"] for o in received], axis=1) * steps
    assert angles.min() < 0.4 * np.pi < 0.6 * np.pi < angles.max()


@pytest.mark.slow
def test_a_short_warmup_has_the_masses_of_the_mode(rng):
    """By them a stiff normal distribution takes one step a draw, and draws do not depend on each
    other; with those of the prior it takes as many steps as its condition asks for. Trajectories
    without the rotation have steps of the order of its unit.
    """
    turned = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    scale = turned * np.geomspace(1e-2, 0.99, 5)
    law = Normal.correlated(scale @ scale.T)
    known = with_mode(law, np.zeros(5), scale)
    unit = with_mode(law, np.zeros(5), np.eye(5))
    settings = chain_settings(chains=4, warmup=WARMUP, draws=400, seed=3)
    found = collected(known, settings)
    without = collected(unit, replace(settings, draws=10))
    assert found.statistics["n_steps"].mean() <= 2.0
    assert without.statistics["n_steps"].mean() > 20.0
    by_numpyro = collected(known, replace(settings, draws=10), HMC)
    assert by_numpyro.statistics["step_size"].min() > 0.3
    draws = found.draws["x"]
    assert_mean(draws, np.zeros(5), "mean")
    assert_mean(draws**2, np.diag(scale @ scale.T), "variance")
    ess = array_stats.ess(draws, method="bulk", chain_axis=0, draw_axis=1)
    assert np.min(ess) >= SHARE_INDEPENDENT * 4 * 400


@pytest.mark.slow
def test_gradients_are_single_where_that_pays_and_costs_no_acceptance(space, monkeypatch):
    """Of labels as large as these the slope has an error that is no longer small against one."""
    large = space.with_labels(1e4 * space.data.labels)
    assert ALGORITHM.suited(space) is space
    monkeypatch.setattr("sampler.mcmc.split_hmc.FEWEST_NUMBERS", 1)
    assert ALGORITHM.suited(space).gradient_dtype == "float32"
    assert ALGORITHM.suited(large).gradient_dtype == "float64"


def assert_mean(draws, expected, what) -> None:
    """The mean of draws [chain, draw, …] is the expected one, within its error."""
    axes = {"chain_axis": 0, "draw_axis": 1}
    mcse = array_stats.mcse(draws, method="mean", **axes)
    ess = array_stats.ess(draws, method="bulk", **axes)
    assert_within_mcse(draws.mean((0, 1)), expected, mcse, ess=ess, what=what)
