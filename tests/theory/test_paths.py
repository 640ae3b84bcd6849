"""The order of attention paths."""

import itertools

import numpy as np
import pytest

from theory import AttentionPaths

HEADS = [(1,), (3,), (2, 3), (3, 1, 2), (2, 2, 2, 2)]


@pytest.mark.parametrize("heads", HEADS)
def test_flat_order_counts_like_an_odometer(heads):
    paths = AttentionPaths(heads)
    expected = list(itertools.product(*(range(count) for count in heads)))
    assert paths.count == len(expected)
    assert [tuple(path) for path in paths.indices] == expected
    assert [paths.flat(path) for path in expected] == list(range(paths.count))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("heads", HEADS)
def test_fold_undoes_unfold(heads, axis, rng):
    paths = AttentionPaths(heads)
    shape = [5, 4]
    shape.insert(axis, paths.count)
    values = rng.standard_normal(shape)
    unfolded = paths.unfold(values, axis)
    assert unfolded.shape == (*shape[:axis], *heads, *shape[axis + 1 :])
    np.testing.assert_array_equal(paths.fold(unfolded, axis), values)
    for position, path in enumerate(paths.indices):
        received = unfolded[(slice(None),) * axis + tuple(path)]
        np.testing.assert_array_equal(received, np.take(values, position, axis))


def test_uses_marks_the_paths_through_a_head():
    paths = AttentionPaths((2, 3))
    np.testing.assert_array_equal(paths.uses(0, 1), [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(paths.uses(1, 2), [0, 0, 1, 0, 0, 1])


def test_a_subset_follows_the_order_of_the_kept_heads():
    paths = AttentionPaths((2, 3))
    np.testing.assert_array_equal(paths.subset([[0, 1], [0]]), [0, 3])
    np.testing.assert_array_equal(paths.subset([[1], [2, 0]]), [5, 3])
    np.testing.assert_array_equal(paths.subset([[0, 1], [0, 1, 2]]), np.arange(6))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ((0, 3), r"layer 2 has heads 0 … 2"),
        ((-1, 0), r"layer 1 has heads 0 … 1"),
        ((0,), r"needs 2 heads"),
    ],
)
def test_a_head_that_does_not_exist_is_named(path, message):
    with pytest.raises(IndexError, match=message):
        AttentionPaths((2, 3)).flat(path)
