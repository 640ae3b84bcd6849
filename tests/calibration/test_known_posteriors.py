"""Draws and evidences against what is known otherwise: quadrature of one head, published draws."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import logsumexp

from sampler.analysis.estimates import OF_CHAINS
from sampler.mcmc.marginal_likelihood import bridge_evidence, bridge_halves, evidence_of_halves
from sampler.posterior.importance_sampling import importance_draws
from sampler.posterior.initial_distribution import InitialDistribution
from sampler.posterior.order_parameters import stored_sites
from sampler.posterior.space import TEMPERATURE
from tests.assertions import assert_within_mcse
from tests.dense import exact_scalar_posterior
from tests.problems import (
    NUTS,
    PUBLISHED_OVERLAP,
    SPLIT_HMC,
    TRIAL_OVERLAP,
    drawn_factors,
    published_draws,
    sampled,
    scalar_problem,
    space_of,
    weighted_mean_and_error,
)
from tests.sampler.mcmc.laws import evidence_of, repetitions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_annotation_checks")]


@pytest.fixture(scope="module")
def posed():
    """One head and one layer, its test inputs, and integrals over (u_a, U_1)."""
    problem, test = scalar_problem(np.random.default_rng(20240515))
    return problem, test, exact_scalar_posterior(problem, test)


def statistics(draws: dict[str, np.ndarray], exact) -> dict[str, tuple]:
    """What draws [chain, draw] have, and what is expected: of U_1 also its whole law."""
    found = {}
    for name, (mean, deviation) in (
        ("order_parameter", exact.order_parameter),
        ("readout_order_parameter", exact.readout),
        ("predictor", (exact.predictor_mean, exact.predictor_variance**0.5)),
    ):
        found[name] = draws[name], mean
        found[f"variance of {name}"] = (draws[name] - mean) ** 2, deviation**2
    cumulated = np.cumsum(exact.density) / np.sum(exact.density)
    grid = exact.log_order_parameter_grid
    for share in (0.1, 0.5, 0.9):
        # The sum up to a point of the grid reaches half a spacing beyond it.
        quantile = np.interp(share, cumulated, grid) + (grid[1] - grid[0]) / 2
        below = np.log(draws["order_parameter"]) < quantile
        found[f"share below {quantile:.3g}"] = below.astype(float), share
    return found


@pytest.mark.parametrize(
    ("space", "algorithm", "single"),
    [
        ("order_parameters", SPLIT_HMC, False),
        ("order_parameters", SPLIT_HMC, True),
        ("hidden_weights", SPLIT_HMC, False),
        ("weights", replace(NUTS, target_acceptance=0.95), False),
    ],
)
def test_chains_have_the_posterior_of_one_head(space, algorithm, single, posed):
    problem, test, exact = posed
    posterior = space_of(problem, space, test)
    posterior = posterior.with_single_gradients() if single else posterior
    collected = sampled(posterior, algorithm, chains=4, warmup=500, draws=2000, seed=1)
    assert not collected.statistics["diverging"].any()
    draws = {name: values.reshape(4, 2000, -1) for name, values in collected.draws.items()}
    for what, (values, expected) in statistics(draws, exact).items():
        found = OF_CHAINS.mean(values)
        ess = array_stats.ess(values, chain_axis=0, draw_axis=1)
        error = {"ess": ess, "minimum_ess": 400, "what": what}
        assert_within_mcse(found.value, expected, found.mcse, **error)


@pytest.mark.parametrize("adapted", [True, False])
def test_importance_draws_have_the_posterior_and_the_evidence_of_one_head(adapted, posed):
    problem, _, exact = posed
    space = space_of(problem)
    draws = importance_draws(space, 20_000, seed=1, adapted=adapted)
    assert draws.trusted, draws.explain()
    overlap, (mean, deviation) = drawn_factors(space, draws)[:, 0, 0] ** 2, exact.order_parameter
    for values, expected in ((overlap, mean), ((overlap - mean) ** 2, deviation**2)):
        received, error = weighted_mean_and_error(draws.weights, values)
        assert_within_mcse(received, expected, error, ess=draws.effective_sample_size)
    assert_within_mcse(draws.log_evidence, exact.log_evidence, draws.log_evidence_error)


def test_importance_draws_have_the_evidence_and_the_temperature_of_one_head(posed):
    """ln(𝒯/𝒯_0) ~ N(0, s²), by Gauss and Hermite over problems that have it for given."""
    problem, test, _ = posed
    points, weights = np.polynomial.hermite_e.hermegauss(32)
    shifts, logs = 0.5 * points, np.log(weights / weights.sum())
    for place, shift in enumerate(shifts):
        known = replace(problem, temperature=problem.temperature * float(np.exp(shift)))
        logs[place] += exact_scalar_posterior(known, test, points=120).log_evidence
    evidence = logsumexp(logs)
    space = space_of(replace(problem, temperature_spread=0.5))
    found = importance_draws(space, 20_000, seed=5)
    assert found.trusted, found.explain()
    assert_within_mcse(found.log_evidence, evidence, found.log_evidence_error)
    drawn = np.asarray(space.unflatten(jnp.asarray(found.points))[TEMPERATURE])[:, 0]
    mean, error = weighted_mean_and_error(found.weights, drawn)
    assert_within_mcse(mean, np.exp(logs - evidence) @ shifts, error)


def chains(space, draws: int = 1000) -> np.ndarray:
    """Points [chain, draw, coordinate] of NUTS."""
    collected = sampled(space, NUTS, chains=4, warmup=300, draws=draws, seed=3)
    sites = stored_sites(collected.draws, float(space.temperature))
    return np.concatenate([sites[name] for name in space.shapes], axis=-1)


def test_chains_have_the_evidence_of_one_head(posed):
    problem, _, exact = posed
    space = space_of(problem)
    halves = bridge_halves(space, chains(space), seed=1)
    for half in halves:
        assert_within_mcse(half.value, exact.log_evidence, half.error)
    found = evidence_of_halves(*halves)
    assert found.trusted, found.text
    assert found.error < 0.02
    assert_within_mcse(found.value, exact.log_evidence, found.error)
    # The mean of two independent halves has half the error of their difference.
    one, other = halves
    assert found.value == pytest.approx(0.5 * (one.value + other.value), rel=1e-12)
    assert found.error == pytest.approx(0.5 * np.hypot(one.error, other.error), rel=1e-12)
    # Draws of another posterior are not those of this one: the estimate must depend on them.
    warmer = chains(space_of(replace(problem, temperature=8 * problem.temperature)))
    wrong = bridge_evidence(space, warmer, seed=1)
    assert abs(wrong.value - exact.log_evidence) > 4 * wrong.error


@pytest.mark.parametrize("name", ["order_parameters", "hidden_weights", "weights"])
def test_particles_have_the_evidence_of_one_head(name, posed):
    problem, test, exact = posed
    start = InitialDistribution.prior(space_of(problem, name, test))
    made = repetitions(start, count=192, times=16)
    value, error = evidence_of(made)
    assert error < 0.3
    assert_within_mcse(value, exact.log_evidence, error)


@pytest.mark.parametrize("expected", [PUBLISHED_OVERLAP, TRIAL_OVERLAP], ids=["weights", "trial"])
def test_overlaps_of_the_published_problem(expected):
    """Of two other programs that sampled it."""
    _, draws, factors = published_draws()
    mean, mcse = weighted_mean_and_error(draws.weights, factors @ factors.swapaxes(1, 2))
    rows, columns = map(list, zip(*expected, strict=True))
    values, errors = map(np.array, zip(*expected.values(), strict=True))
    combined = np.hypot(mcse[rows, columns], errors)
    assert_within_mcse(mean[rows, columns], values, combined)
