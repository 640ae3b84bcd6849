"""What cannot be recorded of models, or written: maker, and the field or value that is named."""

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.torch_models.export import export_attention, read_labels
from sampler.torch_models.recording import chosen_heads, record_attention
from tests.sampler.torch_models.families import (
    HEADS,
    TOKENS,
    WIDTH,
    Encoder,
    family,
    inputs_of,
    torch,
)

BATCH = torch.linspace(-1.0, 1.0, 3 * TOKENS * WIDTH).reshape(3, TOKENS, WIDTH)
PADDING = torch.tensor([[False, False, False, False, True]] * 3)


class Cross(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        return self.layer(x, x + 1.0, x)


class Changing(Cross):
    """The number of layers depends on the batch."""

    def forward(self, x):
        for _ in range(len(x)):
            x = self.layer(x, x, x)[0]
        return x


class HalfMasked(Cross):
    """The second of two layers is not told of padding."""

    def forward(self, tokens, padding):
        seen, _ = self.layer(tokens, tokens, tokens, key_padding_mask=padding)
        return self.layer(seen, seen, seen)


class Unsaid(Cross):
    """Hides its last token from all, and nothing says that it is padding."""

    def forward(self, tokens):
        hidden = torch.zeros(len(tokens) * HEADS, TOKENS, TOKENS, dtype=bool)
        hidden[..., -1] = True
        return self.layer(tokens, tokens, tokens, attn_mask=hidden)


def spoiled():
    model = Encoder()
    with torch.no_grad():
        model.encoder.layers[1].self_attn.in_proj_weight[0, 0] = float("nan")
    return model


def padded(padding):
    return {"tokens": BATCH, "padding": padding}


def other_queries(model, batch):
    return batch, [torch.ones(3, 2, TOKENS, 3)]


@pytest.mark.parametrize(
    ("model", "inputs", "more", "message"),
    [
        (lambda: torch.nn.Linear(WIDTH, 2), BATCH, {}, "model = .*attention=lambda"),
        (Changing, [], {}, "inputs = "),
        (Changing, BATCH, {"batch_size": 2}, "was .* for the first examples"),
        (Cross, BATCH, {}, "key of MultiheadAttention = "),
        (spoiled, BATCH, {}, r"attention of layer 2\[0, 0, 0, 0\] = nan: every entry"),
        (HalfMasked, padded(PADDING), {}, "gives to padding"),
        (HalfMasked, padded(PADDING | True), {}, "tokens of example 0 = 0"),
        (Unsaid, BATCH, {}, "attention to token 4 of example 0 = .*attention_mask"),
        (Changing, BATCH, {"attention": other_queries}, r"attention of layer 1 = \(3, 2, 5, 3\)"),
    ],
)
def test_what_cannot_be_recorded_is_named(model, inputs, more, message):
    with pytest.raises(InputError, match=message):
        record_attention(model(), inputs, **more)


@pytest.mark.parametrize(("name", "mask"), [("encoder", "padding"), ("gpt2", "attention_mask")])
def test_a_sequence_of_padding_alone_has_its_number_among_all(name, mask):
    """Also in a later batch; nn.MultiheadAttention makes NaN of it, which is not looked at."""
    made = family(name)
    inputs = inputs_of(made, "right")
    inputs[mask][2] = int(mask == "padding")
    with pytest.raises(InputError) as caught:
        record_attention(made.model, inputs, batch_size=2)
    assert caught.value.field == "tokens of example 2"


@pytest.mark.parametrize(
    ("layers", "heads", "message"),
    [
        ((2, 3), None, "layers = .*layers 1 to 2"),
        ((2, 1), None, "layers = "),
        (None, {1: [2]}, r"heads\[1\] = "),
        (None, {2: [0, 0]}, r"heads\[2\] = "),
        (None, [[0], [1]], "heads = "),
    ],
)
@pytest.mark.usefixtures("without_annotation_checks")
def test_layers_and_heads_that_there_are_not(layers, heads, message):
    with pytest.raises(InputError, match=message):
        chosen_heads((2, 2), layers, heads)


TWO, ONE = (BATCH[:2], torch.tensor([1.0, -1.0])), BATCH[:1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": (TWO[0], torch.tensor([0, 1]))}, "labels_train = .*class numbers"),
        ({"train": iter([])}, r"train = \(no examples\)"),
        ({"test": (ONE, torch.tensor([torch.inf]))}, "labels_test = "),
        ({"test": (ONE, torch.ones(1, 2))}, "labels_test = "),
        ({"test": [TWO, (ONE, None)]}, "labels_test = None"),
        ({"test": (ONE, None, torch.zeros(1))}, "test = .*pair"),
    ],
)
@pytest.mark.usefixtures("without_annotation_checks")
def test_what_cannot_be_written_is_named_and_nothing_is_left(tmp_path, change, message):
    settings = {"path": "mine.npz", "train": TWO, "test": TWO} | change
    with pytest.raises(InputError, match=message):
        export_attention(tmp_path / settings.pop("path"), Encoder().eval(), **settings)
    assert not list(tmp_path.iterdir())


def test_class_numbers_are_columns_where_outputs_are_known():
    numbers, signs = torch.tensor([2, 0, 1]), torch.tensor([1, -1, 1])
    np.testing.assert_array_equal(read_labels("labels", numbers, 3, 3), np.eye(3)[[2, 0, 1]])
    np.testing.assert_array_equal(read_labels("labels", signs, 3, 1)[:, 0], [1.0, -1.0, 1.0])
    for outputs, message in ((2, "from 0 to 1"), (1, "a column of 0 and 1")):
        with pytest.raises(InputError, match=message):
            read_labels("labels", numbers, 3, outputs)
