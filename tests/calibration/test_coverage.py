"""Statements that claim 95 % hold in 95 % of independent problems, each of another kind."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import expit
from scipy.stats import binom, norm

from sampler.analysis.difference import (
    FEWEST_DEGREES,
    RELATIVE,
    UNDECIDED,
    difference_of,
    largest_by_chance,
)
from sampler.analysis.estimates import OF_CHAINS, Averages, Estimate
from tests.problems import autoregressive
from tests.sampler.mcmc.laws import checked

PROBLEMS = 200
CHAINS, EFFECTIVE = 4, 450  # effective draws at least, somewhat more than diagnostics ask for
CERTAIN = 1e-3  # chance that a method with these shares fails one assertion
TAIL = 0.025
RARE = 2.0 * norm.sf(3.0)  # chance of the largest pull to be seen as a difference


@dataclass(frozen=True)
class Said:
    """What is said of a problem, and how far the theory is truly off."""

    difference: dict
    true: float


def mean_of_chains(rng: np.random.Generator, spread: np.ndarray, truth: np.ndarray) -> Estimate:
    """Of stationary AR(1) chains of a random correlation, about as long as they have to be."""
    coefficient = rng.choice([0.0, 0.3, 0.6, 0.8])
    steps = EFFECTIVE / CHAINS * (1.0 + coefficient) / (1.0 - coefficient)
    noise = rng.standard_normal((CHAINS, int(rng.uniform(1.0, 2.0) * steps), len(truth)))
    noise[:, 1:] *= np.sqrt(1.0 - coefficient**2)
    return OF_CHAINS.mean(lfilter([1.0], [1.0, -coefficient], noise, axis=1) @ spread + truth)


def mean_of_batches(rng: np.random.Generator, spread: np.ndarray, truth: np.ndarray) -> Estimate:
    """Of a few independent Gaussian batches, at least as many as anything is said of."""
    count = int(rng.integers(FEWEST_DEGREES + 1, 17))
    scale = np.sqrt(count / EFFECTIVE)
    means = scale * rng.standard_normal((count, len(truth))) @ spread + truth
    deviations = (means - means.mean(axis=0)) / np.sqrt(count * (count - 1))
    mcse = np.sqrt(np.sum(deviations**2, axis=0))
    return Estimate(means.mean(axis=0), mcse, deviations, count - 1)


def said(rng: np.random.Generator, estimate, times: float, sparse: bool) -> Said:
    """What is said of a theory that is off by so many times what the draws resolve.

    sparse: it is off in a single element, by so many times its error.
    """
    elements = int(rng.choice([1, 3, 10, 30, 100]))
    spread = np.diag(np.exp(rng.choice([0.0, 0.5, 1.0]) * rng.normal(size=elements)))
    if rng.random() < 0.5:  # errors of elements are correlated
        spread = spread @ np.linalg.qr(rng.normal(size=(elements, elements)))[0]
    wrong = np.eye(elements)[0] if sparse else rng.normal(size=elements) @ spread
    wrong /= np.linalg.norm(wrong)
    covariance = spread.T @ spread / EFFECTIVE
    along = wrong @ covariance @ wrong
    typical = 2.0 * np.sqrt(2.0 * np.sum(covariance**2)) + 4.0 * along
    size = times * np.sqrt(along if sparse else typical)
    truth = rng.normal(size=elements)
    truth *= rng.uniform(1.0, 3.0) * np.linalg.norm(spread) / np.linalg.norm(truth)
    unit, whole = (RELATIVE, np.linalg.norm(truth)) if rng.random() < 0.5 else ("nats", 1.0)
    difference = difference_of(truth - size * wrong, estimate(rng, spread, truth), unit)
    return Said(difference, size / whole)


def pull_is_rare(of: dict) -> bool:
    return of["largest_mcse"] > largest_by_chance(of["compared"], of["degrees"])


def number_of(found: list[bool]) -> int:
    return int(np.sum(found))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimate", "times", "sparse", "seen"),
    [
        (mean_of_chains, 0.0, False, None),
        (mean_of_chains, 0.7, False, None),
        (mean_of_chains, 3.0, False, 0.99),
        (mean_of_chains, 20.0, False, 0.99),
        (mean_of_chains, 8.0, True, 0.99),
        (mean_of_batches, 0.0, False, None),
        (mean_of_batches, 4.0, False, 0.95),
        (mean_of_batches, 30.0, True, 0.95),
    ],
)
def test_statements_hold_in_as_many_problems_as_they_claim(estimate, times, sparse, seen, rng):
    """seen: the share of problems in which a difference is seen at least, if it is to be."""
    found = [said(rng, estimate, times, sparse) for _ in range(PROBLEMS)]
    assert not any(one.difference["state"] in UNDECIDED for one in found)
    most = binom.isf(CERTAIN, PROBLEMS, TAIL)
    # Either end of the interval, and the bound that stands beside "agrees" and "differs".
    assert number_of([one.true < one.difference["low"] for one in found]) <= most
    assert number_of([one.true > one.difference["high"] for one in found]) <= most
    assert number_of([one.true > one.difference["below"] for one in found]) <= most
    differs = number_of([one.difference["state"] in ("resolved", "differs") for one in found])
    if times == 0.0:
        # "Differs" and "off by" are said with 95 % confidence; by chains more rarely.
        rate = TAIL + RARE if estimate is mean_of_chains else 2.0 * TAIL
        assert differs <= binom.isf(CERTAIN, PROBLEMS, rate)
        alone = [pull_is_rare(one.difference) for one in found]
        assert number_of(alone) <= binom.isf(CERTAIN, PROBLEMS, RARE)
    if seen is not None:
        assert differs >= binom.ppf(CERTAIN, PROBLEMS, seen)


# --- 95 % statements over repetitions hold in 95 % of independent problems, whatever their weights


PROBLEMS_REPETITION_COVERAGE, PARTICLES = 200, 3
# By chance fewer of 200 are covered in one of ten thousand tests; there are eighteen here.
FEWEST_COVERED = int(binom.ppf(1e-4, PROBLEMS_REPETITION_COVERAGE, 0.95))


@dataclass(frozen=True)
class Law:
    """How ln Z and the mean of a repetition vary together.

    draw  of a generator, a number of repetitions, and the spread: ln Z and means
    true  the mean weighed by Z over the whole law, as a function of the spread
    """

    draw: Callable[[np.random.Generator, int, float], tuple[np.ndarray, np.ndarray]]
    true: Callable[[float], float]


def gaussian(correlation: float) -> Law:
    """Both Gaussian: weighed by Z, a mean that goes with ln Z is shifted by their covariance."""

    def draw(rng, count, spread):
        common, own = rng.standard_normal((2, count))
        return spread * common, correlation * common + np.sqrt(1.0 - correlation**2) * own

    return Law(draw, lambda spread: correlation * spread)


def share_of_a_mode() -> Law:
    """Z = e^{s z} + 1/2, of which the first part is one mode: its share by quadrature."""

    def shares(spread, z):
        return np.logaddexp(spread * z, np.log(0.5)), expit(spread * z - np.log(0.5))

    def true(spread):
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        logs, share = shares(spread, nodes)
        return float(np.sum(weights * np.exp(logs) * share) / np.sum(weights * np.exp(logs)))

    return Law(lambda rng, count, spread: shares(spread, rng.standard_normal(count)), true)


LAWS = {"apart": gaussian(0.0), "together": gaussian(1.0), "modes": share_of_a_mode()}


def estimates_of(law: Law, spread: float, count: int, seed: int = 0) -> list[Estimate]:
    """The weighted mean of each problem, by draws whose means are those of the repetitions."""
    rng, found = np.random.default_rng([seed, count, round(100 * spread)]), []
    for _ in range(PROBLEMS_REPETITION_COVERAGE):
        logs, means = law.draw(rng, count, spread)
        weights = np.exp(logs - logs.max())
        apart = np.array([-1.0, 0.0, 1.0])  # of the particles
        draws = (means[:, None] + apart)[..., None]
        found.append(Averages(weights / weights.sum()).mean(draws))
    return found


def covered(estimates: list[Estimate], true: float) -> int:
    """Problems whose interval has the difference from a theory that is off by ten."""
    differences = [difference_of(np.array([true - 10.0]), one, unit="nats") for one in estimates]
    assert not any(one["state"] == "not enough draws" for one in differences)
    return sum(one["low"] <= 10.0 <= one["high"] for one in differences)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("law", LAWS)
def test_intervals_have_the_difference_at_every_number(law, count, spread):
    estimates = estimates_of(LAWS[law], spread, count, seed=1)
    assert covered(estimates, LAWS[law].true(spread)) >= FEWEST_COVERED


@pytest.mark.parametrize("count", [4, 7])
def test_few_repetitions_are_not_enough_whatever_their_weights(count):
    for one in estimates_of(LAWS["together"], 0.5, count)[:20]:
        assert difference_of(np.array([0.0]), one, unit="nats")["state"] == "not enough draws"


@pytest.mark.parametrize("law", LAWS)
def test_a_printed_error_is_no_smaller_than_the_errors_that_are_made(law):
    """Root mean squares, whose ratio is known to one in √(2 · 200) from its own spread."""
    for count in (4, 8, 16):
        estimates, true = estimates_of(LAWS[law], 0.8, count, seed=2), LAWS[law].true(0.8)
        made = np.array([(float(one.value[0]) - true) ** 2 for one in estimates])
        printed = np.array([float(one.mcse[0]) ** 2 for one in estimates])
        noise = np.hypot(made.std() / made.mean(), printed.std() / printed.mean())
        assert np.sqrt(made.mean() / printed.mean()) <= 1.0 + 1.5 * noise / np.sqrt(
            PROBLEMS_REPETITION_COVERAGE
        )


# --- runs that end by `until = "trusted"`


@pytest.mark.slow
def test_the_mean_of_chains_that_the_rule_ended_is_covered_by_its_error(rng):
    """Mean ± 1.96 MCSE has the truth in 95 % of short runs, that end at different numbers."""
    covered, ends = [], []
    for _ in range(PROBLEMS):
        draws = 2.0 + autoregressive(rng, 0.6, (CHAINS, 4000))
        rule = checked(draws, -((draws - 2.0) ** 2) / 2, most=4000)
        assert rule.ended == "trusted"
        found = OF_CHAINS.mean(rule.collected.draws["x"])
        covered.append(abs(float(found.value) - 2.0) <= 1.96 * float(found.mcse))
        ends.append(rule.checks[-1].done)
    assert len(set(ends)) > 1, "the rule never had a choice"
    assert binom.ppf(CERTAIN, PROBLEMS, 0.95) <= number_of(covered)
    assert number_of(covered) <= binom.isf(CERTAIN, PROBLEMS, 0.95)
