"""Sizes and attention paths of an architecture, and the messages for impossible ones."""

import itertools

import numpy as np
import pytest

from theory import Architecture, AttentionPaths

GOOD = {
    "heads": (2, 3),
    "widths": (5, 6, 7),
    "variances": (1.0, 2.0, 3.0, 4.0),
    "channels": 4,
    "outputs": 2,
}


def test_sizes_follow_the_definitions():
    arch = Architecture(**GOOD)
    assert (arch.layers, arch.path_count) == (2, 6)
    assert arch.order_parameter_sizes == (12, 6, 2)
    assert arch.coordinate_count == 12 * 13 // 2 + 6 * 7 // 2 + 3
    assert arch.order_parameter_variances == (2.0, 3.0, 4.0)
    expected = {"V_0": (5, 4), "V_1": (2, 6, 5), "V_2": (3, 7, 6), "a": (2, 7)}
    assert arch.weight_shapes == expected
    assert arch.weight_count == 20 + 60 + 126 + 14


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": ()}, "at least one attention layer"),
        ({"heads": [2, 3]}, "heads"),
        ({"heads": (2, 0)}, r"heads\[1\] = 0"),
        ({"widths": (5, 6)}, "2 attention layers need 3 widths"),
        ({"widths": (5, True, 7)}, r"widths\[1\] = True"),
        ({"variances": (1.0, 1.0, 1.0)}, "2 attention layers need 4 variances"),
        ({"variances": (1.0, 1.0, np.inf, 1.0)}, r"variances\[2\] = inf"),
        ({"outputs": -1}, "outputs = -1"),
    ],
)
def test_an_impossible_size_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        Architecture(**{**GOOD, **change})


@pytest.mark.parametrize("heads", [(3,), (3, 1, 2)])
def test_flat_order_counts_like_an_odometer(heads):
    paths = AttentionPaths(heads)
    expected = list(itertools.product(*(range(count) for count in heads)))
    assert paths.count == len(expected)
    assert [tuple(path) for path in paths.indices] == expected


def test_uses_marks_the_paths_through_a_head():
    paths = AttentionPaths((2, 3))
    np.testing.assert_array_equal(paths.uses(0, 1), [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(paths.uses(1, 2), [0, 0, 1, 0, 0, 1])


def test_a_subset_follows_the_order_of_the_kept_heads():
    paths = AttentionPaths((2, 3))
    np.testing.assert_array_equal(paths.subset([[0, 1], [0]]), [0, 3])
    np.testing.assert_array_equal(paths.subset([[1], [2, 0]]), [5, 3])
    np.testing.assert_array_equal(paths.subset([[0, 1], [0, 1, 2]]), np.arange(6))
