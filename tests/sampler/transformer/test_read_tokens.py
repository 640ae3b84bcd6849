"""Labels at tokens of sequences of different lengths, and splits that come in batches."""

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.tasks.arrays import read_arrays
from sampler.tasks.export import export_attention

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")

LENGTHS, TOKENS, CHANNELS = (4, 2, 3, 1), 4, 8
# Two labels of the first sequence, one of the second, none of the third, one of the last.
POSITIONS = torch.tensor([[0, 3], [1, -1], [-1, -1], [0, -1]])
LABELS = torch.tensor([[1.0, -1.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
WINDOW = {"layers": (1, 2), "residual": True}
SINGLE = {"paths": "single", "share": 1.0}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(CHANNELS, 2, 6, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, tokens, padding=None):
        return self.layers(tokens, src_key_padding_mask=padding)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


def tokens():
    return torch.randn(len(LENGTHS), TOKENS, CHANNELS, generator=torch.Generator().manual_seed(1))


def in_a_list():
    return [one[:length] for one, length in zip(tokens(), LENGTHS, strict=True)]


def padded():
    return {
        "tokens": tokens(),
        "padding": torch.arange(TOKENS) >= torch.tensor(LENGTHS)[:, None],
    }


def exported(path, model, examples, **settings):
    export_attention(path, model, train=examples, test=examples, **settings)
    return read_arrays(path).train


def test_sequences_in_a_list_are_read_as_padded_ones_are(model, tmp_path):
    alone, padding = (
        exported(
            tmp_path / f"{inputs.__name__}.npz",
            model,
            (inputs(), LABELS, POSITIONS),
            batch_size=1,
            **WINDOW,
        )
        for inputs in (in_a_list, padded)
    )
    assert alone.lengths.tolist() == padding.lengths.tolist() == [4, 4, 2, 1]
    np.testing.assert_array_equal(alone.labels[:, 0], [1.0, -1.0, 1.0, -1.0])
    np.testing.assert_array_equal(alone.inputs, padding.inputs)
    for one, other in zip(alone.attention, padding.attention, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)  # float32


@pytest.mark.parametrize(("inputs", "settings"), [(in_a_list, WINDOW), (padded, SINGLE)])
def test_a_token_behind_a_sequence_is_refused_by_the_number_of_its_example(
    model, inputs, settings, tmp_path
):
    positions = torch.tensor([3, 1, 0, 2])
    with pytest.raises(InputError, match=r"token read of example 3 = 2: .* which has 1 in"):
        exported(
            tmp_path / "no.npz",
            model,
            (inputs(), LABELS[:, 0], positions),
            batch_size=2,
            **settings,
        )


@pytest.mark.parametrize(
    ("settings", "name", "empty"), [(WINDOW, "no.npz", "train"), (SINGLE, "no.h5", "test")]
)
def test_a_loader_without_batches_is_refused(model, settings, name, empty, tmp_path):
    splits = dict.fromkeys(("train", "test"), (tokens(), LABELS[:, 0] * 2 - 1))
    with pytest.raises(InputError, match=rf"{empty} = \(no examples\): no batch came"):
        export_attention(tmp_path / name, model, **{**splits, empty: iter([])}, **settings)
    assert not list(tmp_path.iterdir())
