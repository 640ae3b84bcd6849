"""Tempered particles against known laws, and repetitions by the one contract of algorithms."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats
from jax.tree_util import register_dataclass
from numpyro import distributions as dist

from sampler.mcmc.algorithm import LARGEST_ERROR, Chunk
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.tempered import (
    FALSE_ALARMS,
    repetition_weights,
    starts_apart,
    two_starts,
)
from sampler.mcmc.tempered_smc import begin, next_power
from sampler.posterior.data import Data
from sampler.posterior.initial_distribution import (
    InitialDistribution,
    descend_from_far,
    fit_at,
    law_at_modes,
)
from sampler.posterior.space import Space
from tests.assertions import assert_within_mcse
from tests.problems import TEMPERED, chain_settings
from tests.sampler.mcmc.laws import (
    Known,
    Linear,
    evidence_of,
    led,
    repetitions,
    statistics_of_all,
)

NOISE, SEED = 0.4, 0


START = {"prior": InitialDistribution.prior, "modes": lambda space: law_at_modes(space, SEED)[0]}
DEVIATIONS = np.array([0.5, 1.0, 2.0])
PRIOR_MEAN = np.array([0.3, 0.0, -1.0])


@pytest.fixture(scope="module")
def linear() -> tuple[Space, float, np.ndarray, np.ndarray]:
    """A Gaussian posterior: space, evidence, mean and covariance."""
    rng = np.random.default_rng(4)
    features, labels = rng.standard_normal((6, 3)), 2.0 * rng.standard_normal(6)
    space = Linear.of(features, labels, NOISE, PRIOR_MEAN, DEVIATIONS)
    covariance = np.diag(DEVIATIONS**2)
    of_labels = features @ covariance @ features.T + NOISE**2 * np.eye(6)
    gain = covariance @ features.T @ np.linalg.inv(of_labels)
    evidence = scipy.stats.multivariate_normal(features @ PRIOR_MEAN, of_labels).logpdf(labels)
    return (
        space,
        float(evidence),
        PRIOR_MEAN + gain @ (labels - features @ PRIOR_MEAN),
        covariance - gain @ features @ covariance,
    )


def test_particles_descend_from_their_ancestors_at_the_start(linear):
    """With steps of no length a particle stays where its ancestor began, at every temperature."""
    start, count = START["prior"](linear[0]), 64
    course = led(start, count, (SEED, 0, 1000)).path
    still = course | {"step_size": np.full(len(course["power"]), 1e-12)}
    seed = (SEED, 0, 1)
    first, last = begin(start, count, seed), led(start, count, seed, still)
    assert last.temperatures > 1
    np.testing.assert_allclose(last.points, first.points[last.ancestor], rtol=0, atol=1e-7)


def weighted_means(made, of_points) -> tuple[np.ndarray, np.ndarray]:
    """Means by the evidences of repetitions, and their errors by the spread between these."""
    logs = np.array([one.log_evidence for one in made])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    means = np.stack([of_points(one.points).mean(axis=0) for one in made])
    mean = np.tensordot(weights, means, axes=1)
    count = len(made)
    square = np.tensordot(weights**2, (means - mean) ** 2, axes=1) * count / (count - 1)
    return mean, np.sqrt(square)


def moments(points: np.ndarray) -> np.ndarray:
    """Of each point its coordinates, and all their products."""
    products = points[:, :, None] * points[:, None, :]
    return np.concatenate([points, products.reshape(len(points), -1)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("start", START)
def test_gaussian_evidence_and_moments(start, linear):
    space, evidence, mean, covariance = linear
    made = repetitions(START[start](space))
    value, error = evidence_of(made)
    assert error < 0.1
    assert_within_mcse(value, evidence, error)
    found, errors = weighted_means(made, moments)
    second = covariance + np.outer(mean, mean)
    assert_within_mcse(found, np.concatenate([mean, second.ravel()]), errors)


def test_next_power_leaves_half_of_the_particles(rng):
    ratio = 20.0 * rng.standard_normal(400)
    power = next_power(ratio, 0.2)
    weights = np.exp((power - 0.2) * (ratio - ratio.max()))
    assert weights.sum() ** 2 / np.sum(weights**2) == pytest.approx(200.0, rel=1e-6)
    assert next_power(1e-3 * ratio, 0.2) == 1.0
    # What has no density is left behind by any step.
    ratio[::3] = -np.inf
    assert 0.2 < next_power(ratio, 0.2) < 1.0


# --- a phase that the prior does not reach

FAR, WIDTH, WEIGHT = 8.0, 0.3, 0.75
# Height of the far peak such that it has the stated weight of the posterior.
HEIGHT = (
    np.log(WEIGHT / (1.0 - WEIGHT))
    - 0.5 * np.log(WIDTH**2 / (1.0 + WIDTH**2))
    + FAR**2 / (2.0 * (1.0 + WIDTH**2))
)


@register_dataclass
@dataclass(frozen=True, eq=False, kw_only=True)
class TwoPhases(Known):
    """N(x; 0, 1) times 1 + e^HEIGHT exp(−(x_0 − FAR)²/(2 WIDTH²)): evidence 1/(1 − WEIGHT)."""

    def model(self, labels, inputs=None):
        peak = HEIGHT - (self.sample_prior()[0] - FAR) ** 2 / (2.0 * WIDTH**2)
        numpyro.sample("y", dist.Unit(jnp.logaddexp(0.0, peak)), obs=labels)


@pytest.fixture(scope="module")
def phases():
    """The space, and repetitions from the modes and from the prior."""
    numbers = {"temperature": jnp.asarray(1.0), "prior_mean": jnp.zeros(2)}
    data = Data(labels=jnp.zeros((0, 1)))
    space = TwoPhases(data=data, prior_deviations=jnp.ones(2), **numbers)
    law, gradients = law_at_modes(space, SEED)
    laws = {"modes": law, "prior": law.prior_alone}
    made = {name: repetitions(one, times=8) for name, one in laws.items()}
    return space, law, gradients, made


def test_descents_find_a_phase_that_no_prior_draw_is_in(phases):
    space, law, gradients, _ = phases
    assert law.modes == 2
    assert sorted(np.round(np.asarray(law.at_modes.centres)[:, 0], 1)) == [
        0.0,
        pytest.approx(7.3, abs=0.1),
    ]
    ends, values, count = descend_from_far(space, SEED)
    assert len(ends) == len(values) > 8
    assert gradients == count > len(ends)


@pytest.mark.parametrize("whole", [True, False])
def test_a_mode_has_the_curvature_and_the_volume_of_the_posterior(whole, monkeypatch):
    """Coordinates of their own, whose estimated Hessian has no error.

    Curvatures of the Hessian are a quarter of the prior's at least; here they are above it.
    """
    monkeypatch.setattr("sampler.posterior.initial_distribution.WHOLE_HESSIAN", 3 if whole else 2)
    features = np.diag([3.0, 1.0, 0.5])
    deviations = 1.5 * DEVIATIONS
    space = Linear.of(features, np.ones(3), NOISE, PRIOR_MEAN, deviations)
    whitening, volume = fit_at(np.array([0.3, 0.5, 1.0]), space, np.random.default_rng(0))
    precision = np.diag(features) ** 2 / NOISE**2 + deviations**-2
    found = whitening.T @ whitening if whole else np.diag(whitening**2)
    np.testing.assert_allclose(found, np.diag(precision), rtol=1e-10, atol=1e-10)
    assert volume == pytest.approx(0.5 * np.log(precision).sum(), rel=1e-12)


def test_particles_from_the_modes_know_the_weight_of_each(phases):
    *_, made = phases
    value, error = evidence_of(made["modes"])
    assert_within_mcse(value, -np.log(1.0 - WEIGHT), error)
    share, errors = weighted_means(made["modes"], lambda points: points[:, :1] > FAR / 2)
    assert_within_mcse(share, WEIGHT, errors)


@pytest.fixture(scope="module")
def stored(phases) -> dict[str, np.ndarray]:
    """Statistics of repetitions from the modes, each with one from the prior."""
    _, law, _, made = phases
    return statistics_of_all(made["modes"], made["prior"], law)


def test_two_starts_that_disagree_are_said_first(phases, stored):
    found = TEMPERED.judge(stored)
    *_, made = phases
    value, error = evidence_of(made["prior"])
    assert found.numbers["log_evidence_prior"] == value
    wider = scipy.stats.t(7).isf(scipy.stats.norm.sf(2.0)) / 2.0
    assert found.numbers["log_evidence_prior_error"] == pytest.approx(wider * error, rel=1e-12)
    assert TEMPERED.evidence(stored).trusted
    assert "from the prior missed a part" in found.warning
    assert not found.reasons  # the draws are those with the larger evidence
    weights = found.numbers["weights_of_modes"]
    far = repetition_weights(stored) @ stored["mode"].mean(axis=1)
    assert weights[1] == pytest.approx(far)
    assert sum(weights) == pytest.approx(1.0)
    ours, theirs = (stored[name] for name in ("log_evidence", "log_evidence_prior"))
    exchanged = stored | {"log_evidence": theirs, "log_evidence_prior": ours}
    found = TEMPERED.judge(exchanged)
    assert "from the modes missed a part" in found.warning
    assert len(found.reasons) == 1
    assert not TEMPERED.evidence(exchanged).trusted
    # The same evidences from both: nothing to be said.
    assert TEMPERED.judge(stored | {"log_evidence_prior": ours}).warning == ""


def test_evidences_that_scatter_are_a_reason(stored):
    scattered = stored["log_evidence"] + 3.0 * np.arange(8.0)[:, None]
    alone = {"log_evidence": scattered, "log_evidence_prior": np.full_like(scattered, np.nan)}
    found = TEMPERED.judge(stored | alone)
    assert "repetitions" in found.reasons[0]
    assert found.numbers["log_evidence_prior"] is None


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_two_errors_of_an_evidence_hold_it_however_few_repetitions_there_are(count, spread, rng):
    """ln Z of particles is normal, with the mean −σ²/2 where Z has the mean 1 (arXiv 1307.0181).

    As it scatters by up to 0.3, Z is not quite normal: one in a hundred more may be left out.
    """
    trials = 500
    logs = spread * rng.standard_normal((trials, count, 1)) - spread**2 / 2
    statistics = {
        "log_evidence_prior": np.full((count, 1), np.nan),
        "ancestor": np.ones((count, 1)),
    }
    ones = ("acceptance_rate", "lowest_acceptance", "temperatures")
    statistics |= {name: np.ones((count, 1)) for name in ones} | {"mode": np.zeros((count, 1))}
    found = [TEMPERED.evidence(statistics | {"log_evidence": one}) for one in logs]
    outside = np.mean([abs(one.value) > 2.0 * one.error for one in found])
    expected = 2.0 * scipy.stats.norm.sf(2.0)
    error = np.sqrt(expected / trials)
    assert expected - 4 * error < outside < expected + 4 * error + 0.01
    assert all(one.trusted is (one.error <= LARGEST_ERROR) for one in found)


def share_that_disagrees(rng, spreads, counts, trials: int) -> float:
    """How often starts disagree whose ln Z scatter so much about one Z, which both are right on."""
    found = []
    for _ in range(trials):
        logs = [
            spread * rng.standard_normal((count, 1)) - spread**2 / 2
            for spread, count in zip(spreads, counts, strict=True)
        ]
        both = two_starts({"log_evidence": logs[0], "log_evidence_prior": logs[1]})
        apart, most_apart = starts_apart(*both)
        found.append(abs(apart) > most_apart)
    return float(np.mean(found))


@pytest.mark.parametrize("count", [4, 6, 8])
def test_equal_starts_disagree_as_often_as_stated(count, rng):
    """Where only the prior's scatter counts and is normal, the law is Student's t exactly."""
    trials = 4000
    error = np.sqrt(FALSE_ALARMS / trials)
    share = share_that_disagrees(rng, (1e-9, 1e-3), (count, 4), trials)
    assert abs(share - FALSE_ALARMS) < 4 * error
    # Two unknown variances and a scatter that is no more normal: of the same order.
    share = share_that_disagrees(rng, (0.3, 0.3), (count, 4), trials)
    assert share < 1.5 * FALSE_ALARMS + 4 * error


# --- tempered repetitions by the one contract of algorithms: their chunks


FEATURES, LABELS, OF_LABELS = (
    np.array([[1.0, 0.4], [-0.3, 0.8]]),
    np.array([3.0, -1.0]),
    0.1,
)
SETTINGS = chain_settings(chains=3, draws=32, seed=5)


@pytest.fixture(scope="module")
def space():
    return Linear.of(FEATURES, LABELS, OF_LABELS, np.zeros(2), np.ones(2))


def made(space) -> list[Chunk]:
    """Every chunk of repetitions."""
    chunks = []
    TEMPERED.draw(space, SETTINGS, chunks.append)
    return chunks


@pytest.fixture(scope="module")
def chunks(space):
    return made(space)


def test_draws_come_one_repetition_after_the_other(space, chunks):
    drawn = [chunk for chunk in chunks if chunk.phase == "draws"]
    assert [chunk.first for chunk in drawn] == [0, 1, 2]
    assert [(chunk.done, chunk.total) for chunk in drawn] == [(1, 3), (2, 3), (3, 3)]
    for chunk in drawn:
        assert chunk.statistics["lp"].shape == (1, 32)
        # ln p(x, y) of the points themselves, and what is observed of them.
        normal = scipy.stats.norm
        expected = normal.logpdf(chunk.points[0]).sum(axis=1)
        expected += normal.logpdf(LABELS, chunk.points[0] @ FEATURES.T, OF_LABELS).sum(axis=1)
        np.testing.assert_allclose(chunk.statistics["lp"][0], expected, rtol=1e-10)
        np.testing.assert_array_equal(chunk.observables["x"], chunk.points)


def test_every_temperature_is_a_chunk_and_counts_once(chunks):
    collected = DrawCollector()
    for chunk in chunks:
        collected(chunk)
    steps = [chunk.statistics["n_steps"] for chunk in chunks if "n_steps" in chunk.statistics]
    assert collected.total("n_steps") == sum(int(one.sum()) for one in steps)
    # Pilots and repetitions from the prior are no chains.
    path, temperatures = collected.warmup_statistics, collected.statistics["temperatures"][:, 0]
    assert path["power"].shape == (3, temperatures.max())
    assert np.isfinite(path["power"]).sum(axis=1).tolist() == temperatures.tolist()
    assert path["n_steps"].sum() < collected.total("n_steps")
    lowest = np.nanmin(path["acceptance_rate"], axis=1)
    np.testing.assert_array_equal(collected.statistics["lowest_acceptance"].T, [lowest] * 32)
    assert collected.seconds["warmup"] == pytest.approx(
        sum(chunk.seconds for chunk in chunks if chunk.phase == "warmup")
    )
