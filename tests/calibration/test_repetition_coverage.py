"""95 % statements over repetitions hold in 95 % of independent problems, whatever their weights."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from sampler.analysis.difference import difference_of
from sampler.analysis.estimates import Averages, Estimate

PROBLEMS, PARTICLES = 200, 3
# By chance fewer of 200 are covered in one of ten thousand tests; there are sixty here.
FEWEST_COVERED = int(binom.ppf(1e-4, PROBLEMS, 0.95))


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
    for _ in range(PROBLEMS):
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
@pytest.mark.parametrize("spread", [0.1, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("count", [8, 12, 16, 32])
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
        assert np.sqrt(made.mean() / printed.mean()) <= 1.0 + 1.5 * noise / np.sqrt(PROBLEMS)
