"""Settings of tasks that cannot be used are refused by name, and masked arrays."""

import numpy as np
import pytest

import sampler
from sampler.analysis.user_theories import checked
from sampler.data.make import build_task
from sampler.errors import InputError
from sampler.settings.recipe import Recipe
from tests.sampler.data.test_arrays import arrays
from tests.tasks import replace

SIZES = {"examples_train": 6, "examples_test": 4}
SCALED = {"form": {"kind": "scaled_heads", "scale": 12}}
# Kind of the task, its settings, those of attention and of the network, and the key that is named.
REFUSED = [
    ("markov_chain", {"tokens": 3}, {"heads": [["lag"]]}, {}, "attention.heads[0][0]"),
    ("markov_chain", {}, {}, {"hypernetwork": [True]}, "network.hypernetwork"),
    ("markov_chain", {}, {}, {"hypernetwork": True, "heads": [[0]] * 4}, "network.heads"),
    ("time_series", {"period": 10, "lag": 5}, {}, {}, "task.period"),
    ("time_series", {"tokens": 7}, {"lag": 2, **SCALED}, {}, "attention.form"),
    ("copy", {"tokens": 1}, {}, {}, "task.tokens"),
    ("digits", {"examples_test": 1797}, {}, {}, "task.examples_test"),
]


@pytest.mark.parametrize(("kind", "task", "attention", "network", "field"), REFUSED)
def test_what_cannot_be_used_is_refused(kind, task, attention, network, field):
    sections = {"task": {"kind": kind, **SIZES, **task}, "network": {"widths": 3, **network}}
    with pytest.raises(InputError) as caught:
        build_task(Recipe(name="a", attention=attention, **sections))
    assert caught.value.field == field


# --- masked arrays, in which what is masked would count


def masked(array):
    return np.ma.masked_greater(array, 0.0)


@pytest.mark.parametrize(
    ("key", "field"), [("labels_test", "labels_test"), ("attention_train_2", "attention[1]")]
)
def test_masked_arrays_and_lists_of_them_are_refused(key, field):
    for change in (masked, lambda array: list(masked(array))):
        stored = arrays()
        replace(key, change)(stored)
        with pytest.raises(InputError) as caught:
            sampler.Arrays(**stored)
        assert caught.value.field == field


def test_estimators_refuse_masked_arrays():
    stored, regressor = arrays(), sampler.AttentionRegressor(widths=3)
    plain, y = stored["inputs_train"][:, 0], stored["labels_train"]
    for X, labels, field in (
        (masked(plain), y, "X"),
        (plain, masked(y), "y"),
    ):
        with pytest.raises(InputError) as caught:
            regressor.fit(X, labels)
        assert caught.value.field == field


def test_predictions_of_an_own_theory_are_no_masked_arrays():
    axes = {"predictor_mean": {"test_example": 3}}
    values = np.ma.masked_array(np.arange(3.0), [False, True, False])
    with pytest.raises(InputError):
        checked("mine", {"predictor_mean": values}, axes)
