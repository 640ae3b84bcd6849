"""Simulation-based calibration of both spaces, and two errors that it must find."""

import jax
import jax.numpy as jnp
import pytest

from sampler.mcmc.split_hmc import Begin, SplitChain, trajectory
from sampler.posterior.space import Gaussian
from tests.calibration import (
    HYPER_PARAMETERS,
    WARMUP,
    CalibrationProblem,
    SpaceCalibration,
    calibration_ranks,
    uniformity,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
SPLIT = SplitChain(chains=1, warmup=WARMUP, target_acceptance=0.9, max_steps=64)
DATA_SETS = 128
SPREADS = 0.5
SMALLEST_P = 1e-3


@pytest.mark.parametrize(
    ("space", "chain", "spread"),
    [
        ("order_parameters", None, 0.0),  # NUTS
        pytest.param("order_parameters", SPLIT, SPREADS, marks=pytest.mark.long),
        pytest.param("weights", SPLIT, 0.0, marks=pytest.mark.long),
    ],
)
def test_ranks_of_the_truth_are_uniform(space, chain, spread):
    problem = CalibrationProblem.small().with_spread(spread)
    ranks = calibration_ranks(SpaceCalibration(problem, space), DATA_SETS, seed=1, chain=chain)
    received = uniformity(ranks)
    assert set(HYPER_PARAMETERS) <= set(received) or not spread
    assert min(received.values()) > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.long
def test_calibration_finds_wrong_spreads():
    problem = CalibrationProblem.small().with_spread(SPREADS).misjudging_spreads(1.5)
    ranks = calibration_ranks(SpaceCalibration(problem), 2 * DATA_SETS, seed=4, chain=SPLIT)
    received = uniformity(ranks)
    assert min(received.values()) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"


@pytest.mark.long
def test_calibration_finds_a_wrong_temperature():
    # The residual of a weight draw shows the temperature; p(y | U_1) hardly does, since the noise
    # of the labels is common to the truth and to all draws.
    problem = CalibrationProblem.small().misjudging_temperature(1.3)
    ranks = calibration_ranks(
        SpaceCalibration(problem, "weights"), 4 * DATA_SETS, seed=2, chain=SPLIT
    )
    received = uniformity(ranks)
    assert received["log likelihood"] < SMALLEST_P, f"expected p < {SMALLEST_P}, {received}"


class Unadjusted(SplitChain):
    """Every trajectory is accepted, whatever its energy."""

    def advance(self, shared, state, space, mean):
        key, kick = jax.random.split(state["key"])
        momentum = jax.random.normal(kick, state["z"].shape)
        standard = Gaussian.standard(state["z"])
        here, step = state["z"], jnp.asarray(0.8)
        begin = Begin(-state["lp"], state["slope"], jnp.isnan(state["lp"]))
        z, _, potential, slope, _ = trajectory(here, momentum, begin, standard, step, 2, space)
        new = {"key": key, "z": z, "lp": -potential, "slope": slope}
        return shared, new, {}


def test_calibration_finds_trajectories_that_are_never_refused():
    problem = CalibrationProblem.small()
    chain = Unadjusted(SPLIT.chains, SPLIT.warmup, SPLIT.target_acceptance, SPLIT.max_steps)
    space = SpaceCalibration(problem)
    received = uniformity(calibration_ranks(space, DATA_SETS, seed=6, chain=chain))
    assert min(received.values()) < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
