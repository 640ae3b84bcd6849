"""The time-series task: the statistics that define it, its streams, its heads."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from sampler.data.time_series import TimeSeries, lag_weights
from sampler.settings.task_sections import Attention
from tests.tasks import time_series as make

# A statistic over many independent draws is normal: beyond this many standard errors once in
# half a million.
STANDARD_ERRORS = 5.0
SMALL = {"examples_train": 6, "examples_test": 4, "tokens": 8, "channels": 4, "lag": 2, "period": 9}


def series(split, channels):
    """The series of a split without BOS and positions, [example, token, channel]."""
    return split.inputs[:, 1:, :channels]


def assert_mean(samples, expected):
    """The mean of independent samples, along the first axis, is as expected."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    received = samples.mean(axis=0)
    assert np.all(np.abs(received - expected) < STANDARD_ERRORS * error), (
        f"{received=} {expected=} {error=}"
    )


@pytest.fixture(scope="module")
def many():
    """Many examples of the default series but for their sizes, and the settings."""
    settings = {"examples_train": 4000, "examples_test": 1000, "tokens": 20, "channels": 4}
    section = TimeSeries(**settings)
    heads = (("uniform",), ("uniform",))
    return section.make(Attention(heads=heads)), section


def test_covariances_at_every_distance_in_time_are_those_of_the_definition(many):
    task, section = many
    values, labels = series(task.train, 4), task.train.labels[:, 0]
    token, noise, lag = 10, section.noise**2, section.lag

    def oscillation(steps):  # E z_t z_{t+steps}
        damping = np.exp(-(section.phase_noise**2) * abs(steps) / 2)
        return np.cos(2 * np.pi * steps / section.period) * damping

    for sign in (1, -1):
        of_class = values[labels == sign]
        assert_mean(of_class[:, token], 0.0)
        for distance in (0, 1, 5, 9):
            now, then = of_class[:, token], of_class[:, token - distance]
            same = oscillation(distance) + (noise if distance == 0 else 0.0)
            assert_mean(now[:, 0] * then[:, 0], same)
            assert_mean(now[:, 2] * then[:, 2], same)
            # Channel 2 is channel 0 of `lag` steps ago (class +1) or to come (class −1).
            assert_mean(now[:, 2] * then[:, 0], oscillation(distance - sign * lag))
            assert_mean(now[:, 0] * then[:, 2], oscillation(distance + sign * lag))


def linear_accuracy(features, task):
    train, test = (features(split) for split in (task.train, task.test))
    fitted = LinearRegression().fit(train, task.train.labels[:, 0])
    return np.mean(np.sign(fitted.predict(test)) == task.test.labels[:, 0])


def test_a_linear_classifier_needs_the_product_of_two_time_steps(many):
    task, section = many
    chance_error = 0.5 / np.sqrt(task.test.examples)
    for features in (
        lambda split: split.inputs.mean(axis=1),
        lambda split: series(split, 4).reshape(split.examples, -1),
        lambda split: series(split, 4)[:, :, 0] * series(split, 4)[:, :, 2],
    ):
        received = linear_accuracy(features, task)
        assert abs(received - 0.5) < STANDARD_ERRORS * chance_error, received

    def lagged(split):
        values, lag = series(split, 4), section.lag
        now, then = values[:, lag:], values[:, :-lag]
        return (then[..., :2] * now[..., 2:]).mean(axis=1)

    # Where two time steps meet, the same classifier tells the classes apart.
    assert linear_accuracy(lagged, task) > 0.5 + 10 * chance_error


def test_the_lag_head_as_loops_over_its_definition():
    features, positions, lag = 5, 6, 2
    weights = lag_weights(features, positions, lag)
    inputs = np.random.default_rng(0).standard_normal((positions, features))
    tokens = np.hstack([inputs, np.eye(positions)])
    received = tokens @ weights @ tokens.T
    expected = np.zeros((positions, positions))
    for key in range(positions):
        for query in range(positions):
            area = sum(
                inputs[key, c] * inputs[query, c + 2] - inputs[key, c + 2] * inputs[query, c]
                for c in range(2)
            )
            expected[key, query] = area / features
            if key >= 1 and key == query - lag:
                expected[key, query] += 1.0
            if key == 0 and query >= 1:
                expected[key, query] += 1.5
    # A dozen products and sums of numbers of order one.
    assert np.abs(received - expected).max() <= 64 * np.finfo(float).eps


def test_without_noise_the_lag_head_sees_the_class_in_every_token():
    """Area 1 at a quarter of a period: back to the token `lag` steps ago, or to BOS."""
    settings = {"lag": 5, "period": 20, "tokens": 12, "phase_noise": 0.0, "noise": 0.0}
    task = make(look_back=5, beta=200.0, examples_train=6, examples_test=2, **settings)
    strongest = task.train.attention[0][:, 0].argmax(axis=1)  # [example, query]
    for query in range(6, 13):
        assert strongest[:3, query].tolist() == [query - 5] * 3
        assert strongest[3:, query].tolist() == [0] * 3


@pytest.mark.parametrize(
    "form", [{"kind": "scaled_heads", "scale": 3, "beta": 1.0}, {"kind": "head_normalised"}]
)
def test_heads_take_any_form_together_or_each_its_own(form):
    heads = (("lag", "random"), ("uniform", "random"))
    plain = make(heads, **SMALL)
    whole = make(heads, form=form, **SMALL)
    layer = make(heads, form=[{"kind": "softmax"}, form], **SMALL)
    head = make(heads, form=[[form, {"kind": "softmax"}], {"kind": "softmax"}], **SMALL)
    assert np.array_equal(layer.train.attention[0], plain.train.attention[0])
    assert np.array_equal(layer.train.attention[1], whole.train.attention[1])
    assert np.array_equal(head.train.attention[0][:, 1], plain.train.attention[0][:, 1])
    assert not np.allclose(head.train.attention[0][:, 0], plain.train.attention[0][:, 0])
    if form["kind"] != "head_normalised":  # which looks at the other heads of its form
        assert np.array_equal(head.train.attention[0][:, 0], whole.train.attention[0][:, 0])
