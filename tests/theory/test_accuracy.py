"""Accuracy: what counts as a class, and which predictions are right."""

import math

import numpy as np
import pytest

from theory.observables import accuracy, correct, labels_are_classes

SIGNS = np.array([[1.0], [-1.0], [-1.0], [1.0]])
ONE_HOT = np.eye(3)[[2, 0, 1, 1]]


def test_one_output_is_judged_by_its_sign():
    mean = np.array([[0.1], [-3.0], [2.0], [0.0]])
    np.testing.assert_array_equal(correct(mean, SIGNS), [True, True, False, False])
    assert accuracy(mean, SIGNS) == 0.5


def test_several_outputs_are_judged_by_the_largest():
    mean = np.array([[0.1, 0.2, 0.3], [-1.0, -2.0, -3.0], [5.0, 4.0, 0.0], [0.0, 1.0, 0.0]])
    assert accuracy(mean, ONE_HOT) == 0.75
    np.testing.assert_array_equal(correct(mean, 2 * ONE_HOT - 1), [True, True, False, True])


def test_leading_axes_are_kept(rng):
    for labels in (SIGNS, ONE_HOT):
        mean = rng.standard_normal((5, 2, *labels.shape))
        received = correct(mean, labels)
        assert received.shape == (5, 2, 4)
        np.testing.assert_array_equal(received[3, 1], correct(mean[3, 1], labels))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (SIGNS, True),
        (ONE_HOT, True),
        (2 * ONE_HOT - 1, True),
        (None, False),
        (2 * SIGNS, False),
        (np.array([[1.0], [0.0]]), False),
        (np.array([[0.3], [-1.7]]), False),
        (np.array([[1.0, 1.0], [0.0, 1.0]]), False),
        (np.array([[0.2, 0.8], [0.7, 0.3]]), False),
    ],
)
def test_only_labels_that_name_classes_have_an_accuracy(labels, expected):
    assert labels_are_classes(labels) is expected
    if labels is not None:
        received = accuracy(labels, labels)
        assert received == 1.0 if expected else math.isnan(received)


def test_no_labels_no_accuracy():
    assert math.isnan(accuracy(np.ones((3, 1)), None))
