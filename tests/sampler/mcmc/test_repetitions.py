"""What is drawn of particles is drawn anew in every repetition."""

from dataclasses import replace

import numpy as np
import pytest

from sampler.mcmc.chains import Observer
from sampler.mcmc.repetitions import MODES, Repetitions
from sampler.mcmc.tempered_smc import Particles
from sampler.posterior.initial_distribution import InitialDistribution
from tests.problems import chain_settings, scalar_problem, space_of


@pytest.mark.slow
def test_repetitions_draw_their_labels_with_numbers_of_their_own(rng):
    """Of the same particles what is computed is the same, and what is drawn is independent."""
    space, count = space_of(scalar_problem(rng)[0]), 400
    points = np.tile(0.1 * rng.standard_normal(space.size), (count, 1))
    same = np.zeros(count)
    path = {"acceptance_rate": (0.8,)}
    particles = Particles(points, same, same, np.arange(count), same, path=path)
    law, settings = InitialDistribution.prior(space), chain_settings(chains=3, draws=count)
    collected = []
    made = Repetitions(0.8, settings, collected.append, law, courses={MODES: {"power": ()}})
    observe = Observer.of(space, replace(settings, chains=1))
    for _ in range(3):
        made.finish(particles, observe)
    found = [{name: values[0] for name, values in one.observables.items()} for one in collected]
    for name in ("order_parameter", "predictor_mean"):
        assert np.ptp([of[name] for of in found], axis=0).max() == 0.0
    labels = np.stack([of["posterior_predictive"].reshape(count, -1) for of in found])
    residuals = labels - labels.mean(axis=(0, 1))
    residuals /= residuals.std(axis=(0, 1))
    for one in range(3):
        for other in range(one):
            correlation = np.mean(residuals[one] * residuals[other], axis=0)
            assert np.abs(correlation).max() < 5.0 / np.sqrt(count)
    flat = np.round(labels, 6).reshape(-1, labels.shape[-1])
    assert len(np.unique(flat, axis=0)) == 3 * count
