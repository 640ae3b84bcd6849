"""Masked arrays are refused: what is masked would count."""

import numpy as np
import pytest

import sampler
from sampler.analysis.user_theories import checked
from sampler.errors import InputError
from tests.sampler.data.test_arrays import arrays
from tests.tasks import replace


def masked(array):
    return np.ma.masked_greater(array, 0.0)


def as_keywords(stored):
    """Arrays of a file as `arrays_task` takes them."""
    found = {key: array for key, array in stored.items() if not key.startswith("attention")}
    for name in ("train", "test"):
        found[f"attention_{name}"] = [stored[f"attention_{name}_{layer}"] for layer in (1, 2)]
    return found


@pytest.mark.parametrize("key", ["inputs_train", "labels_test", "attention_train_2"])
def test_masked_arrays_are_refused(key):
    stored = arrays()
    replace(key, masked)(stored)
    with pytest.raises(InputError):
        sampler.arrays_task(**as_keywords(stored))
    replace(key, list)(stored)  # a list of masked arrays
    with pytest.raises(InputError) as caught:
        sampler.make_task("arrays", **stored)
    assert caught.value.field == key


def test_estimators_refuse_masked_arrays():
    stored, regressor = arrays(), sampler.AttentionRegressor(widths=3)
    tokens, attention = stored["inputs_train"], [stored["attention_train_1"]]
    y = stored["labels_train"]
    plain = tokens[:, 0]
    for X, labels, field in (
        (masked(plain), y, "X"),
        (plain, masked(y), "y"),
        ((masked(tokens), attention), y, "X"),
        ((tokens, [masked(attention[0])]), y, "X"),
    ):
        with pytest.raises(InputError) as caught:
            regressor.fit(X, labels)
        assert caught.value.field == field


def test_predictions_of_an_own_theory_are_no_masked_arrays():
    axes = {"predictor_mean": {"test_example": 3}}
    values = np.ma.masked_array(np.arange(3.0), [False, True, False])
    with pytest.raises(InputError):
        checked("mine", {"predictor_mean": values}, axes)
