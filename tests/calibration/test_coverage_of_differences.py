"""What is said of differences holds in 95 % of independent problems, each of another kind.

A problem has chains of its own length and correlation or a few batches, elements of its own number,
scales and correlation, true values and a theory of its own, of which the truth is known. Shares of
200 problems are known to their binomial error.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom, norm

from sampler.analysis.difference import (
    FEWEST_DEGREES,
    RELATIVE,
    UNDECIDED,
    difference_of,
    largest_by_chance,
)
from sampler.analysis.estimates import OF_CHAINS, Estimate

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
