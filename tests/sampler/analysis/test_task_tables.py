"""`task.nc`: heads and their attention to an example, no more of it than figures show."""

from types import SimpleNamespace

import numpy as np

from sampler.analysis.task_tables import MOST_HEADS, MOST_LAYERS, MOST_TOKENS, task_table
from sampler.data.split import AttendedSplit, Split, StreamedSplit
from sampler.data.task import Task
from sampler.storage.result_files import read_table, write_result


def split_of(rng, heads=(2, 1), tokens=5, lengths=None, labels=(1.0, 1.0, -1.0)) -> Split:
    """Examples with attention that no token of padding has a part in."""
    examples = len(labels)
    attention = tuple(rng.random((examples, h, tokens, tokens)) for h in heads)
    if lengths is not None:
        real = np.arange(tokens) < np.asarray(lengths)[:, None]
        attention = tuple(np.where(real[:, None, :, None], one, 0.0) for one in attention)
    inputs = rng.standard_normal((examples, tokens, 3))
    return Split(inputs, np.array(labels)[:, None], attention, lengths)


def task_of(split, heads=(2, 1), **more) -> Task:
    names = tuple(tuple(f"h{head}" for head in range(count)) for count in heads)
    return Task.of(split, split, names=names, **more)


def test_heads_and_their_attention_to_the_first_example(rng, tmp_path):
    split = split_of(rng)
    write_result(tmp_path, "task.nc", task_table(task_of(split)))
    received = read_table(tmp_path, "task.nc")
    for layer, matrices in enumerate(split.attention, start=1):
        expected = matrices[0].astype(np.float32)
        np.testing.assert_array_equal(received[f"attention_{layer}"], expected)
    assert received["head_names_1"].values.tolist() == ["h0", "h1"]
    assert received.attrs["paths"] == 2


def test_padding_is_left_out(rng):
    split = split_of(rng, lengths=np.array([2, 5, 3]))
    received = task_table(task_of(split))
    assert received["attention_1"].shape == (2, 2, 2)


def test_no_more_is_kept_than_shown(rng):
    heads = (MOST_HEADS + 2,) + (1,) * MOST_LAYERS
    received = task_table(task_of(split_of(rng, heads, MOST_TOKENS + 1), heads))
    assert received["attention_1"].shape == (MOST_HEADS, MOST_TOKENS, MOST_TOKENS)
    assert f"attention_{MOST_LAYERS + 1}" not in received
    assert received[f"head_names_{MOST_LAYERS + 1}"].size == 1


def test_a_hypernetwork_attends_twice(rng):
    received = task_table(task_of(split_of(rng, (2,)), (2,), hypernetworks=(True,)))
    np.testing.assert_array_equal(received["attention_1"], received["attention_2"])


def test_attended_inputs_have_no_attention(rng):
    attended = rng.standard_normal((2, 2, 3))
    split = AttendedSplit(attended, np.array([[1.0], [-1.0]]), (2, 1))
    received = task_table(task_of(split))
    assert set(received) == {"head_names_1", "head_names_2"}


def test_of_examples_that_are_not_held_only_the_first_are_made(rng):
    split, made = split_of(rng), []

    def blocks(first: int):
        made.append(first)
        yield split.part(slice(first, first + 2))

    source = SimpleNamespace(identity=str, blocks=blocks)
    task = task_of(StreamedSplit(source, split.labels, 3, (2, 1), 3, 5))
    received = task_table(task)["attention_1"]
    np.testing.assert_array_equal(received, split.attention[0][0].astype(np.float32))
    assert made == [0]
