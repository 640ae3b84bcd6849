"""Predictive quality and calibration of theory, GP limit and samples: against loops, and on
predictors that are known.
"""

import math

import numpy as np
import pytest
import xarray as xr
from scipy.special import expit
from scipy.stats import norm

from sampler.analysis.draws_table import draws_tree
from sampler.analysis.names import predictor_dimensions, squeeze_output
from sampler.analysis.predictive_quality import (
    BINS,
    calibration,
    calibration_error,
    gaussian,
    log_densities,
    mixture,
    predictive_quality,
    probability_of_positive,
    quality,
    reliability,
    sampled_quality,
    wilson_interval,
)
from sampler.storage.results import to_json
from tests.assertions import assert_equal_to_rounding
from tests.small import (
    TEST,
    collect,
    healthy_statistics,
    random_observables,
    signs,
    small_problem,
)

TEMPERATURE = 0.2  # of the small problem


def theory_of(rng, outputs=1) -> xr.Dataset:
    """A theory and a GP limit with any predictors."""
    axes = predictor_dimensions(outputs)
    columns = {
        f"{who}_{moment}": (axes, squeeze_output(values(rng, (TEST, outputs))))
        for who in ("predictor", "gp")
        for moment, values in (("mean", normal), ("variance", positive))
    }
    return xr.Dataset(columns)


def normal(rng, shape):
    return rng.standard_normal(shape)


def positive(rng, shape):
    return rng.uniform(0.1, 1.0, shape)


def stored_tree(rng, labels, *, rao_blackwell, **settings) -> xr.DataTree:
    outputs = 1 if labels is None else labels.shape[1]
    problem = small_problem(rng, outputs=outputs, labels_test=labels)
    observables = random_observables(problem, rng)
    if rao_blackwell:
        shape = observables["predictor"].shape
        observables |= {
            "predictor_mean": normal(rng, shape), "predictor_variance": positive(rng, shape)
        }  # fmt: skip
    return draws_tree(
        problem, collect(observables, healthy_statistics(rng), **settings), {"algorithm": "nuts"}
    )


def plain_quality(density, labels):
    """Log predictive density and p₊ from density(example, output, label), one by one."""
    logs, probabilities = [], np.empty(labels.shape)
    for i, c in np.ndindex(*labels.shape):
        plus, minus = density(i, c, 1.0), density(i, c, -1.0)
        logs.append(math.log(plus if labels[i, c] > 0 else minus))
        probabilities[i, c] = plus / (plus + minus)
    return math.fsum(logs) / len(logs), probabilities


def mean_probability(found) -> float:
    rows = found.reliability
    return sum(r.count * r.mean_probability for r in rows) / sum(r.count for r in rows)


def test_probability_of_one_gaussian_is_a_logistic_function(rng):
    mean, variance = normal(rng, (7, 2)), positive(rng, (7, 2))
    received = probability_of_positive(log_densities(mean, variance, TEMPERATURE))
    expected = 1 / (1 + np.exp(-2 * mean / (variance + TEMPERATURE)))
    assert_equal_to_rounding(received, expected, operations=100, scale=1.0)
    densities = log_densities(mean, variance, TEMPERATURE)
    for place, label in enumerate((1.0, -1.0)):
        expected = norm.logpdf(label, mean, np.sqrt(variance + TEMPERATURE))
        assert_equal_to_rounding(densities[..., place], expected, operations=20)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("rao_blackwell", [True, False])
def test_all_three_are_those_of_a_loop(outputs, rao_blackwell, rng):
    labels = rng.choice([-1.0, 1.0], (TEST, outputs))
    tree, theory = stored_tree(rng, labels, rao_blackwell=rao_blackwell), theory_of(rng, outputs)
    received = predictive_quality(theory, tree)

    def moments(table, prefix):
        return [table[f"{prefix}_{m}"].values.reshape(labels.shape) for m in ("mean", "variance")]

    posterior = tree["predictions"].to_dataset()

    def draws_of(name):
        return posterior[name].values.astype(float).reshape(-1, *labels.shape)

    densities = {}
    for who, prefix in (("theory", "predictor"), ("gp", "gp")):
        mean, variance = moments(theory, prefix)
        densities[who] = lambda i, c, y, m=mean, v=variance: norm.pdf(
            y, m[i, c], math.sqrt(v[i, c] + TEMPERATURE)
        )
    if rao_blackwell:
        means, variances = draws_of("predictor_mean"), draws_of("predictor_variance")
        densities["sampled"] = lambda i, c, y: (
            math.fsum(
                norm.pdf(y, m, math.sqrt(v + TEMPERATURE))
                for m, v in zip(means[:, i, c], variances[:, i, c], strict=True)
            )
            / len(means)
        )
    else:
        drawn = draws_of("predictor")
        densities["sampled"] = lambda i, c, y: norm.pdf(
            y, drawn[:, i, c].mean(), math.sqrt(drawn[:, i, c].var(ddof=1) + TEMPERATURE)
        )
    assert received.sampled.predictive == ("mixture" if rao_blackwell else "gaussian")
    for who, density in densities.items():
        expected, probabilities = plain_quality(density, labels)
        found = getattr(received, who)
        assert_equal_to_rounding(
            found.log_predictive_density.value, expected, operations=1000, scale=10.0
        )
        assert_equal_to_rounding(
            mean_probability(found), probabilities.mean(), operations=1000, scale=1.0
        )
        assert sum(row.count for row in found.reliability) == labels.size
        assert 0 <= found.expected_calibration_error.value <= 1


def test_densities_of_some_batches_have_their_own_mean_and_variance(rng):
    """What a bootstrap asks for: means of batches that are not the mean over all draws."""
    values = normal(rng, (2, 30, TEST, 1))
    batches, densities = gaussian(values, (TEST, 1), TEMPERATURE)
    some = values.reshape(-1, 3, TEST, 1)[:4]
    mean, square = some.mean(axis=(0, 1)), (some**2).mean(axis=(0, 1))
    expected = log_densities(mean, (square - mean**2) * 60 / 59, TEMPERATURE)
    assert_equal_to_rounding(densities(batches[:4].mean(axis=0)), expected, operations=1000)


def test_the_error_of_a_density_is_that_of_a_mean_over_examples(rng):
    labels = rng.choice([-1.0, 1.0], (TEST, 2))
    mean, variance = normal(rng, (TEST, 2)), positive(rng, (TEST, 2))
    found = quality(log_densities(mean, variance, TEMPERATURE), labels)
    logs = norm.logpdf(labels, mean, np.sqrt(variance + TEMPERATURE)).mean(axis=1)
    score = found.log_predictive_density
    assert_equal_to_rounding(score.value, logs.mean(), operations=100, scale=10.0)
    error = logs.std(ddof=1) / np.sqrt(TEST)
    assert_equal_to_rounding(score.error, error, operations=100, scale=10.0)


def test_densities_that_underflow_still_have_logarithms():
    """Every draw as far from the label as exp cannot say."""
    drawn = {
        "predictor_mean": np.full((2, 10, 3), 1.0),
        "predictor_variance": np.full((2, 10, 3), 1e-5),
    }
    batches, densities = mixture(drawn, (3, 1), np.asarray(1e-5))
    expected = norm.logpdf(-1.0, 1.0, math.sqrt(2e-5))
    assert math.exp(expected) == 0.0
    received = densities(batches.mean(axis=0))[..., 1]
    assert_equal_to_rounding(received, np.full((3, 1), expected), operations=20)


def test_every_draw_has_its_own_temperature(rng):
    """p(y) = ⟨N(y; m_d, v_d + 𝒯_d)⟩ with temperatures over three orders of magnitude."""
    labels, shape = signs(rng), (2, 20, TEST, 1)
    drawn = {
        "predictor_mean": normal(rng, shape),
        "predictor_variance": positive(rng, shape),
        "temperature": 10.0 ** rng.uniform(-2.0, 1.0, shape[:2]),
    }
    received = sampled_quality(drawn, labels, TEMPERATURE)
    assert received.predictive == "mixture"
    means, variances = (
        drawn[f"predictor_{moment}"].reshape(-1, TEST, 1) for moment in ("mean", "variance")
    )
    temperatures = drawn["temperature"].reshape(-1)

    def density(i, c, y):
        deviations = np.sqrt(variances[:, i, c] + temperatures)
        return math.fsum(norm.pdf(y, means[:, i, c], deviations)) / temperatures.size

    expected, probabilities = plain_quality(density, labels)
    assert_equal_to_rounding(
        received.log_predictive_density.value, expected, operations=1000, scale=10.0
    )
    assert_equal_to_rounding(
        mean_probability(received), probabilities.mean(), operations=1000, scale=1.0
    )


def test_one_gaussian_has_the_mean_temperature(rng):
    """Draws of all weights: the variance of a label is Var[f] and the mean temperature."""
    labels, shape = signs(rng), (2, 20, TEST, 1)
    drawn = {
        "predictor": normal(rng, shape),
        "temperature": 10.0 ** rng.uniform(-2.0, 1.0, shape[:2]),
    }
    received = sampled_quality(drawn, labels, TEMPERATURE)
    assert received.predictive == "gaussian"
    flat = drawn["predictor"].reshape(-1, TEST, 1)
    deviation = np.sqrt(flat.var(axis=0, ddof=1) + drawn["temperature"].mean())
    expected = norm.logpdf(labels, flat.mean(axis=0), deviation).mean()
    assert_equal_to_rounding(
        received.log_predictive_density.value, expected, operations=1000, scale=10.0
    )


def test_draws_that_hardly_differ_have_no_negative_variance(rng):
    """Far from 0 the spread of f is lost in the rounding of its square, and 𝒯 does not hide it."""
    labels, temperature = signs(rng), 1e-30
    drawn = {"predictor": 1e3 + 1e-13 * normal(rng, (2, 20, TEST, 1))}
    received = sampled_quality(drawn, labels, temperature)
    assert np.isfinite(received.log_predictive_density.value)
    assert np.isfinite(received.log_predictive_density.mcse)


def test_draws_that_are_not_finite_have_no_quality(rng):
    mean = normal(rng, (2, 20, TEST, 1))
    mean[1, 3] = np.nan
    drawn = {"predictor_mean": mean, "predictor_variance": np.ones_like(mean)}
    assert sampled_quality(drawn, signs(rng), TEMPERATURE) is None


def test_the_monte_carlo_error_is_the_spread_over_repetitions(rng):
    labels = rng.choice([-1.0, 1.0], (12, 1))
    centres = normal(rng, (12,))
    values, errors = [], []
    for _ in range(40):
        mean = centres + normal(rng, (4, 60, 12))
        drawn = {"predictor_mean": mean, "predictor_variance": np.full_like(mean, 0.3)}
        found = sampled_quality(drawn, labels, TEMPERATURE).log_predictive_density
        values.append(found.value)
        errors.append(found.mcse)
    reported = np.sqrt(np.mean(np.square(errors)))
    # 40 values and, in each error, 40 batches: relative errors of their deviations
    error = np.hypot(1 / np.sqrt(2 * 39), 1 / np.sqrt(40 * 2 * 39))
    assert abs(np.std(values, ddof=1) / reported - 1) <= 4 * error


@pytest.mark.parametrize("labels", ["absent", "numbers", "classes 0 and 1"])
def test_without_labels_of_two_classes_nothing_is_said(labels, rng, tmp_path):
    given = {
        "absent": None,
        "numbers": rng.standard_normal((TEST, 1)),
        "classes 0 and 1": signs(rng, 2),
    }[labels]
    tree = stored_tree(rng, given, rao_blackwell=True)
    outputs = 1 if given is None else given.shape[1]
    received = predictive_quality(theory_of(rng, outputs), tree)
    assert to_json(received) == {"theory": None, "gp": None, "sampled": None}


def plain_bins(probability, positive):
    """Members of each bin, example by example."""
    members = [[] for _ in range(BINS)]
    for p, y in zip(probability.ravel(), positive.ravel(), strict=True):
        place = 0
        while place + 1 < BINS and p >= (place + 1) / BINS:
            place += 1
        members[place].append((p, y))
    return members


def probabilities(rng, size, spread=2.0):
    """Probabilities [example, output] that cover [0, 1]."""
    return expit(spread * rng.standard_normal((size, 1)))


def test_bins_and_error_are_those_of_a_loop(rng):
    probability = np.concatenate([probabilities(rng, 200), [[0.0], [0.3], [0.5], [1.0]]])
    positive = rng.random(probability.shape) < 0.5
    rows = iter(reliability(probability, positive))
    expected = 0.0
    for place, members in enumerate(plain_bins(probability, positive)):
        if not members:
            continue
        row = next(rows)
        mean = math.fsum(p for p, _ in members) / len(members)
        share = sum(y for _, y in members) / len(members)
        assert (row.low, row.high) == (place / BINS, (place + 1) / BINS)
        assert row.count == len(members)
        assert row.fraction == share
        assert_equal_to_rounding(row.mean_probability, mean, operations=len(members))
        expected += len(members) / len(probability) * abs(mean - share)
    assert not list(rows)
    received = float(calibration_error(probability, positive))
    assert_equal_to_rounding(received, expected, operations=300, scale=1.0)
    both = np.stack([probability, 1 - probability])
    received = calibration_error(both, np.stack([positive, ~positive]))
    assert received.shape == (2,)
    assert received[0] == calibration_error(probability, positive)


def test_several_outputs_are_pooled(rng):
    probability = rng.random((50, 3))
    positive = rng.random((50, 3)) < 0.5
    expected = calibration_error(probability.reshape(-1, 1), positive.reshape(-1, 1))
    received = calibration_error(probability, positive)
    assert_equal_to_rounding(received, expected, operations=150, scale=1.0)
    assert sum(row.count for row in reliability(probability, positive)) == 150


@pytest.mark.parametrize("seed", range(5))
def test_a_calibrated_predictor_is_as_far_off_as_chance_makes_it(seed):
    rng = np.random.default_rng(seed)
    probability = probabilities(rng, 1000)
    found = calibration(probability, rng.random(probability.shape) < probability)
    assert found.value > 0  # the bias
    assert abs(found.value - found.if_calibrated) <= 4 * found.if_calibrated_deviation


def test_an_overconfident_predictor_is_further_off_than_chance(rng):
    """Twice the log odds: the error is that of the population, computed by quadrature."""
    truth = probabilities(rng, 4000)
    claimed = expit(2 * np.log(truth / (1 - truth)))
    found = calibration(claimed, rng.random(truth.shape) < truth)
    assert found.value > found.if_calibrated + 4 * found.if_calibrated_deviation
    # ∫ |p_claimed − p| over the normal log odds: no bin holds both signs, which change at ½
    grid = np.linspace(-12.0, 12.0, 200_001)
    weight = np.exp(-0.5 * (grid / 2.0) ** 2) / (2.0 * np.sqrt(2 * np.pi))
    expected = np.trapezoid(np.abs(expit(2 * grid) - expit(grid)) * weight, grid)
    assert abs(found.value - expected) <= 4 * found.error, (found, expected)


def test_the_error_of_the_calibration_error_is_its_spread_over_test_sets(rng):
    """Far from calibration, where |·| is smooth, forty test sets vary as each of them says."""
    values, errors = [], []
    for _ in range(40):
        truth = probabilities(rng, 200)
        claimed = expit(3 * np.log(truth / (1 - truth)))
        found = calibration(claimed, rng.random(truth.shape) < truth)
        values.append(found.value)
        errors.append(found.error)
    reported = np.sqrt(np.mean(np.square(errors)))
    # a standard deviation of 40 values has a relative error of 1/√(2·39)
    assert abs(np.std(values, ddof=1) / reported - 1) <= 4 / np.sqrt(2 * 39)


def test_wilson_interval_holds_the_share_where_its_score_is_one_deviation():
    positive, count = np.array([1, 3, 0, 100]), np.array([1, 7, 30, 400])
    fraction = positive / count

    def intervals(deviations):
        pairs = zip(positive.tolist(), count.tolist(), strict=True)
        return np.array([wilson_interval(*pair, deviations) for pair in pairs]).T

    for deviations in (1.0, 2.0):
        for end in intervals(deviations):
            received, expected = (fraction - end) ** 2 * count, deviations**2 * end * (1 - end)
            assert_equal_to_rounding(received, expected, operations=20, scale=count.max())
    low, high = intervals(1.0)
    assert np.all(high - low > 0)
    assert np.all(low > -1e-15)
    assert np.all(high < 1 + 1e-15)


def test_the_error_of_a_bin_is_half_its_wilson_interval(rng):
    claimed = probabilities(rng, 60)
    for found in reliability(claimed, rng.random(claimed.shape) < claimed):
        positive = round(found.fraction * found.count)
        low, high = wilson_interval(positive, found.count)
        assert found.interval() == (low, high)
        assert found.error == (high - low) / 2
        assert low < found.fraction + 1e-12
        assert high > found.fraction - 1e-12
