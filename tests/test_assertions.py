"""The statistical assertions fail when they should."""

import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding, assert_within_mcse


def test_a_close_mean_passes():
    assert_within_mcse([1.0, 2.03], [1.01, 2.0], [0.01, 0.02], ess=[400, 500], minimum_ess=200)


@pytest.mark.parametrize(
    ("received", "mcse", "ess"),
    [(1.5, 0.1, 400), (1.0, 0.0, 400), (1.0, np.nan, 400), (np.nan, 0.1, 400), (1.0, 0.1, 20)],
)
def test_a_mean_without_support_fails(received, mcse, ess):
    with pytest.raises(AssertionError):
        assert_within_mcse(received, 1.0, mcse, ess=ess)


def test_rounding_passes_and_more_fails():
    assert_equal_to_rounding(0.1 + 0.2, 0.3, operations=2)
    for received in (0.3 + 1e-12, np.nan):
        with pytest.raises(AssertionError):
            assert_equal_to_rounding(received, 0.3, operations=2)
