"""Data that look as if they meant something else are used with a warning, wherever it is read."""

import numpy as np
import pytest

from sampler.cli import main
from sampler.data.arrays import read_arrays
from sampler.errors import ExitCode
from tests.sampler.data.test_arrays import arrays
from tests.tasks import write_arrays

SIZES = {"train": 12, "test": 6}
LAYERS = [(name, layer) for name in SIZES for layer in (1, 2)]


def softmax(logits, axis):
    weights = np.exp(logits)
    return weights / weights.sum(axis=axis, keepdims=True)


def as_written(axis, dtype=np.float64, mask=None):
    """Arrays whose attention sums to 1 over this axis: 2 is that of keys."""
    stored = arrays(sizes=SIZES)
    for name, layer in LAYERS:
        logits = stored[f"attention_{name}_{layer}"]
        hidden = logits if mask is None else np.where(mask, logits, -np.inf)
        stored[f"attention_{name}_{layer}"] = softmax(hidden, axis).astype(dtype).astype(float)
    return stored


def concerns(folder, stored):
    np.savez(folder / "mine.npz", **stored)
    return read_arrays(folder / "mine.npz").concerns


def test_attention_that_is_query_by_key_is_named(tmp_path):
    """Also where its sums are rounded as those of half precision."""
    assert concerns(tmp_path, as_written(2, np.float16)) == ()
    (said,) = concerns(tmp_path, as_written(3, np.float16))
    for name, layer in LAYERS:
        assert f"attention_{name}_{layer} ({layer + 1} of {layer + 1} heads)" in said


def test_any_head_may_look_so_and_those_that_are_the_same_both_ways_do_not(tmp_path):
    sees = np.tri(6).T  # keys up to each query
    right, wrong = as_written(2, mask=sees > 0), as_written(3, mask=sees.T > 0)
    assert concerns(tmp_path, right) == ()
    right["attention_test_2"][:, 1] = 1 / 6
    right["attention_train_1"][:, :] = np.eye(6)
    assert concerns(tmp_path, right) == ()
    right["attention_test_2"][:, 2] = wrong["attention_test_2"][:, 2]
    (said,) = concerns(tmp_path, right)
    assert said.startswith("attention_test_2 (1 of 3 heads): ")


def test_one_example_that_is_right_clears_a_head(tmp_path):
    stored = as_written(3)
    for key in (f"attention_{name}_{layer}" for name, layer in LAYERS):
        stored[key][-1] = softmax(np.log(stored[key][-1]), 1)
    assert concerns(tmp_path, stored) == ()


def test_padding_does_not_count(tmp_path):
    stored = as_written(3)
    length = {name: np.full(size, 4) for name, size in SIZES.items()}
    for name, layer in LAYERS:
        matrices = np.zeros_like(stored[f"attention_{name}_{layer}"])
        inner = stored[f"attention_{name}_{layer}"][..., :4, :4]
        matrices[..., :4, :4] = inner / inner.sum(axis=3, keepdims=True)
        stored[f"attention_{name}_{layer}"] = matrices
    assert concerns(tmp_path, stored) == ()  # as no sequence says where it ends
    (said,) = concerns(tmp_path, stored | {f"lengths_{name}": one for name, one in length.items()})
    assert said.startswith("attention_train_1 (2 of 2 heads), ")


@pytest.mark.parametrize(
    ("labels", "doubtful"),
    [([0.0, 1.0], True), ([-1.0, 1.0], False), ([1.0], False), (np.eye(3), False)],
)
def test_zero_and_one_may_be_classes_where_there_is_no_output_for_each(tmp_path, labels, doubtful):
    labels = np.asarray(labels)
    of_splits = {
        f"labels_{name}": labels[np.arange(size) % len(labels)] for name, size in SIZES.items()
    }
    assert len(concerns(tmp_path, as_written(2) | of_splits)) == doubtful


def test_commands_say_so(tmp_path, capsys):
    recipe = write_arrays(tmp_path, as_written(3), "network = {widths = 3}\n")
    (said,) = read_arrays(tmp_path / "mine.npz").concerns
    assert main(["check", str(recipe)]) == ExitCode.OK
    assert said in " ".join(capsys.readouterr().out.split())
