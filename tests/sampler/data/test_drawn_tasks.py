"""Hidden Markov chains and time series: the statistics that define them, and their heads."""

import numpy as np
import pytest

from sampler.data.time_series import TimeSeries, lag_weights
from sampler.settings.task_sections import Attention
from tests.recipes import markov_chain, time_series

# A statistic over many independent draws is normal: beyond this many standard errors once in
# half a million.
STANDARD_ERRORS = 5.0


def noiseless(**settings):
    return markov_chain(parallel_noise=0.0, perpendicular_noise=0.0, **settings)


def states_of(task):
    """Hidden states ±1 [example, token] of a noiseless task."""
    return np.where(task.train.inputs[:, 1:, 0] > 0, 1, -1)


def assert_frequency(received, expected, count):
    error = np.sqrt(expected * (1 - expected) / count)
    assert abs(received - expected) < STANDARD_ERRORS * error, f"{received=} {expected=} {error=}"


def test_classes_stay_in_their_state_with_their_probabilities():
    task = noiseless(examples_train=2000, features=2, tokens=20, stay_positive=0.8, seed=3)
    states, labels = states_of(task), task.train.labels[:, 0]
    stays = states[:, 1:] == states[:, :-1]
    for label, expected in ((1, 0.8), (-1, 0.3)):
        of_class = stays[labels == label]
        assert_frequency(of_class.mean(), expected, of_class.size)
    assert_frequency((states[:, 0] > 0).mean(), 0.5, 2000)


def test_without_noise_features_are_the_two_state_vectors_and_positions_one_hot():
    task = noiseless(examples_train=4, features=6, tokens=5)
    inputs = task.train.inputs
    features, positions = inputs[..., :6], inputs[..., 6:]
    assert np.array_equal(positions, np.broadcast_to(np.eye(6), (4, 6, 6)))
    assert not features[:, 0].any()
    root = np.sqrt(2.0)
    vectors = {(root,) * 3 + (0.0,) * 3, (0.0,) * 3 + (root,) * 3}
    assert {tuple(token) for token in features[:, 1:].reshape(-1, 6)} == vectors


@pytest.mark.parametrize(("parallel", "perpendicular"), [(1.0, 5.0), (2.0, 0.5)])
def test_noise_within_and_across_the_plane_has_its_own_size(parallel, perpendicular):
    settings = {"examples_train": 200, "features": 20, "tokens": 30, "seed": 1}
    noisy = markov_chain(parallel_noise=parallel, perpendicular_noise=perpendicular, **settings)
    noise = noisy.train.inputs[:, 1:, :20] - noiseless(**settings).train.inputs[:, 1:, :20]
    upper, lower = np.repeat([1.0, 0.0], 10), np.repeat([0.0, 1.0], 10)
    basis = np.linalg.qr(
        np.column_stack([upper - lower, upper + lower, np.eye(20)[:, 1:10:1], np.eye(20)[:, 11:20]])
    )[0]
    received = (noise @ basis).reshape(-1, 20).var(axis=0)
    expected = np.repeat([parallel**2, perpendicular**2], [2, 18])
    error = expected * np.sqrt(2 / (200 * 30))
    assert np.all(np.abs(received - expected) < STANDARD_ERRORS * error)


def test_the_good_head_attends_to_a_previous_token_of_the_same_state_else_to_bos():
    task = noiseless(examples_train=20, tokens=12, beta=200.0)
    states = states_of(task)
    strongest = task.train.attention[0][:, 0].argmax(axis=1)  # [example, query]
    for query in range(2, 13):  # query 1 has no previous token but BOS
        same = states[:, query - 1] == states[:, query - 2]
        expected = np.where(same, query - 1, 0)
        assert np.array_equal(strongest[:, query], expected)
    assert np.array_equal(strongest[:, 1], np.zeros(20))
    others = 1.0 - np.take_along_axis(task.train.attention[0][:, 0], strongest[:, None], 1)[:, 0]
    # The runner-up is 0.5 β below: the rest carries at most (number of keys) · exp(−0.5 β).
    assert others[:, 1:].max() < 13 * np.exp(-0.5 * 200.0) + 13 * np.finfo(float).eps


# --- time series


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


@pytest.mark.parametrize(
    "form", [{"kind": "scaled_heads", "scale": 3, "beta": 1.0}, {"kind": "head_normalised"}]
)
def test_heads_take_any_form_together_or_each_its_own(form):
    heads = (("lag", "random"), ("uniform", "random"))
    plain = time_series(heads, **SMALL)
    whole = time_series(heads, form=form, **SMALL)
    layer = time_series(heads, form=[{"kind": "softmax"}, form], **SMALL)
    head = time_series(heads, form=[[form, {"kind": "softmax"}], {"kind": "softmax"}], **SMALL)
    assert np.array_equal(layer.train.attention[0], plain.train.attention[0])
    assert np.array_equal(layer.train.attention[1], whole.train.attention[1])
    assert np.array_equal(head.train.attention[0][:, 1], plain.train.attention[0][:, 1])
    assert not np.allclose(head.train.attention[0][:, 0], plain.train.attention[0][:, 0])
    if form["kind"] != "head_normalised":  # which looks at the other heads of its form
        assert np.array_equal(head.train.attention[0][:, 0], whole.train.attention[0][:, 0])
