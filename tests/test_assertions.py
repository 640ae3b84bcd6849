"""The statistical assertions fail when they should."""

import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding, assert_within_mcse


def test_a_close_mean_passes():
    assert_within_mcse([1.0, 2.03], [1.01, 2.0], [0.01, 0.02], ess=[400, 500], minimum_ess=200)


@pytest.mark.parametrize(
    ("received", "mcse", "ess", "message"),
    [
        (1.5, 0.1, 400, r"received 1\.5 ± 0\.1, expected 1: 5\.0 standard errors apart"),
        (1.0, 0.0, 400, r"mcse 0\.0, expected positive and finite"),
        (1.0, np.nan, 400, r"mcse nan, expected positive and finite"),
        (np.nan, 0.1, 400, r"received nan"),
        (1.0, 0.1, 20, r"effective sample size 20 .* expected at least 100"),
        (1.0, 0.1, np.nan, r"NaN in 1 entries"),
    ],
)
@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_a_mean_without_support_fails(received, mcse, ess, message):
    with pytest.raises(AssertionError, match=message):
        assert_within_mcse(received, 1.0, mcse, ess=ess)


def test_rounding_passes_and_more_fails():
    assert_equal_to_rounding(0.1 + 0.2, 0.3, operations=2)
    with pytest.raises(AssertionError, match=r"rounding explains"):
        assert_equal_to_rounding(0.3 + 1e-12, 0.3, operations=2)
    with pytest.raises(AssertionError, match=r"received nan"):
        assert_equal_to_rounding(np.nan, 0.3, operations=2)
