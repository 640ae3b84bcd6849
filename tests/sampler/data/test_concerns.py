"""Data that look as if they meant something else are used with a warning, wherever it is read."""

import numpy as np
import pytest

from sampler.cli import main
from sampler.data.arrays import task_of_arrays
from sampler.errors import ExitCode
from tests.sampler.data.test_arrays import arrays
from tests.tasks import write_arrays

SIZES = {"train": 12, "test": 6}
KEYS = {f"attention_{name}_{layer}": layer + 1 for name in SIZES for layer in (1, 2)}
FOR_QUERIES, FOR_KEYS = 2, 3


def softmax(logits, axis):
    weights = np.exp(logits)
    return weights / weights.sum(axis=axis, keepdims=True)


def as_written(axis, dtype=np.float64, mask=True):
    """Arrays whose attention sums to 1 over this axis: 2 is that of keys."""
    stored = arrays(sizes=SIZES)
    for key in KEYS:
        stored[key] = softmax(np.where(mask, stored[key], -np.inf), axis).astype(dtype)
    return stored


def concerns(stored):
    return task_of_arrays(stored).concerns


def test_attention_that_is_query_by_key_is_named():
    """Also where its sums are rounded as those of half precision, and of single heads."""
    assert concerns(as_written(FOR_QUERIES, np.float16)) == ()
    (said,) = concerns(as_written(FOR_KEYS, np.float16))
    for key, heads in KEYS.items():
        assert f"{key} ({heads} of {heads} heads)" in said
    sees = np.tri(6).T  # keys up to each query
    right, wrong = as_written(2, mask=sees > 0), as_written(3, mask=sees.T > 0)
    # The same both ways.
    right["attention_test_2"][:, 1] = 1 / 6
    right["attention_train_1"][:, :] = np.eye(6)
    assert concerns(right) == ()
    right["attention_test_2"][:, 2] = wrong["attention_test_2"][:, 2]
    (said,) = concerns(right)
    assert said.startswith("attention_test_2 (1 of 3 heads): ")


def test_one_example_that_is_right_clears_a_head():
    stored = as_written(FOR_KEYS)
    for key in KEYS:
        stored[key][-1] = softmax(np.log(stored[key][-1]), 1)
    assert concerns(stored) == ()


def test_padding_does_not_count():
    stored = as_written(FOR_KEYS)
    for key in KEYS:
        inner = stored[key][..., :4, :4]
        stored[key] = np.zeros_like(stored[key])
        stored[key][..., :4, :4] = inner / inner.sum(axis=3, keepdims=True)
    assert concerns(stored) == ()  # as no sequence says where it ends
    lengths = {f"lengths_{name}": np.full(size, 4) for name, size in SIZES.items()}
    (said,) = concerns(stored | lengths)
    assert said.startswith("attention_train_1 (2 of 2 heads), ")


@pytest.mark.parametrize(
    ("labels", "doubtful"),
    [([0.0, 1.0], True), ([-1.0, 1.0], False), ([1.0], False), (np.eye(3), False)],
)
def test_zero_and_one_may_be_classes_where_there_is_no_output_for_each(labels, doubtful):
    labels = np.asarray(labels)
    of_splits = {
        f"labels_{name}": labels[np.arange(size) % len(labels)] for name, size in SIZES.items()
    }
    assert len(concerns(as_written(FOR_QUERIES) | of_splits)) == doubtful


def test_commands_say_so(tmp_path, capsys):
    stored = as_written(FOR_KEYS)
    recipe = write_arrays(tmp_path, stored, "network = {widths = 3}\n")
    (said,) = concerns(stored)
    assert main(["check", str(recipe)]) == ExitCode.OK
    assert said in " ".join(capsys.readouterr().out.split())
