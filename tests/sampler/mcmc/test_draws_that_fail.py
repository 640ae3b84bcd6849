"""Draws, weights and evidences that must not be trusted are not, and no chain ends on them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sampler.mcmc import marginal_likelihood
from sampler.mcmc.algorithm import LARGEST_ERROR, Algorithm, Chunk, Evidence
from sampler.mcmc.collected_draws import DrawCollector, Limit
from sampler.mcmc.diagnostics import diagnose
from sampler.mcmc.marginal_likelihood import MOST_APART, Bridged, evidence_of_halves
from sampler.mcmc.stopping import FIRST_CHECK, StoppingRule
from sampler.posterior import importance_sampling
from sampler.posterior.importance_sampling import LARGEST_PARETO_K, ImportanceDraws, proposal_about
from sampler.posterior.space import Gaussian
from tests.problems import NUTS, scalar_problem, space_of
from tests.small import LONG, healthy_statistics


def healthy(rng, shape=LONG):
    return {"predictor": rng.standard_normal((*shape, 6))}, healthy_statistics(rng, shape)


def test_a_chain_alone_fails_however_long_it_is(rng):
    """Nothing says that another one would go to the same place."""
    draws, statistics = healthy(rng, (1, 4 * LONG[1]))
    alone = diagnose(draws, statistics, NUTS)
    assert not alone.passed
    assert len(alone.reasons) == 1
    halves = (
        {name: values.reshape(2, -1, *values.shape[2:]) for name, values in of.items()}
        for of in (draws, statistics)
    )
    assert diagnose(*halves, NUTS).passed


def test_an_element_without_r_hat_fails_and_is_the_worst(rng):
    """Of ±1 by turns the distances from the median are all the same: 0/0 in their R-hat."""
    draws, statistics = healthy(rng)
    draws["predictor"][..., 3] = np.where(np.arange(LONG[1]) % 2, 1.0, -1.0)
    received = diagnose(draws, statistics, NUTS)
    assert not received.passed
    assert np.isnan(received.quantities["predictor"].r_hat)
    assert np.isfinite(received.quantities["log_posterior"].r_hat)
    assert {reason.split()[0] for reason in received.reasons} == {"predictor:"}


def test_draws_that_alone_were_kept_are_judged(rng):
    """Of a predictor that is too large for all of them, of which one chain stands apart."""
    draws = FIRST_CHECK
    values = rng.standard_normal((4, draws, 40))
    values[1, :, ::5] += 3.0
    statistics = {"lp": rng.standard_normal((4, draws))}
    collected = DrawCollector({"predictor": Limit(values.nbytes // 8)})
    rule = StoppingRule(Algorithm(), collected, 5000, np.inf)
    chunk = Chunk("draws", draws, 5000, statistics, {"predictor": values}, 1.0)
    collected(chunk)
    rule(chunk)
    assert "predictor" not in collected.draws
    (found,) = rule.checks
    assert not found.passed
    assert found.r_hat > 1.1


# --- weights of independent draws


@pytest.fixture(scope="module")
def space():
    return space_of(scalar_problem(np.random.default_rng(2))[0])


def narrowed(space, share: float):
    """A Gaussian (a t of very many degrees) of this share of the variance at the mode."""
    mode = space.mode.gaussian
    return proposal_about(Gaussian(mode.centre, share * jnp.asarray(mode.covariance)), degrees=1e8)


BRIDGED = Evidence(-3.0, 0.1, "bridge", True, "")


@pytest.mark.parametrize(("share", "trusted"), [(1 / 8, False), (None, True)])
def test_weights_with_a_heavy_tail_leave_the_evidence_to_chains(share, trusted, space, monkeypatch):
    """Of a Gaussian of s of the variance weights have the tail k = 1 − s, and all are finite."""
    monkeypatch.setattr(marginal_likelihood, "bridge_evidence", lambda *_: BRIDGED)
    monkeypatch.setattr(marginal_likelihood, "LARGEST_ERROR", np.inf)  # no reason here
    if share is not None:
        monkeypatch.setattr(importance_sampling, "proposal_about", lambda _: narrowed(space, share))
        monkeypatch.setattr(importance_sampling, "ROUNDS", 0)
    found = marginal_likelihood.evidence_beside(space, np.zeros((2, 8, space.size)), seed=5)
    assert (found.attributes["log_evidence_pareto_k"] <= LARGEST_PARETO_K) is trusted
    assert found.method == ("importance" if trusted else "bridge")
    assert (found.attributes["log_evidence"] == BRIDGED.value) is not trusted
    assert found.attributes["log_evidence_trusted"] == 1


def weighted(log_weights, shape: float, lost: int = 0) -> ImportanceDraws:
    """Draws with these weights, of a tail that has this shape."""
    points = np.zeros((len(log_weights), 1))
    return ImportanceDraws(points, log_weights, shape, lost)


@pytest.mark.parametrize("shape", [-0.2, 0.3, 0.5, 0.6, 0.7])
def test_the_error_of_the_evidence_falls_more_slowly_where_weights_have_no_variance(shape, rng):
    """That of a mean of n numbers whose tail is k > ½ as n^(k − 1), not as n^(−½)."""
    log_weights = rng.standard_normal(3000)
    weights = np.exp(log_weights)
    plain = weights.std(ddof=1) / weights.mean() / np.sqrt(len(weights))
    slower = 3000.0 ** (shape - 1.0) / 3000.0**-0.5 if shape > 0.5 else 1.0
    found = weighted(log_weights, shape)
    assert found.log_evidence_error == pytest.approx(slower * plain, rel=1e-9)
    assert found.trusted
    assert not weighted(log_weights, 0.7 + 1e-9).trusted
    assert not weighted(log_weights, shape, lost=1).trusted


# --- evidence of chains


@pytest.mark.parametrize(
    ("error", "apart", "trusted"),
    [
        (0.1, 1.0, True),
        (LARGEST_ERROR, MOST_APART, True),
        (0.1, 1.01 * MOST_APART, False),
        (1.01 * LARGEST_ERROR, 1.0, False),
        (0.1, np.nan, False),
        (np.nan, 1.0, False),
        (np.inf, np.nan, False),
    ],
)
def test_an_evidence_is_trusted_by_its_error_and_where_both_halves_agree(error, apart, trusted):
    halves = Bridged(apart * 2.0 * error, 2.0 * error, 0), Bridged(0.0, 0.0, 0)
    found = evidence_of_halves(*halves)
    assert found.trusted is trusted
    assert not evidence_of_halves(halves[0]._replace(lost=1), halves[1]).trusted


@pytest.mark.parametrize(
    ("spread", "shape", "lost", "method"),
    [
        (0.1, 0.7, 0, "importance"),
        (0.1, 0.71, 0, "bridge"),
        (0.1, 0.2, 3, "bridge"),
        (3.0, 0.2, 0, "bridge"),
    ],
)
def test_by_importance_an_evidence_needs_light_tails_all_densities_and_a_small_error(
    spread, shape, lost, method, space, rng, monkeypatch
):
    """What weights lose counts where bridge sampling takes their place, which lost nothing."""
    given = weighted(spread * rng.standard_normal(400), shape, lost)
    assert (given.log_evidence_error <= LARGEST_ERROR) is (spread < 1.0)
    monkeypatch.setattr(marginal_likelihood, "importance_draws", lambda *_: given)
    monkeypatch.setattr(marginal_likelihood, "bridge_evidence", lambda *_: BRIDGED)
    found = marginal_likelihood.evidence_beside(space, np.zeros((2, 8, space.size)), seed=5)
    value, error = BRIDGED.value, BRIDGED.error
    if method == "importance":
        value, error = given.log_evidence, given.log_evidence_error
    assert found.attributes == {
        "log_evidence": value, "log_evidence_error": error,
        "log_evidence_method": method, "log_evidence_trusted": int(lost == 0),
        "log_evidence_lost": lost, "log_evidence_pareto_k": shape,
    }  # fmt: skip


def test_where_no_weight_is_finite_the_evidence_is_left_to_chains(space, monkeypatch):
    def fail(*_):
        raise FloatingPointError("none has a finite density")

    monkeypatch.setattr(marginal_likelihood, "importance_draws", fail)
    monkeypatch.setattr(
        marginal_likelihood, "bridge_evidence", lambda *_: replace(BRIDGED, trusted=False)
    )
    found = marginal_likelihood.evidence_beside(space, np.zeros((2, 8, space.size)), seed=5)
    assert (found.method, found.value) == ("bridge", BRIDGED.value)
    assert found.attributes["log_evidence_trusted"] == 0
