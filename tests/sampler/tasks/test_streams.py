"""Training, test and validation data are drawn from random streams of their own."""

import itertools

import numpy as np
import pytest

from tests.tasks import markov_chain, time_series

SIZES = {"examples_train": 4, "examples_test": 4, "examples_validation": 4}


@pytest.mark.parametrize("make", [markov_chain, time_series])
def test_splits_of_equal_size_share_no_example(make):
    """With equal sizes, two splits of one stream would be equal to the bit."""
    splits = make(**SIZES).splits
    assert len(splits) == 3
    for one, other in itertools.combinations(splits, 2):
        assert one.inputs.shape == other.inputs.shape
        for example in one.inputs:
            assert not np.any(np.all(example == other.inputs, axis=(1, 2)))
