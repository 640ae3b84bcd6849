"""Bridge sampling: the evidence of chains against quadrature, limits and importance weights."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.mcmc.marginal_likelihood import (
    bridge,
    bridge_evidence,
    bridge_halves,
    evidence_of_halves,
)
from sampler.posterior.importance_sampling import BatchedDensity, proposal_about
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.space import Gaussian
from tests.assertions import assert_within_mcse
from tests.problems import (
    NUTS,
    exact_scalar_posterior,
    sampled,
    scalar_problem,
    space_of,
)


def chains(space, *, count: int = 4, draws: int = 1000) -> np.ndarray:
    """Points [chain, draw, coordinate] of NUTS chains."""
    collected = sampled(space, NUTS, chains=count, warmup=300, draws=draws, seed=3)
    sites = stored_sites(collected.draws, float(space.temperature))
    return np.concatenate([sites[name] for name in space.shapes], axis=-1)


@pytest.mark.heavy
def test_one_head_by_quadrature(rng):
    problem, test = scalar_problem(rng)
    exact = exact_scalar_posterior(problem, test).log_evidence
    space = space_of(problem)
    halves = bridge_halves(space, chains(space), seed=1)
    for half in halves:
        assert_within_mcse(half.value, exact, half.error)
    found = evidence_of_halves(*halves)
    assert found.trusted, found.text
    assert found.error < 0.02
    assert_within_mcse(found.value, exact, found.error)
    # The mean of two independent halves has half the error of their difference.
    one, other = halves
    assert found.value == pytest.approx(0.5 * (one.value + other.value), rel=1e-12)
    assert found.error == pytest.approx(0.5 * np.hypot(one.error, other.error), rel=1e-12)
    # Draws of another posterior are not those of this one: the estimate must depend on them.
    warmer = chains(space_of(replace(problem, temperature=8 * problem.temperature)))
    wrong = bridge_evidence(space, warmer, seed=1)
    assert abs(wrong.value - exact) > 4 * wrong.error


@pytest.mark.heavy
def test_the_error_has_a_part_of_each_of_both_samples(rng):
    """Independent draws of N(0, 1), and a t beside it: estimates spread as their errors say."""
    any_space = space_of(scalar_problem(rng)[0], whitened=False)
    proposal = proposal_about(Gaussian(jnp.array([1.0]), jnp.array([[0.7**0.5]])))

    class Normal(BatchedDensity):
        def __call__(self, points):
            return -0.5 * points[:, 0] ** 2

    scores = []
    for _ in range(300):
        draws = rng.standard_normal((4, 100, 1))
        found, error, _ = bridge(proposal, Normal(any_space, 1), draws, rng)
        scores.append(((found - 0.5 * np.log(2.0 * np.pi)) / error) ** 2)
    low, high = scipy.stats.chi2.ppf([1e-4, 1 - 1e-4], len(scores))
    assert low < np.sum(scores) < high


def test_chains_that_never_move_are_not_trusted(rng):
    problem, _ = scalar_problem(rng)
    space = space_of(problem)
    stuck = np.tile(np.array([0.1, -0.2]), (2, 20, 1))
    found = bridge_evidence(space, stuck, seed=1)
    assert not found.trusted
    with pytest.raises(ValueError, match="at least 8"):
        bridge_evidence(space, stuck[:, :7], seed=1)
