"""Simulation-based calibration of tempered particles, and an error that it must find."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.mcmc.tempering import TemperedDensity, begin, next_temperature
from sampler.posterior.density import Density
from sampler.posterior.modes import StartLaw
from tests.calibration import CalibrationProblem, OrderParameterCalibration, simulate
from theory.architecture import HyperPriors

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]
DATA_SETS, PARTICLES, KEPT, BINS = 128, 96, 7, 8
SPREADS = HyperPriors(temperature_spread=0.5, variance_spread=0.4)
SMALLEST_P = 1e-3


def ranks_of_truth(problem: CalibrationProblem, seed: int) -> np.ndarray:
    """Rank of the truth among a few particles of one repetition, [data set, quantity].

    Few of many: two of them seldom descend from one ancestor.
    """
    space = OrderParameterCalibration(problem)
    simulated = jax.jit(jax.vmap(partial(simulate, problem=problem)))
    keys = jax.random.split(jax.random.key(seed), DATA_SETS)
    positions, labels = simulated(keys)
    # One density for all: what is compiled for it serves every data set.
    density: Density = space.density(labels[0])
    energy, chain = density.arguments
    law = StartLaw.prior(density)
    truth = jax.jit(space.truth)
    drawn = jax.jit(jax.vmap(space.drawn, in_axes=(0, 0, None)))
    ranks = []
    for number, key in enumerate(keys):
        here = replace(density, arguments=(replace(energy, labels=labels[number]), chain))
        particles = begin(here, law, PARTICLES, (seed, number))
        while not particles.finished:
            particles = next_temperature(particles, here, law, 0.8, (seed, number))
        chosen = np.random.default_rng((seed, number)).choice(PARTICLES, KEPT, replace=False)
        points = jnp.asarray(particles.points[chosen])
        at = jax.vmap(density.coordinates.unflatten)(points)
        one, *others = jax.random.split(jax.random.fold_in(key, 1), KEPT + 1)
        known = truth(one, jax.tree.map(lambda v, n=number: v[n], positions), labels[number])
        found = drawn(jnp.stack(others), at, labels[number])
        ranks.append(np.asarray(jnp.sum(found < known, axis=0)))
    return np.array(ranks)


def p_values(ranks: np.ndarray) -> np.ndarray:
    """χ² p-value of uniform ranks for every quantity."""
    counts = np.stack([np.bincount(column, minlength=BINS) for column in ranks.T])
    return scipy.stats.chisquare(counts, axis=1).pvalue


@pytest.mark.parametrize("sampled", [False, True], ids=["known", "temperature and variances"])
def test_ranks_of_the_truth_are_uniform(sampled):
    problem = CalibrationProblem.small()
    if sampled:
        problem = problem.with_hyper_priors(SPREADS)
    received = p_values(ranks_of_truth(problem, seed=1))
    print(received)
    assert received.min() > SMALLEST_P, f"expected p > {SMALLEST_P}, received {received}"


def test_calibration_finds_trajectories_that_see_too_little_of_the_labels(monkeypatch):
    """Particles are moved as if the power of the likelihood were 0.4 of what it is."""
    right = TemperedDensity.log_density

    def wrong(self, position):
        return right(replace(self, power=0.4 * self.power), position)

    monkeypatch.setattr(TemperedDensity, "log_density", wrong)
    received = p_values(ranks_of_truth(CalibrationProblem.small(), seed=2))
    print(received)
    assert received.min() < SMALLEST_P, f"expected p < {SMALLEST_P}, received {received}"
