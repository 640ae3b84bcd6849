"""Random streams of one seed are independent of each other, whatever they are for."""

import ast
import itertools

import numpy as np
import pytest

from sampler.settings.recipe import make_recipe
from sampler.streams import Stream, stream
from sampler.teacher import make_labelled_task
from tests import ROOT

NUMBERS = 4000
# A few of each further entry of a key.
KEYS = [(of, *rest) for of in Stream for rest in itertools.product(range(3), repeat=of.further)]


def test_no_two_streams_of_a_seed_share_numbers():
    """Nor are they correlated, in the order in which they are drawn."""
    drawn = np.stack([stream(3, *key).standard_normal(NUMBERS) for key in KEYS])
    assert len(np.unique(drawn)) == drawn.size
    raw = [stream(3, *key).integers(2**63, size=NUMBERS) for key in KEYS]
    assert len(np.unique(raw)) == drawn.size
    apart = np.corrcoef(drawn)[np.triu_indices(len(KEYS), 1)]
    # Of some hundred normal numbers of variance 1/n the largest is below 4.5 of them.
    assert np.abs(apart).max() < 4.5 / np.sqrt(NUMBERS)


def test_a_key_has_as_many_entries_as_its_stream_says():
    """One more would be the key of another stream."""
    with pytest.raises(TypeError, match="2 further"):
        stream(0, Stream.HEADS)
    with pytest.raises(TypeError, match="0 further"):
        stream(0, Stream.TRAIN, 1)


@pytest.mark.parametrize("room", ["data", "training", "transformer", "settings", "teacher.py"])
def test_what_makes_data_draws_from_no_other_stream(room):
    place = ROOT / "sampler" / room
    for file in [place] if place.is_file() else place.rglob("*.py"):
        called = {
            node.attr
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute)
        }
        assert not called & {"default_rng", "SeedSequence", "RandomState"}, file


class Recorded(np.random.Generator):
    """A generator that writes down its normal numbers."""

    def __init__(self, generator, written):
        super().__init__(generator.bit_generator)
        self.written = written

    def standard_normal(self, *arguments):
        drawn = super().standard_normal(*arguments)
        self.written.append(np.ravel(drawn))
        return drawn


def normals_of(monkeypatch, task, widths):
    """Normal numbers of the inputs and of the teacher of a task, all seeds the same."""
    written = {"inputs": [], "teacher": []}

    def recording(into):
        return lambda *key: Recorded(stream(*key), written[into])

    for module in ("time_series", "markov_chain", "heads_of_task"):
        monkeypatch.setattr(f"sampler.data.{module}.stream", recording("inputs"))
    monkeypatch.setattr("sampler.teacher.stream", recording("teacher"))
    sections = {"name": "x", "task": {**task, "labels": "teacher"}, "network": {"widths": widths}}
    make_labelled_task(make_recipe(sections))
    return (np.concatenate(numbers) for numbers in written.values())


@pytest.mark.parametrize("kind", ["time_series", "markov_chain"])
def test_a_teacher_shares_no_number_with_the_inputs(kind, monkeypatch):
    """At the defaults of the task, where inputs, heads and teacher have the same seed."""
    inputs, teacher = normals_of(monkeypatch, {"kind": kind, "examples_test": 5}, 100)
    assert len(teacher) > 900
    assert not np.isin(teacher, inputs).any()


@pytest.mark.parametrize("seed", range(4))
def test_a_teacher_is_independent_of_the_inputs(seed, monkeypatch):
    """Their numbers are uncorrelated at every lag at which they might be the same."""
    task = {"kind": "time_series", "examples_train": 30, "seed": seed, "teacher_seed": seed}
    inputs, teacher = normals_of(monkeypatch, task | {"examples_test": 5}, 100)
    count, lags = len(teacher), range(-200, 200)
    ends = [(max(lag, 0), max(-lag, 0)) for lag in lags]
    products = [inputs[i : i + count - 200] * teacher[j : j + count - 200] for i, j in ends]
    scores = [np.sqrt(len(one)) * one.mean() / one.std() for one in products]
    # Of 400 standard normal numbers the largest is below 4.5 but for once in 370.
    assert np.abs(scores).max() < 4.5
