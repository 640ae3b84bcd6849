"""The collapsed posterior of the published problem against two other programs that sampled it."""

import numpy as np
import pytest

from tests.assertions import assert_within_mcse
from tests.problems import (
    weighted_mean_and_error,
)
from tests.reference_data import PUBLISHED_OVERLAP, TRIAL_OVERLAP, published_draws

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("expected", [PUBLISHED_OVERLAP, TRIAL_OVERLAP], ids=["weights", "trial"])
def test_overlaps_of_the_published_problem(expected):
    _, draws, factors = published_draws()
    mean, mcse = weighted_mean_and_error(draws.weights, factors @ factors.swapaxes(1, 2))
    rows, columns = map(list, zip(*expected, strict=True))
    values, errors = map(np.array, zip(*expected.values(), strict=True))
    combined = np.hypot(mcse[rows, columns], errors)
    assert_within_mcse(mean[rows, columns], values, combined)
