"""What is read off an order parameter: accuracy, head scores, alignment, redundancy."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.assertions import assert_equal_to_rounding
from theory import (
    AttentionPaths,
    head_scores,
    kernel_alignment,
)
from theory.observables import (
    accuracy,
    binomial_error,
    correct,
    labels_are_classes,
    off_diagonal_share,
    participation_ratio,
)

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


def test_of_several_classes_all_must_be_right():
    """Pairs of classes of three: right are both, the first, the second."""
    labels = np.concatenate([np.eye(3)[[0, 2, 1]], np.eye(3)[[1, 1, 0]]], axis=1) - 1 / 3
    mean = labels.copy()
    mean[1, 3:] = [0.0, 0.1, 0.2]
    mean[2, :3] = [3.0, 2.0, 1.0]
    assert labels_are_classes(labels)
    np.testing.assert_array_equal(correct(mean, labels), [True, False, False])
    assert accuracy(mean, labels) == 1 / 3


@pytest.mark.parametrize(("right", "examples"), [(0, 1), (7, 20), (500, 500)])
def test_the_error_of_an_accuracy_is_half_of_wilsons_interval(right, examples):
    of_one_deviation = scipy.stats.norm.cdf(1.0) - scipy.stats.norm.cdf(-1.0)
    law = scipy.stats.binomtest(right, examples)
    low, high = law.proportion_ci(of_one_deviation, method="wilson")
    received = binomial_error(right / examples, examples)
    assert received == pytest.approx((high - low) / 2, rel=1e-9)


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
        (np.array([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]]), False),
    ],
)
def test_only_labels_that_name_classes_have_an_accuracy(labels, expected):
    assert labels_are_classes(labels) is expected
    if labels is not None:
        received = accuracy(labels, labels)
        assert received == 1.0 if expected else math.isnan(received)


def scores_by_loops(overlap, paths, outputs):
    totals = {}
    routes = [tuple(route) for route in paths.indices]
    for layer, heads in enumerate(paths.heads):
        for head in range(heads):
            total = 0.0
            for p, q in itertools.product(range(paths.count), repeat=2):
                if routes[p][layer] == head or routes[q][layer] == head:
                    for c, d in itertools.product(range(outputs), repeat=2):
                        total += abs(overlap[p * outputs + c, q * outputs + d])
            totals[layer, head] = total
    return totals


@pytest.mark.parametrize(("heads", "outputs"), [((3,), 1), ((3, 1, 2), 2)])
def test_scores_are_the_sum_over_entries_that_use_the_head(heads, outputs, rng):
    paths = AttentionPaths(heads)
    rows = rng.standard_normal((paths.count * outputs,) * 2)
    overlap = rows @ rows.T
    expected = scores_by_loops(overlap, paths, outputs)
    received = head_scores(overlap, paths)
    assert received.shape == (len(heads), max(heads))
    largest = max(expected.values())
    for layer, head in itertools.product(*map(range, received.shape)):
        if head >= heads[layer]:
            assert np.isnan(received[layer, head])
        else:
            assert_equal_to_rounding(
                received[layer, head], expected[layer, head] / largest, operations=overlap.size
            )
    assert np.nanmax(received) == 1.0


def test_no_head_has_a_share_of_nothing(recwarn):
    scores = head_scores(np.zeros((4, 4)), AttentionPaths((2, 2)))
    np.testing.assert_array_equal(scores, np.zeros((2, 2)))
    assert not recwarn.list


def test_a_known_spectrum_is_read_off_in_descending_order(rng):
    vectors = scipy.stats.ortho_group(4, seed=2).rvs()
    kernel = (vectors * np.array([0.5, 4.0, 1.0, 9.0])) @ vectors.T
    labels = vectors @ np.array([3.0, -2.0, 0.5, 1.0])
    received = kernel_alignment(jnp.asarray(kernel), jnp.asarray(labels))
    expected = np.array([1.0, 2.0, 0.5, 3.0]) / np.linalg.norm([3.0, 2.0, 0.5, 1.0])
    # an eigenvector turns by rounding · |K| / gap: gap 0.5 here
    assert_equal_to_rounding(received, expected, operations=16, condition=9 / 0.5)


def test_the_participation_ratio_counts_equal_eigenvalues(rng):
    rotation, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    for count in (1, 3, 5):
        eigenvalues = np.where(np.arange(5) < count, 2.0, 0.0)
        overlap = rotation @ np.diag(eigenvalues) @ rotation.T
        assert_equal_to_rounding(participation_ratio(overlap), count, operations=100)
    values = np.linalg.eigvalsh(overlap + np.ones((5, 5)))
    expected = values.sum() ** 2 / (values**2).sum()
    received = participation_ratio(overlap + np.ones((5, 5)))
    assert_equal_to_rounding(received, expected, operations=100)


def test_the_share_off_the_diagonal():
    assert off_diagonal_share(np.diag([1.0, 2.0])) == 0.0
    assert off_diagonal_share(np.array([[1.0, -1.0], [-1.0, 1.0]])) == 0.5
