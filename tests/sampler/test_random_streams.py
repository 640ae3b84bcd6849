"""Random streams of one seed are independent of each other, whatever they are for."""

import ast
import itertools

import jax
import numpy as np
import pytest

from sampler import streams
from sampler.data.make import build_task
from sampler.settings.recipe import Recipe
from sampler.streams import Stream, jax_key, part_of_key, stream
from sampler.teacher import with_teacher
from tests import ROOT

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
    """Nor their children and grandchildren, nor their first numbers, nor parts of a draw's key."""
    parents = jax.numpy.stack([jax.random.key(3), *(jax_key(3, *key) for key in KEYS)])

    def children(keys):
        split = jax.vmap(lambda key: jax.random.split(key, len(FEW)))
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
    key = jax.random.key(5)
    parts = [key, *(part_of_key(key, of) for of in Stream if not of.further)]
    data = np.asarray(jax.random.key_data(jax.numpy.stack(parts)))
    assert len(np.unique(data, axis=0)) == len(data)


def test_a_key_has_as_many_entries_as_its_stream_says():
    """One more would be the key of another stream."""
    for make, of, further in (
        (stream, Stream.HEADS, ()),
        (stream, Stream.TRAIN, (1,)),
        (jax_key, Stream.BATCHES, ()),
    ):
        with pytest.raises(TypeError):
            make(0, of, *further)


GENERATORS = ("numpy.random", "random")
KEY_MAKERS = ("jax.random.key", "jax.random.PRNGKey")


def test_no_random_generator_is_made_outside_the_module_of_streams():
    """Neither by a call of numpy.random or of a maker of JAX's keys, nor from Python's own."""
    found = []
    for path in sorted((ROOT / "sampler").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).replace("np.", "numpy.")
                if called.startswith("numpy.random.") or called in KEY_MAKERS:
                    found.append(path.name)
            elif isinstance(node, ast.ImportFrom) and node.module in GENERATORS:
                found.append(path.name)
            elif isinstance(node, ast.Import):
                found += [path.name for one in node.names if one.name in GENERATORS]
    assert {*found} == {"streams.py"}


@pytest.mark.parametrize("kind", ["time_series", "markov_chain"])
def test_a_teacher_asks_for_no_stream_of_the_inputs(kind, monkeypatch):
    """At the defaults of the task, where inputs, heads and teacher have the same seed."""
    asked, entries_of = [], streams.entries_of

    def recorded(of, further):
        asked.append((of, *further))
        return entries_of(of, further)

    monkeypatch.setattr(streams, "entries_of", recorded)
    task = {"kind": kind, "examples_test": 5, "labels": "teacher"}
    recipe = Recipe(name="x", task=task, network={"widths": 100})
    built = build_task(recipe)
    of_inputs = {*asked}
    asked.clear()
    with_teacher(built, recipe)
    assert of_inputs
    assert asked
    assert not of_inputs & {*asked}
