"""Simulation-based calibration of tempered particles, and errors that it must find.

All goes as in a run, from the prior: a pilot, and repetitions that follow its course. The draws of
a data set are one particle of each repetition, so that they share no ancestor.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.posterior.initial_distribution import InitialDistribution
from tests.calibration import CalibrationProblem, SpaceCalibration
from tests.learned_calibration import LearnedCalibration
from tests.sampler.mcmc.laws import led

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
# Ranks among so many draws have one more value.
DATA_SETS, PARTICLES, REPETITIONS = 64, 32, 7
# The errors below are seen with fewer.
FEWER = 32
SMALLEST_P = 1e-3
TOO_FAR = 10.0


def fixed(wrong: bool) -> SpaceCalibration:
    """Two layers; wrongly, the readout believed to be of ten times its variance."""
    problem = CalibrationProblem.small()
    arch = problem.architecture
    variances = (*arch.variances[:-1], TOO_FAR * arch.variances[-1])
    believed = replace(arch, variances=variances) if wrong else arch
    return SpaceCalibration(replace(problem, believed_architecture=believed))


def learned(wrong: bool) -> LearnedCalibration:
    """Two learned heads; wrongly, with logits believed to vary ten times less."""
    return LearnedCalibration(1.0 / TOO_FAR if wrong else 1.0)


SPACES = {"fixed": fixed, "learned": learned}


def ranks_of_truth(calibration, seed: int, data_sets: int = DATA_SETS) -> np.ndarray:
    """Rank of the truth among one particle of each repetition, [data set, quantity]."""
    keys = jax.random.split(jax.random.key(seed), data_sets)
    positions, labels = jax.jit(jax.vmap(calibration.simulate))(keys)
    # One space for all: what is compiled for it serves every data set.
    space = calibration.space(labels[0])
    truth = jax.jit(calibration.truth)
    drawn = jax.jit(jax.vmap(calibration.drawn, in_axes=(0, 0, None)))
    ranks = []
    for number, key in enumerate(keys):
        here = space.with_labels(labels[number])
        law = InitialDistribution.prior(here)
        course = led(law, PARTICLES, (seed, number, REPETITIONS)).path
        points = []
        for n in range(REPETITIONS):
            made = led(law, PARTICLES, (seed, number, n), course)
            # Of equal weight, in an order by chance: any one of them.
            points.append(made.points[0])
        at = space.unflatten(jnp.asarray(np.stack(points)))
        one, *others = jax.random.split(jax.random.fold_in(key, 1), REPETITIONS + 1)
        known = truth(one, jax.tree.map(lambda v, n=number: v[n], positions), labels[number])
        found = drawn(jnp.stack(others), at, labels[number])
        ranks.append(np.asarray(jnp.sum(found < known, axis=0)))
    return np.array(ranks)


def p_values(ranks: np.ndarray) -> np.ndarray:
    """χ² p-value of uniform ranks for every quantity."""
    counts = np.stack([np.bincount(column, minlength=REPETITIONS + 1) for column in ranks.T])
    return scipy.stats.chisquare(counts, axis=1).pvalue


def judge(ranks: np.ndarray, wrong: bool) -> None:
    """Uniform at the level of `SMALLEST_P` for each quantity, or clearly not, where it is wrong."""
    received = p_values(ranks)
    if wrong:
        assert received.min() < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
    else:
        assert received.min() > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.long
def test_ranks_of_the_truth_are_uniform(name):
    judge(ranks_of_truth(SPACES[name](wrong=False), seed=1), wrong=False)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.long
def test_calibration_finds_what_is_believed_wrongly(name):
    judge(ranks_of_truth(SPACES[name](wrong=True), 3, FEWER), wrong=True)
