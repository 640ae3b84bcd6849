"""Head scores against the sum written entry by entry."""

import itertools

import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from theory import AttentionPaths, head_scores


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


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("heads", [(1,), (3,), (2, 3), (3, 1, 2)])
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


def test_the_row_and_column_rule():
    """Row sum + column sum − both: two paths with U = [[4, −1], [−1, 2]]."""
    received = head_scores(np.array([[4.0, -1.0], [-1.0, 2.0]]), AttentionPaths((2,)))
    np.testing.assert_array_equal(received, [[1.0, 4.0 / 6.0]])
