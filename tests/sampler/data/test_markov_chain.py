"""The hidden Markov task: the statistics that define it, its streams, its heads."""

import numpy as np
import pytest

from tests.tasks import markov_chain as make

# A statistic over many independent draws is normal: beyond this many standard errors once in
# half a million.
STANDARD_ERRORS = 5.0


def noiseless(**settings):
    return make(parallel_noise=0.0, perpendicular_noise=0.0, **settings)


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
    noisy = make(parallel_noise=parallel, perpendicular_noise=perpendicular, **settings)
    noise = noisy.train.inputs[:, 1:, :20] - noiseless(**settings).train.inputs[:, 1:, :20]
    upper, lower = np.repeat([1.0, 0.0], 10), np.repeat([0.0, 1.0], 10)
    basis = np.linalg.qr(
        np.column_stack([upper - lower, upper + lower, np.eye(20)[:, 1:10:1], np.eye(20)[:, 11:20]])
    )[0]
    received = (noise @ basis).reshape(-1, 20).var(axis=0)
    expected = np.repeat([parallel**2, perpendicular**2], [2, 18])
    error = expected * np.sqrt(2 / (200 * 30))
    assert np.all(np.abs(received - expected) < STANDARD_ERRORS * error)


def test_a_validation_split_leaves_training_and_test_data_as_they_are_to_the_bit():
    heads = (("good", "random"), ("uniform", "random"))
    sizes = {"examples_train": 6, "examples_test": 4, "tokens": 5, "features": 8}
    without, few, many = (make(heads, examples_validation=n, **sizes) for n in (0, 5, 9))
    assert without.validation is None
    assert (few.validation.examples, many.validation.examples) == (5, 9)
    for task in (few, many):
        for split, expected in ((task.train, without.train), (task.test, without.test)):
            assert split.inputs.tobytes() == expected.inputs.tobytes()
            assert split.labels.tobytes() == expected.labels.tobytes()
            for matrices, others in zip(split.attention, expected.attention, strict=True):
                assert matrices.tobytes() == others.tobytes()
    validation = many.validation.inputs[:4, 1:]
    for split in (many.train, many.test):
        assert not np.array_equal(validation, split.inputs[:4, 1:])
    assert many.validation.labels[:, 0].tolist() == [1.0] * 5 + [-1.0] * 4


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


def test_the_uniform_head_is_exactly_uniform():
    task = make(examples_train=4, tokens=9)
    assert np.array_equal(task.train.attention[1], np.full((4, 1, 10, 10), 1 / 10))
