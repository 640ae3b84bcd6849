"""Attention and labels of PyTorch models in files, as the arrays task reads them."""

import numpy as np
import pytest

from sampler.data.arrays import read_arrays
from sampler.torch_models.export import export_attention
from sampler.torch_models.recording import record_attention
from tests.assertions import assert_equal_in_float32
from tests.sampler.torch_models.families import HEADS, LAYERS, TOKENS, WIDTH, family, torch


def examples(count, labels=True):
    """Inputs, and ±1 in turn as labels."""
    tokens = torch.randn(count, TOKENS, WIDTH, generator=torch.Generator().manual_seed(count))
    return tokens, (torch.arange(count) % 2 * 2.0 - 1.0 if labels else None)


@pytest.fixture(scope="module")
def model():
    return family("encoder").model


def test_labels_stay_with_their_inputs_piece_by_piece(model, tmp_path):
    """Columns of 0 and 1, one for each class, may be whole numbers."""
    inputs, numbers = examples(5)[0], torch.arange(5.0)
    columns = torch.eye(3, dtype=torch.long)[[0, 2, 1, 1, 0]]
    for name, labels in (("numbers", numbers), ("columns", columns)):
        path = export_attention(
            tmp_path / f"{name}.h5", model, train=(inputs, labels), test=(inputs, labels),
            batch_size=2,
        )  # fmt: skip
        for split in read_arrays(path).splits:
            np.testing.assert_array_equal(split.inputs, inputs.numpy())
            np.testing.assert_array_equal(split.labels, labels.reshape(5, -1).numpy())


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_batches_give_what_all_examples_at_once_give(model, suffix, tmp_path):
    train, test = examples(7), examples(3)
    whole = read_arrays(export_attention(tmp_path / "whole.npz", model, train=train, test=test))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*train), batch_size=3)
    path = tmp_path / f"pieces.{suffix}"
    export_attention(path, model, train=loader, test=test, batch_size=2)
    received = read_arrays(path)
    assert received.heads == whole.heads
    for split, expected in zip(received.splits, whole.splits, strict=True):
        for one, other in zip(split.arrays, expected.arrays, strict=True):
            assert_equal_in_float32(one, other)


def test_heads_are_called_by_layer_and_number_where_some_are_left_out(model, tmp_path):
    """And a residual connection is one more head, whose attention is the identity."""
    settings = {"train": examples(4), "test": examples(3), "residual": True}
    whole = read_arrays(export_attention(tmp_path / "whole.npz", model, **settings))
    assert whole.head_names == ((*map(str, range(HEADS)), "residual"),) * LAYERS
    path = tmp_path / "part.npz"
    export_attention(path, model, layers=(2, 2), heads={2: [0, 3]}, **settings)
    part = read_arrays(path)
    assert part.head_names == (("2.0", "2.3", "residual"),)
    assert part.numbers == (2,)
    assert part.origin == ("layer 2: encoder.layers.1.self_attn",)
    recorded = record_attention(model, settings["test"][0])
    np.testing.assert_array_equal(part.test.attention[0][:, :2], recorded.attention[1][:, [0, 3]])
    assert (part.test.attention[0][:, 2] == np.eye(TOKENS)).all()


@pytest.mark.parametrize("listed", [False, True])
def test_sequences_of_batches_have_their_own_lengths(listed, tmp_path):
    """Shorter ones have 0 behind them; attention is that of each batch alone, also of lists."""
    model, long = family("encoder").model, examples(3)
    short = long[0][:2, : TOKENS - 1], long[1][:2]
    given = [(list(inputs) if listed else inputs, labels) for inputs, labels in (short, long)]
    for suffix in ("npz", "h5"):
        path = tmp_path / f"both.{suffix}"
        found = read_arrays(export_attention(path, model, train=given, test=long)).train
        np.testing.assert_array_equal(found.inputs[2:], long[0])
        np.testing.assert_array_equal(found.labels[:, 0], [-1, 1, -1, 1, -1])
        assert found.lengths.tolist() == [TOKENS - 1] * 2 + [TOKENS] * 3
        recorded = record_attention(model, short[0])
        for layer, expected in zip(found.attention, recorded.attention, strict=True):
            assert_equal_in_float32(layer[:2, :, :-1, :-1], expected)
            assert not layer[:2, :, -1].any()
        assert not found.inputs[:2, -1].any()
