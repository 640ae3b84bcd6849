"""Spearman's correlation against SciPy, and its bootstrap intervals."""

import numpy as np
import scipy.stats

from sampler.analysis.as_json import to_json
from sampler.analysis.estimate import rank_correlation, spearman
from tests.assertions import assert_equal_to_rounding


def test_the_value_is_scipys_with_ties(rng):
    for _ in range(5):
        one, other = rng.integers(0, 4, 9).astype(float), rng.standard_normal(9)
        expected = scipy.stats.spearmanr(one, other).statistic
        assert_equal_to_rounding(spearman(one, other), expected, operations=100)
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))


def test_certain_drops_leave_no_doubt_interval_over_examples():
    """Head k loses the first k of a thousand examples: resampling them reorders nothing."""
    scores = np.arange(1.0, 9.0)
    lost = np.arange(1000) < 100 * scores[:, None]
    found = rank_correlation(scores, lost)
    assert found.value == 1.0
    assert found.interval_over_examples == (1.0, 1.0)
    assert found.interval_over_heads[1] == 1.0
    backwards = rank_correlation(-scores, lost)
    assert backwards.value == -1.0
    assert set(to_json(backwards)) == {
        "value",
        "interval_over_heads",
        "interval_over_examples",
    }


def test_intervals_hold_the_value_and_narrow_with_examples(rng):
    scores = rng.standard_normal(8)
    widths = []
    for examples in (20, 2000):
        lost = rng.random((8, examples)) < 0.1 + 0.02 * scipy.stats.rankdata(scores)[:, None]
        found = rank_correlation(scores, lost)
        low, high = found.interval_over_examples
        assert low <= found.value <= high
        widths.append(high - low)
    assert widths[1] < widths[0]


def test_heads_that_all_cost_the_same_have_no_correlation():
    found = rank_correlation(np.arange(3.0), np.zeros((3, 10)))
    assert np.isnan(found.value)
    assert np.isnan(found.interval_over_heads).all()
    assert np.isnan(found.interval_over_examples).all()
