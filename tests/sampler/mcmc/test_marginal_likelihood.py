"""Bridge sampling: the evidence of chains, and densities that are no numbers."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from sampler.mcmc import marginal_likelihood
from sampler.mcmc.algorithm import LARGEST_ERROR, Evidence
from sampler.mcmc.diagnostics import diagnose
from sampler.mcmc.marginal_likelihood import (
    MOST_APART,
    Bridged,
    bridge,
    bridge_evidence,
    bridge_halves,
    evidence_of_halves,
)
from sampler.mcmc.tempered_smc import begin
from sampler.posterior.densities import log_ratios
from sampler.posterior.importance_sampling import (
    BatchedDensity,
    ImportanceDraws,
    proposal_about,
)
from sampler.posterior.initial_distribution import InitialDistribution
from sampler.posterior.space import Gaussian
from tests.assertions import assert_within_mcse
from tests.problems import (
    NUTS,
    SPLIT_HMC,
    TEMPERED,
    autoregressive,
    sampled,
    scalar_problem,
    space_of,
)
from tests.sampler.mcmc.laws import (
    Linear,
    evidence_of,
    repetitions,
    statistics_of_all,
    with_mode,
)


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "count"), [(0.0, 100), (0.7, 400)])
def test_the_error_has_a_part_of_each_of_both_samples(correlation, count, rng):
    """Draws of N(0, 1), and a t beside it: estimates spread as their errors say.

    Independent, and of chains with autocorrelations ρ^lag.
    """
    any_space = space_of(scalar_problem(rng)[0], whitened=False)
    proposal = proposal_about(Gaussian(jnp.array([1.0]), jnp.array([[0.7**0.5]])))

    class Normal(BatchedDensity):
        def __call__(self, points):
            return -0.5 * points[:, 0] ** 2

    scores = []
    for draws in autoregressive(rng, correlation, (300 * 4, count)).reshape(300, 4, count, 1):
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


def test_each_half_is_bridged_to_a_proposal_fitted_to_the_other(rng):
    """Fitted to draws three times as wide, or to its own, it would be another proposal."""
    space = space_of(scalar_problem(rng)[0])
    early, late = 0.1 * rng.standard_normal((2, 2, 40, space.size))
    as_they_are, beside_wide, wide = (
        bridge_halves(space, np.concatenate(halves, axis=1), seed=1)
        for halves in ((early, late), (early, 3.0 * late), (3.0 * early, late))
    )
    assert beside_wide[0].value != as_they_are[0].value
    assert wide[1].value != as_they_are[1].value


# --- by importance where its weights are good, else by bridge sampling


@pytest.fixture(scope="module")
def space():
    return space_of(scalar_problem(np.random.default_rng(2))[0])


BRIDGED = Evidence(-3.0, 0.1, "bridge", True, "")


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
    logs = spread * rng.standard_normal(400)
    given = ImportanceDraws(np.zeros((400, 1)), logs, shape, lost)
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


# --- a density that is no number in a part of space: it is counted, said, and fails


LABEL, EDGE = 1.0, 1.2


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class Edged(Linear):
    """A linear model whose log density is `beyond` from `edge` on."""

    edge: Float[Array, ""]
    beyond: Float[Array, ""]

    def log_density(self, position):
        inside = position["x"][0] < self.edge
        return jnp.where(inside, super().log_density(position), self.beyond)


def edged(beyond: float, edge: float = EDGE) -> Edged:
    plain = Linear.of(np.ones((1, 1)), np.array([LABEL]), 1.0, np.zeros(1), np.ones(1))
    return Edged(**vars(plain), edge=jnp.asarray(edge), beyond=jnp.asarray(beyond))


def log_evidence(edge: float) -> float:
    """Logarithm of ∫ p(x) p(y | x) dx up to the edge."""
    normal = scipy.stats.norm
    density = lambda x: normal.pdf(x) * normal.pdf(LABEL, x)  # noqa: E731
    return float(np.log(scipy.integrate.quad(density, -10.0, edge, epsabs=1e-13)[0]))


def test_particles_count_what_is_no_number_and_may_be_zero_anywhere():
    """The evidence is that of the part with a density: right where it is zero beyond.

    Lost are draws at the start and ends of trajectories, of repetitions and of those from the prior
    beside them.
    """
    missing = log_evidence(10.0) - log_evidence(EDGE)
    assert missing > 0.1
    for beyond, counted in ((-np.inf, False), (np.nan, True), (np.inf, True)):
        law = InitialDistribution.prior(edged(beyond))
        made = repetitions(law, count=256, times=8, seed=3)
        begun = sum(begin(law, 256, (3, 0, number)).lost for number in range(8))
        lost = np.array([one.lost for one in made])
        assert bool(lost.sum() > begun) is counted
        stored = statistics_of_all(made, made[:3], law)
        assert stored["lost"][:, 0].tolist() == [*(2 * lost[:3]), *lost[3:]]
        verdict = diagnose({"x": np.stack([one.points for one in made])}, stored, TEMPERED)
        assert any("not a number" in one for one in verdict.reasons) is counted
        assert verdict.numbers["lost_points"] == stored["lost"][:, 0].sum()
        if beyond != np.inf:
            value, error = evidence_of(made)
            assert_within_mcse(value, log_evidence(EDGE), error)
        if counted:  # each begins with so many draws from the prior beyond the edge
            expected = 256 * 8 * scipy.stats.norm.sf(EDGE)
            assert abs(begun - expected) < 4.0 * np.sqrt(expected)


@pytest.mark.parametrize("algorithm", [SPLIT_HMC, NUTS], ids=["split_hmc", "nuts"])
def test_chains_beside_such_a_part_fail_and_those_beside_density_zero_say_so(algorithm):
    space = with_mode(edged(np.nan), np.array([0.0]), np.array([[0.3]]))
    found = sampled(space, algorithm, chains=2, warmup=100, draws=500)
    verdict = diagnose(found.draws, algorithm.stored(found.statistics), algorithm)
    assert not verdict.passed
    if algorithm is SPLIT_HMC:
        assert verdict.numbers["lost_points"] == found.statistics["lost"].sum() > 10
        assert verdict.numbers["divergences"] == 0
        zero = replace(space, beyond=jnp.asarray(-np.inf))
        found = sampled(zero, algorithm, chains=2, warmup=100, draws=500)
        assert found.statistics["lost"].sum() == 0


def test_what_a_bound_excludes_is_not_lost():
    """Far out, where even a bound of the density is negligible, it may overflow."""
    space = edged(np.nan)
    points = np.array([[0.0], [1.0], [EDGE + 0.1], [5.0], [60.0]])
    logs = np.array([-2.0, -2.0, np.nan, np.nan, np.nan])
    ratios, lost = log_ratios(space, points, logs, np.ones(5))
    assert lost == 2
    np.testing.assert_array_equal(ratios, [-3.0, -3.0, -np.inf, -np.inf, -np.inf])
    least = jax.vmap(space.least_potential)(jnp.asarray(points))
    plain = Linear(
        **{name: vars(space)[name] for name in vars(space) if name not in ("edge", "beyond")}
    )
    assert np.all(np.asarray(least) <= np.asarray(jax.vmap(plain.potential)(jnp.asarray(points))))
