"""What a study keeps is given back for the same settings alone."""

import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from runs.studies.scripts import Study


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["study", str(tmp_path), "3"])
    return Study(__file__)


@dataclass(frozen=True)
class Problem:
    steps: int
    inputs: np.ndarray


def one(value):
    return {"value": value if isinstance(value, int | float) else repr(value)}


def another(value):
    return {"value": [value]}


LARGE = np.zeros(5000)
LARGE_BUT_ONE = np.eye(1, 5000, 2500)[0]  # in the middle, which no text of an array shows
DIFFERENT = [
    1, 2, 1.5, "1", None, (1, 2), (12,), [(1,), 2], {"seed": 1}, {"seed": 2}, LARGE, LARGE_BUT_ONE,
    LARGE[:9], LARGE.reshape(2, -1), Problem(1, LARGE), Problem(2, LARGE),
    Problem(1, LARGE_BUT_ONE), partial(one, 1), partial(one, 2), partial(another, 1), one, another,
]  # fmt: skip


def test_a_result_is_that_of_its_settings(study):
    assert study.once("x", one, 5)["value"] == 5
    assert study.once("x", one, 6)["value"] == 6
    assert study.once("x", one, 5)["value"] == 5
    assert study.once("x", another, 5)["value"] == [5]
    arrays = [study.arrays_once("x", lambda n: {"a": np.arange(n)}, n)["a"] for n in (2, 3, 2)]
    assert list(map(len, arrays)) == [2, 3, 2]


def test_settings_that_differ_are_kept_apart_and_equal_ones_together(study):
    files = [study.file_of("x", "json", value) for value in DIFFERENT]
    assert len(set(files)) == len(DIFFERENT)
    for value, equal in ((LARGE, LARGE.copy()), (Problem(1, LARGE), Problem(1, LARGE.copy()))):
        assert study.file_of("x", "json", value) == study.file_of("x", "json", equal)
    other = study.file_of("x", "json", study)
    study.sizes = ["4"]
    assert study.file_of("x", "json", study) != other


def test_what_has_no_text_of_its_own_is_no_setting(study):
    with pytest.raises(TypeError, match="name the settings"):
        study.once("x", one, object())
