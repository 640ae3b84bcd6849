"""Random streams of one seed are independent of each other, whatever they are for."""

import itertools

import jax
import numpy as np
import pytest

from sampler.settings.recipe import Recipe
from sampler.streams import Stream, jax_key, part_of_key, stream
from sampler.teacher import make_labelled_task

NUMBERS = 4000
# A few of each further entry of a key.
KEYS = [(of, *rest) for of in Stream for rest in itertools.product(range(3), repeat=of.further)]
FEW = np.arange(6)


def test_no_two_streams_of_a_seed_share_numbers():
    """Nor with what is drawn from the seed itself; nor are they correlated, in their order."""

    def generators() -> list[np.random.Generator]:
        return [np.random.default_rng(3), *(stream(3, *key) for key in KEYS)]

    drawn = np.stack([generator.standard_normal(NUMBERS) for generator in generators()])
    assert len(np.unique(drawn)) == drawn.size
    raw = [generator.integers(2**63, size=NUMBERS) for generator in generators()]
    assert len(np.unique(raw)) == drawn.size
    apart = np.corrcoef(drawn)[np.triu_indices(len(drawn), 1)]
    # Of ten thousand normal numbers of variance 1/n the largest is below 5.5 of them.
    assert np.abs(apart).max() < 5.5 / np.sqrt(NUMBERS)


def test_no_two_jax_keys_of_a_seed_are_the_same():
    """Nor their children and grandchildren, however these are made, nor their first numbers."""
    parents = jax.numpy.stack([jax.random.key(3), *(jax_key(3, *key) for key in KEYS)])

    def children(keys):
        """A few of each, by number and by splitting: the same, where JAX makes them the same."""
        by_number = jax.vmap(lambda key: jax.vmap(lambda n: jax.random.fold_in(key, n))(FEW))
        split = jax.vmap(lambda key: jax.random.split(key, len(FEW)))
        assert (jax.random.key_data(split(keys)) == jax.random.key_data(by_number(keys))).all()
        return split(keys).reshape(-1)

    # The seed itself has no children but the streams: its own are below the first entries.
    below = children(parents[1:])
    family = jax.numpy.concatenate([parents, below, children(below)])
    data = np.asarray(jax.random.key_data(family))
    assert len(np.unique(data, axis=0)) == len(family) > 40 * len(KEYS)
    first = jax.vmap(lambda key: jax.random.bits(key, (2,), "uint64"))
    with jax.enable_x64(True):
        numbers = np.asarray(jax.jit(first)(family))
    assert len(np.unique(numbers)) == numbers.size


def test_parts_of_the_key_of_a_draw_are_apart_from_each_other():
    key = jax.random.key(5)
    parts = [part_of_key(key, of) for of in Stream if not of.further]
    data = np.asarray(jax.random.key_data(jax.numpy.stack([key, *parts])))
    assert len(np.unique(data, axis=0)) == len(data)


def test_a_key_has_as_many_entries_as_its_stream_says():
    """One more would be the key of another stream."""
    with pytest.raises(TypeError, match="2 further"):
        stream(0, Stream.HEADS)
    with pytest.raises(TypeError, match="0 further"):
        stream(0, Stream.TRAIN, 1)
    with pytest.raises(TypeError, match="1 further"):
        jax_key(0, Stream.BATCHES)


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
    make_labelled_task(Recipe(**sections))
    return (np.concatenate(numbers) for numbers in written.values())


@pytest.mark.parametrize("kind", ["time_series", "markov_chain"])
def test_a_teacher_shares_no_number_with_the_inputs(kind, monkeypatch):
    """At the defaults of the task, where inputs, heads and teacher have the same seed."""
    inputs, teacher = normals_of(monkeypatch, {"kind": kind, "examples_test": 5}, 100)
    assert len(teacher) > 900
    assert not np.isin(teacher, inputs).any()
