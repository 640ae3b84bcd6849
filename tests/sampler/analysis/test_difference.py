"""What is said of a difference between theory and samples is right as often as it claims."""

import numpy as np
import pytest
from scipy.stats import chi2, ncx2, norm, t

from sampler.analysis.difference import (
    FEWEST_DEGREES,
    Noise,
    SquaredDistance,
    difference_of,
    element_bound,
    largest_by_chance,
    relative_elements,
)
from sampler.analysis.estimates import OF_CHAINS, Estimate
from tests.small import autoregressive

CHAINS, DRAWS, RUNS = 4, 300, 400
CORRELATION = 0.5


def estimates(
    rng: np.random.Generator, spread: np.ndarray, truth: np.ndarray, runs: int
) -> list[Estimate]:
    """Means of autocorrelated draws of these true values; spread: [direction, element]."""
    found = []
    for _ in range(runs):
        draws = autoregressive(rng, CORRELATION, (CHAINS * len(spread), DRAWS))
        draws = np.moveaxis(draws.reshape(CHAINS, len(spread), DRAWS), 1, 2)
        found.append(OF_CHAINS.mean(draws @ spread + truth))
    return found


def test_the_square_of_a_difference_has_no_bias(rng):
    """Without a difference it is negative as often as its noise asks for, and 0 on average."""
    elements, batches, runs = 50, 40, 2000
    spread = rng.normal(size=(elements, elements)) / np.sqrt(elements)
    squares = []
    for run in range(runs):
        means = rng.normal(size=(batches, elements)) @ spread
        deviations = (means - means.mean(axis=0)) / np.sqrt(batches * (batches - 1))
        variances, mean = np.sum(deviations**2, axis=0), means.mean(axis=0)
        noise = Noise.of(deviations, float(np.sum(variances)), batches - 1)
        squares.append(SquaredDistance.of(mean, mean, noise).excess)
        if run % 100 == 0:  # a difference has it, with an interval that takes long to find
            estimate = Estimate(mean, np.sqrt(variances), deviations, batches - 1)
            whole = difference_of(np.zeros(elements), estimate, unit="1")
            assert whole["square"] == pytest.approx(squares[-1], rel=1e-9, abs=1e-12)
    noise = np.trace(spread.T @ spread) / batches
    error = np.std(squares) / np.sqrt(runs)
    assert abs(np.mean(squares)) < 4.0 * error
    assert error < 0.01 * noise  # what would be added without the correction


def squared_distance(square, trace, trace_of_square, along, degrees) -> SquaredDistance:
    """One whose noise is given by its traces."""
    return SquaredDistance(square, Noise(np.zeros((1, 1)), trace, trace_of_square, degrees), along)


@pytest.mark.parametrize(("elements", "size"), [(1, 0.0), (1, 3.0), (6, 0.0), (6, 2.5), (80, 5.0)])
def test_the_law_of_a_squared_distance_is_the_noncentral_chi_square(elements, size):
    """Equal variances and many degrees of freedom, where the law is known exactly."""
    distance = squared_distance(0.0, float(elements), float(elements), 1.0, 10**12)
    for probability in (0.025, 0.25, 0.5, 0.75, 0.975):
        exact = (
            ncx2.ppf(probability, elements, size**2) if size else chi2.ppf(probability, elements)
        )
        # Three moments agree; without a difference it is the law itself.
        tolerance = 0.012 if size else 1e-8
        assert distance.below(exact, size**2) == pytest.approx(probability, abs=tolerance)


def test_a_covariance_known_by_few_batches_widens_the_law_as_student_t_is_wider():
    trace, many, few = 4.0, 10**12, 11
    known, estimated = (squared_distance(0.0, trace, 2.0, 0.7, n) for n in (many, few))
    mean = 1.5 + trace
    for away in (-2.0, 0.7, 3.0):
        expected = known.below(mean + away, 1.5)
        received = estimated.below(mean + away * t.std(few), 1.5)
        assert received == pytest.approx(expected, rel=1e-9)


def test_what_noise_happens_to_hide_is_not_excluded():
    """A mean that is closer to the theory than noise allows: no bound of 0 follows."""
    estimate = Estimate(np.full(3, 1.0), np.full(3, 0.1), 0.1 * np.eye(3), 39)
    received = difference_of(np.full(3, 1.0), estimate)
    assert received["state"] == "agrees"
    assert received["difference"] == 0.0
    assert received["square"] < 0.0
    assert 0.1 < received["below"] < 0.4


@pytest.mark.parametrize(
    ("mcse", "degrees", "expected"),
    [
        (0.001, 39, "resolved"),
        (0.001, FEWEST_DEGREES - 1, "not enough draws"),
        (0.9, 39, "not enough draws"),  # the quantity itself is hardly there
    ],
)
def test_what_can_be_said_of_a_difference(mcse, degrees, expected):
    estimate = Estimate(np.array([1.0]), np.array([mcse]), None, degrees)
    assert difference_of(np.array([0.5]), estimate)["state"] == expected


@pytest.mark.parametrize("degrees", [0, 1, 2])
def test_of_errors_known_by_almost_nothing_nothing_is_said(degrees):
    value = np.array([1.0, 2.0])
    for deviations in (None, 0.01 * np.ones((degrees + 1, 2))):
        estimate = Estimate(value, np.full(2, 0.01), deviations, degrees)
        received = difference_of(2.0 * value, estimate)
        assert received["state"] == "not enough draws"
        assert received["difference"] == pytest.approx(1.0, abs=1e-3)


def test_elements_without_a_number_are_left_out():
    values, mcse = np.array([1.5, 3.0, 2.0]), np.array([0.1, 0.1, np.nan])
    theory = np.array([1.0, np.nan, 2.0])
    received = difference_of(theory, Estimate(values, mcse, None, 39))
    assert received["compared"] == 1
    nothing = Estimate(values, np.full(3, np.nan), None, 39)
    assert difference_of(theory, nothing) == {}


@pytest.mark.parametrize("degrees", [7, 39, 10**9])
def test_many_errors_are_allowed_a_larger_worst_one(degrees, rng):
    """The larger, the fewer batches the errors are known by: pulls have Student's tails."""
    chance = 2.0 * norm.sf(3.0)
    assert 2.0 * t.sf(largest_by_chance(1, degrees), degrees) == pytest.approx(chance, rel=1e-9)
    limit, runs = largest_by_chance(200, degrees), 5000
    deviations = np.sqrt(rng.chisquare(degrees, (runs, 200)) / degrees)
    largest = np.abs(rng.normal(size=(runs, 200)) / deviations).max(axis=1)
    # As rarely as one error of known size exceeds 3: 0.27 %; five standard errors of the trials.
    assert abs((largest > limit).mean() - chance) < 5.0 * np.sqrt(chance / runs)


ELEMENTS = 400


def one_wrong(pull: float, degrees: int = 39, elements: int = ELEMENTS) -> dict:
    """Elements as far from the theory as independent noise is, and one that is further."""
    gaps = norm.ppf((np.arange(elements) + 0.5) / elements)
    gaps[0] = pull
    deviations = np.eye(elements)
    return difference_of(
        np.full(elements, 20.0) - gaps,
        Estimate(np.full(elements, 20.0), np.ones(elements), deviations, degrees),
    )


@pytest.mark.parametrize(
    ("pull", "degrees", "expected"),
    [(4.0, 39, "agrees"), (6.0, 39, "differs"), (6.0, 8, "agrees"), (25.0, 39, "resolved")],
)
def test_a_single_element_that_is_off_is_seen(pull, degrees, expected):
    """Noise of 400 others hides it from the interval of all together, not from its own error."""
    received = one_wrong(pull, degrees)
    assert received["state"] == expected
    is_rare = 2.0 * t.sf(pull, degrees) * ELEMENTS < 2.0 * norm.sf(3.0)
    limit = largest_by_chance(received["compared"], received["degrees"])
    assert (expected in ("differs", "resolved")) == is_rare == (received["largest_mcse"] > limit)
    assert (received["low"] > 0.0) == (expected == "resolved")
    assert pull / (20.0 * np.sqrt(ELEMENTS)) < received["below"] < 0.1


def test_errors_of_relative_elements_are_how_far_they_scatter(rng):
    """Means of Wishart matrices, independent runs: a theory a quarter, all and twice of them."""
    runs, draws, width = 200, 100, 4
    mixed = np.linalg.cholesky([[2.0, 0.3, 0.9], [0.3, 0.5, -0.2], [0.9, -0.2, 1.0]])
    truth = mixed @ mixed.T
    size = np.sqrt(np.diagonal(truth))
    rows = mixed @ rng.standard_normal((runs, 2, draws, 3, width))
    estimates = [OF_CHAINS.mean(one @ one.swapaxes(-1, -2) / width) for one in rows]
    for factor in (0.25, 1.0, 2.0):
        theory = factor * truth
        true = (truth - theory) / np.outer(size, size)
        found = [relative_elements(theory, one) for one in estimates]
        values, errors = (np.array(part) for part in zip(*found, strict=True))
        scatter = np.sqrt(np.mean((values - true) ** 2, axis=0))
        # Both are known to 1/√(2 runs), 5 %, and to the bias of the second order in the noise.
        np.testing.assert_allclose(errors.mean(axis=0), scatter, rtol=5.0 / np.sqrt(2 * runs))


def test_a_bound_of_one_element_is_that_of_a_difference_of_one_number():
    for gap, mcse, degrees in ((0.0, 0.1, 39), (0.15, 0.1, 39), (0.15, 0.1, 9)):
        estimate = Estimate(np.array([1.0]), np.array([mcse]), None, degrees)
        whole = difference_of(np.array([1.0 - gap]), estimate, unit="1")
        assert element_bound(gap, mcse, degrees) == pytest.approx(whole["below"], rel=1e-12)
