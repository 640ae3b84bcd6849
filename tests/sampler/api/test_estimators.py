"""The estimators are the posterior, and behave as scikit-learn asks."""

import copy
import pickle
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

import sampler
from sampler.api import estimators
from sampler.api.estimators import seed_from
from sampler.problem import square_roots
from theory import Predictor, predict

CHAINS = {"draws": 40, "warmup": 20, "chains": 2, "space": "order_parameters", "algorithm": "hmc"}
NETWORK = {"widths": 4, "temperature": 0.3}


@pytest.fixture(scope="module")
def data():
    """Attended inputs [example, path, channel] of two layers with two heads each, and labels."""
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((13, 4, 3))
    return inputs, np.where(inputs[:, 0, 0] + 0.3 * rng.standard_normal(13) > 0, "yes", "no")


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    estimator = sampler.AttentionClassifier(heads=(2, 2), **NETWORK, **CHAINS)
    with pytest.warns(ConvergenceWarning) as caught:
        estimator.fit(X[:9], y[:9])
    (warning,) = caught
    assert issubclass(warning.category, sampler.ReliabilityWarning)
    return estimator


def test_predictions_are_averages_over_draws(data, fitted, monkeypatch):
    """Mean, variance and probability from the draws of U_1, one by one, by their definitions."""
    X, _ = data
    problem = sampler.make_problem(fitted.recipe_)
    predictor = Predictor.for_examples(problem.learning, jnp.asarray(X[9:]))
    draws = fitted.draws_["posterior"]["order_parameter"].values
    moments = [
        [np.asarray(one)[:, 0] for one in predict(predictor, jnp.asarray(factor))]
        for factor in square_roots(draws.reshape(-1, 4, 4))
    ]
    mean, variance = np.moveaxis(np.array(moments), 1, 0)
    found = fitted.predictive(X[9:])
    np.testing.assert_allclose(found["mean"].values[:, 0], mean.mean(axis=0), rtol=1e-9)
    expected = variance.mean(axis=0) + mean.var(axis=0, ddof=1)
    np.testing.assert_allclose(found["variance"].values[:, 0], expected, rtol=1e-9)
    deviation = np.sqrt(variance + NETWORK["temperature"])
    positive, negative = (norm.pdf(y, mean, deviation).mean(axis=0) for y in (1.0, -1.0))
    probability = positive / (positive + negative)
    np.testing.assert_allclose(found["probability"].values[:, 0], probability, rtol=1e-9)
    np.testing.assert_allclose(fitted.predict_proba(X[9:])[:, 1], probability, rtol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X[9:]), np.where(probability > 0.5, "yes", "no"))
    assert fitted.score(*data) == np.mean(fitted.predict(X) == data[1])
    assert fitted.reliability_.tone == "bad"
    for name in ("mean", "variance"):
        assert (found[f"{name}_mcse"].values > 0).all()
    monkeypatch.setattr(estimators, "EXAMPLES_AT_ONCE", 3)  # of four
    xr.testing.assert_allclose(fitted.predictive(X[9:]), found, rtol=1e-12)


def test_repetitions_are_weighed_by_their_evidence(data, fitted):
    """As in what `sample` returns; each number by its definition, draw by draw."""
    X, _ = data
    tree, weights = fitted.draws_.copy(), np.array([0.15, 0.85])
    statistics = tree["sample_stats"].to_dataset()
    ones = xr.ones_like(statistics["lp"])
    logs = xr.DataArray(np.log(weights) - 50.0, dims="chain") * ones
    tree["sample_stats"] = statistics.assign(ancestor=ones, log_evidence=logs)
    tempered = copy.copy(fitted)
    tempered.draws_ = tree
    found = tempered.predictive(X[:9])
    # The draws know mean and variance at the examples they are judged by, here all of them.
    drawn = tree["predictions"].to_dataset()
    mean, variance = drawn["predictor_mean"].values, drawn["predictor_variance"].values

    def average(values):
        return np.einsum("c,cdx->x", weights, values) / values.shape[1]

    whole = average(mean)
    count = mean.shape[0] * mean.shape[1]
    total = average(variance + (mean - whole) ** 2 * count / (count - 1))
    deviation = np.sqrt(variance + NETWORK["temperature"])
    positive, negative = (average(norm.pdf(y, mean, deviation)) for y in (1.0, -1.0))
    expected = {
        "mean": whole,
        "variance": total,
        "probability": positive / (positive + negative),
    }
    # Predictors are stored in single precision, which a probability multiplies by 2m/s.
    limit = 16 * np.finfo(np.float32).eps
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].values[:, 0], values, rtol=limit, err_msg=name)
    probability = tempered.predict_proba(X[:9])[:, 1]
    np.testing.assert_allclose(probability, expected["probability"], rtol=limit)
    # Errors are about the weighted means: what these change by without one repetition, and the
    # distance of the mean to second order in cumulants of the evidence, which counts three times.
    for name, of_draw in {
        "mean": mean,
        "variance": variance + (mean - whole) ** 2 * count / (count - 1),
    }.items():
        of_one, logs = of_draw.mean(axis=1), np.log(weights)
        square = np.mean((expected[name] - of_one) ** 2, axis=0)
        covariance = np.einsum("c,cx->x", logs - logs.mean(), of_one)
        square += 9.0 * (of_one.mean(axis=0) + covariance - expected[name]) ** 2
        error = found[f"{name}_mcse"].values[:, 0]
        np.testing.assert_allclose(error, np.sqrt(square), rtol=1e-4, err_msg=name)
    equal = fitted.predict_proba(X[:9])[:, 1]
    assert np.abs(probability - equal).max() > 1e-3


def test_theory_is_that_of_solve(data):
    X, y = data
    estimator = sampler.AttentionClassifier(method="theory", heads=(2, 2), **NETWORK).fit(X, y)
    recipe = sampler.Recipe(
        task=sampler.Arrays(
            attended=X, labels=np.where(y == "yes", 1.0, -1.0), heads=(2, 2), attended_test=X
        ),
        network={"widths": NETWORK["widths"]},
        posterior={"temperature": NETWORK["temperature"]},
    )
    solved = sampler.solve(recipe).sel(predictor="leading")
    found = estimator.predictive(X)
    for moment in ("mean", "variance"):
        expected = solved[f"predictor_{moment}"].values
        np.testing.assert_allclose(found[moment].values[:, 0], expected, rtol=1e-8, atol=1e-10)
    assert set(found) == {"mean", "variance", "probability"}


THEORY = {"method": "theory", **NETWORK}


def test_parameters_change_nothing_until_the_next_fit(data):
    """Against an estimator left alone."""
    X, y = data
    fitted = sampler.AttentionClassifier(heads=(2, 2), **THEORY).fit(X, y)
    expected = fitted.predict_proba(X)
    changed = pickle.loads(pickle.dumps(fitted))
    changed.set_params(heads=(4, 1), method="posterior", widths=9, variances=2.0, temperature=5.0)
    np.testing.assert_array_equal(changed.predict_proba(X), expected)
    warmer = fitted.set_params(temperature=5.0).fit(X, y).predict_proba(X)
    again = sampler.AttentionClassifier(heads=(2, 2), **THEORY | {"temperature": 5.0}).fit(X, y)
    np.testing.assert_array_equal(warmer, again.predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"temperature": 1e-300}, slice(None)),  # the theory has no solution
        ({"method": "guess"}, slice(0, 7)),
        ({"random_state": -1}, slice(0, 7)),
        ({"heads": (3, 2)}, slice(0, 7)),
        ({}, slice(0, 0)),  # no examples
    ],
)
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(
    data, settings, part, without_annotation_checks
):
    X, _ = data
    y = X[:, 0, 0]
    estimator = sampler.AttentionRegressor(heads=(2, 2), **THEORY).fit(X, y)
    expected, before = estimator.predict(X), vars(estimator).keys()
    with pytest.raises((sampler.InputError, ValueError)):
        estimator.set_params(**settings).fit(X[part, :3, :2], -5.0 * y[part])
    assert vars(estimator).keys() == before
    np.testing.assert_array_equal(estimator.predict(X), expected)
    with pytest.raises(ValueError, match="X"):
        estimator.predict(X[:, :, :2])


def test_another_method_leaves_nothing_of_the_one_before(data, fitted):
    X, y = data
    estimator = pickle.loads(pickle.dumps(fitted)).set_params(**THEORY).fit(X, y)
    assert not {"draws_", "reliability_"} & vars(estimator).keys()
    alone = sampler.AttentionClassifier(heads=(2, 2), **THEORY).fit(X, y)
    np.testing.assert_array_equal(estimator.predict_proba(X), alone.predict_proba(X))


def test_seeds_come_from_integers_and_generators():
    """Numbers themselves; of a generator the next one, as NumPy draws it."""
    for seed in (0, np.int64(3), 2**32 - 1):
        assert seed_from(seed) == seed
    assert seed_from(None) == 0
    assert seed_from(np.random.default_rng(5)) == np.random.default_rng(5).integers(2**32)
    state = np.random.RandomState(5)
    seeds = [seed_from(state), seed_from(state)]
    expected = np.random.RandomState(5).randint(2**32, size=2, dtype=np.uint32)
    assert seeds == expected.tolist()
    for wrong in (2**32, -1, 1.5, "0"):
        with pytest.raises(sampler.InputError, match=r"^random_state = "):
            seed_from(wrong)


def test_whole_numbers_serve_as_labels(data, without_annotation_checks):
    X, y = data
    whole = np.where(y == "yes", 1, -1)
    for labels in (whole, np.stack([whole, 3 * whole], axis=1)):
        tasks = [
            sampler.Arrays(attended=X, labels=kind, heads=(2, 2), attended_test=X, labels_test=kind)
            for kind in (labels, labels.astype(float), labels.astype(np.int8), labels.tolist())
        ]
        assert len({task.make(None).checksum for task in tasks}) == 1
    one, other = (
        sampler.AttentionRegressor(heads=heads, **THEORY).fit(X, kind).predict(X)
        for heads, kind in ((np.array([2, 2]), whole), ((2, 2), whole.astype(float)))
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [sampler.AttentionRegressor, sampler.AttentionClassifier])
def test_checks_of_scikit_learn(kind, without_annotation_checks):
    """All of them."""
    estimator = kind(method="theory", widths=50, temperature=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = check_estimator(estimator, on_fail=None)
    failed = {one["check_name"]: one["exception"] for one in checks if one["status"] == "failed"}
    assert not failed
    assert sum(one["status"] == "passed" for one in checks) > 50
