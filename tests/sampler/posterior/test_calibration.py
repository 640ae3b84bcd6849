"""Simulation-based calibration of both spaces, and two errors that it must find."""

import jax
import jax.numpy as jnp
import pytest

from sampler.mcmc.split_hmc import SplitChain, trajectory
from sampler.posterior.space import Gaussian
from tests.calibration import (
    HYPER_PARAMETERS,
    WARMUP,
    CalibrationProblem,
    SpaceCalibration,
    calibration_ranks,
    uniformity,
)
from tests.problems import all_but

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
SPACES = ("order_parameters", "weights")
# With NUTS the larger spaces take minutes; split trajectories go through all of them.
WITH_NUTS = all_but(SPACES, ["order_parameters"], pytest.mark.long)
SPLIT = SplitChain(chains=1, warmup=WARMUP, target_acceptance=0.9, max_steps=64)
DATA_SETS = 256
SPREADS = 0.5
SMALLEST_P = 1e-3


@pytest.mark.parametrize("space", WITH_NUTS)
def test_ranks_of_the_truth_are_uniform(space):
    problem = CalibrationProblem.small()
    ranks = calibration_ranks(SpaceCalibration(problem, space), DATA_SETS, seed=1)
    received = uniformity(ranks)
    print(space, {name: f"{p:.3g}" for name, p in received.items()})
    assert min(received.values()) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.parametrize("space", WITH_NUTS)
@pytest.mark.long
def test_ranks_are_uniform_where_the_temperature_is_sampled(space):
    problem = CalibrationProblem.small().with_spread(SPREADS)
    ranks = calibration_ranks(SpaceCalibration(problem, space), DATA_SETS, seed=3)
    received = uniformity(ranks)
    print(space, {name: f"{p:.3g}" for name, p in received.items()})
    assert set(HYPER_PARAMETERS) <= set(received)
    assert min(received.values()) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.long
def test_calibration_finds_wrong_spreads():
    problem = CalibrationProblem.small().with_spread(SPREADS).misjudging_spreads(1.5)
    ranks = calibration_ranks(SpaceCalibration(problem), DATA_SETS, seed=4, chain=SPLIT)
    received = uniformity(ranks)
    print({name: f"{p:.3g}" for name, p in received.items()})
    assert min(received.values()) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"


@pytest.mark.long
def test_calibration_finds_a_wrong_temperature():
    # The residual of a weight draw shows the temperature; p(y | U_1) hardly does, since the noise
    # of the labels is common to the truth and to all draws.
    problem = CalibrationProblem.small().misjudging_temperature(1.3)
    ranks = calibration_ranks(
        SpaceCalibration(problem, "weights"), 2 * DATA_SETS, seed=2, chain=SPLIT
    )
    received = uniformity(ranks)
    print({name: f"{p:.3g}" for name, p in received.items()})
    assert received["log likelihood"] < SMALLEST_P, f"expected p < {SMALLEST_P}, {received}"


@pytest.mark.long
def test_calibration_finds_wrong_degrees_of_freedom():
    problem = CalibrationProblem.small().misjudging_degrees(2)
    ranks = calibration_ranks(SpaceCalibration(problem), 2 * DATA_SETS, seed=2, chain=SPLIT)
    received = uniformity(ranks)
    print({name: f"{p:.3g}" for name, p in received.items()})
    assert min(received.values()) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.long
def test_ranks_are_uniform_for_split_trajectories_in_single_precision(space):
    problem = CalibrationProblem.small()
    ranks = calibration_ranks(SpaceCalibration(problem, space), DATA_SETS, seed=6, chain=SPLIT)
    received = uniformity(ranks)
    print(space, {name: f"{p:.3g}" for name, p in received.items()})
    assert min(received.values()) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


class Unadjusted(SplitChain):
    """Every trajectory is accepted, whatever its energy."""

    def advance(self, shared, state, space, mean):
        key, kick = jax.random.split(state["key"])
        momentum = jax.random.normal(kick, state["z"].shape)
        standard = Gaussian.standard(state["z"])
        here, first, step = state["z"], state["slope"], jnp.asarray(0.8)
        z, _, potential, slope = trajectory(here, momentum, first, standard, step, 2, space)
        new = {"key": key, "z": z, "lp": -potential, "slope": slope}
        return shared, new, {}


def test_calibration_finds_trajectories_that_are_never_refused():
    problem = CalibrationProblem.small()
    chain = Unadjusted(SPLIT.chains, SPLIT.warmup, SPLIT.target_acceptance, SPLIT.max_steps)
    space = SpaceCalibration(problem)
    received = uniformity(calibration_ranks(space, DATA_SETS, seed=6, chain=chain))
    print({name: f"{p:.3g}" for name, p in received.items()})
    assert min(received.values()) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
