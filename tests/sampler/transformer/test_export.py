"""The attention of PyTorch models: recorded as it is, written as the arrays task reads it."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.tasks.arrays import read_arrays
from sampler.tasks.export import export_attention
from sampler.transformer.recording import record_attention
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")

HEADS, CHANNELS, TOKENS = 2, 6, 4


class Stack(torch.nn.Module):
    """Two attention layers, a residual connection and dropout."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.MultiheadAttention(CHANNELS, HEADS, dropout=0.5, batch_first=batch_first)
            for _ in range(2)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x, x, x)[0]
        return x


class Returning(torch.nn.Module):
    """A model in the manner of Hugging Face: attention comes back when asked for."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, CHANNELS)
        self.spoil = False

    def forward(self, input_ids, attention_mask=None, output_attentions=False, **flags):
        x = self.embedding(input_ids)
        hidden, attentions = [x], []
        for layer in (1, 2):
            logits = layer * x @ x.transpose(1, 2)
            weights = torch.softmax(torch.stack([logits, -logits], dim=1), dim=-1)
            attentions.append(None if self.spoil else weights)
            x = x + weights.mean(dim=1) @ x
            hidden.append(x)
        if not output_attentions:
            return SimpleNamespace(logits=x)
        if not flags.get("output_hidden_states"):
            return SimpleNamespace(attentions=tuple(attentions))
        return SimpleNamespace(attentions=tuple(attentions), hidden_states=tuple(hidden))


@pytest.fixture
def seeded():
    torch.manual_seed(0)


def numbers(tensor) -> np.ndarray:
    return tensor.detach().numpy().astype(float)


def by_hand(layer, tokens: np.ndarray) -> np.ndarray:
    """Ω[head, key, query] of one example and one nn.MultiheadAttention, from its definition."""
    weights, bias = numbers(layer.in_proj_weight), numbers(layer.in_proj_bias)
    queries = tokens @ weights[:CHANNELS].T + bias[:CHANNELS]
    keys = tokens @ weights[CHANNELS : 2 * CHANNELS].T + bias[CHANNELS : 2 * CHANNELS]
    size = CHANNELS // HEADS
    omega = np.zeros((HEADS, TOKENS, TOKENS))
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        for query in range(TOKENS):
            logits = np.array(
                [queries[query, part] @ keys[key, part] / np.sqrt(size) for key in range(TOKENS)]
            )
            raised = np.exp(logits - logits.max())
            omega[head, :, query] = raised / raised.sum()
    return omega


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_is_that_of_the_projections(seeded, batch_first):
    model = Stack(batch_first).train()
    inputs = torch.randn(3, TOKENS, CHANNELS)
    swap = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    recorded = record_attention(model, inputs, forward=lambda model, batch: model(swap(batch)))
    assert recorded.heads == (HEADS, HEADS)
    assert np.array_equal(recorded.inputs, inputs.numpy())
    first, second = model.layers
    with torch.no_grad():
        model.eval()
        between = swap(inputs) + first(swap(inputs), swap(inputs), swap(inputs))[0]
    for example in range(3):
        expected = by_hand(first, numbers(inputs[example]))
        assert_equal_in_float32(recorded.attention[0][example], expected)
        expected = by_hand(second, numbers(swap(between)[example]))
        assert_equal_in_float32(recorded.attention[1][example], expected)
    for matrices in recorded.attention:
        assert_equal_in_float32(matrices.sum(axis=2), np.ones((3, HEADS, TOKENS)))


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_is_recorded_past_its_fast_path(seeded, norm_first):
    layer = torch.nn.TransformerEncoderLayer(
        CHANNELS, HEADS, 8, batch_first=True, norm_first=norm_first
    )
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    inputs = torch.randn(3, TOKENS, CHANNELS)
    recorded = record_attention(model, inputs)
    first = model.layers[0]
    with torch.no_grad():
        seen = first.norm1(inputs) if norm_first else inputs
    assert_equal_in_float32(recorded.inputs, seen.numpy())
    expected = np.stack([by_hand(first.self_attn, numbers(tokens)) for tokens in seen])
    assert_equal_in_float32(recorded.attention[0], expected)
    assert len(recorded.attention) == 2


def test_a_causal_mask_is_in_the_attention(seeded):
    layer = torch.nn.TransformerEncoderLayer(CHANNELS, HEADS, 8, batch_first=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS)
    recorded = record_attention(
        layer,
        torch.randn(3, TOKENS, CHANNELS),
        forward=lambda model, batch: model(batch, src_mask=mask, is_causal=True),
    )
    future = np.tril(np.ones((TOKENS, TOKENS), dtype=bool), k=-1)  # [key, query]: key > query
    assert (recorded.attention[0][..., future] == 0).all()
    assert (recorded.attention[0][..., ~future] > 0).all()


def test_attention_that_a_model_returns(seeded):
    model = Returning()
    ids = torch.randint(0, 5, (3, TOKENS))
    recorded = record_attention(model, {"input_ids": ids, "attention_mask": torch.ones(3, TOKENS)})
    expected = model(ids, output_attentions=True, output_hidden_states=True)
    assert_equal_in_float32(recorded.inputs, numbers(expected.hidden_states[0]))
    for received, weights in zip(recorded.attention, expected.attentions, strict=True):
        for query in range(TOKENS):
            for key in range(TOKENS):
                assert_equal_in_float32(
                    received[:, :, key, query], numbers(weights[:, :, query, key])
                )
    assert np.array_equal(record_attention(model, ids).inputs, recorded.inputs)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_afterwards_as_before(seeded, fails):
    model = Stack().train()
    model.layers[1].eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def forward(model, batch):
        model(batch)
        if fails:
            raise KeyboardInterrupt

    torch.backends.mha.set_fastpath_enabled(True)
    if fails:
        with pytest.raises(KeyboardInterrupt):
            record_attention(model, torch.randn(3, TOKENS, CHANNELS), forward=forward)
    else:
        record_attention(model, torch.randn(3, TOKENS, CHANNELS), forward=forward)
    assert model.training
    assert model.layers[0].training
    assert not model.layers[1].training
    assert torch.backends.mha.get_fastpath_enabled()
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name])
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("asked", [{}, {"need_weights": False}], ids=str)
def test_callers_of_a_layer_receive_what_they_asked_for(seeded, asked):
    received = []

    class Caller(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)

        def forward(self, x):
            received.append(self.layer(x, x, x, **asked))

    model, inputs = Caller().eval(), torch.randn(1, TOKENS, CHANNELS)
    record_attention(model, inputs)
    with torch.no_grad():
        model(inputs)
    (attended, weights), (expected, expected_weights) = received
    assert_equal_in_float32(numbers(attended), numbers(expected))
    if expected_weights is None:
        assert weights is None
    else:
        assert_equal_in_float32(numbers(weights), numbers(expected_weights))


def examples(count, labels=True):
    """Inputs, and ±1 in turn as labels."""
    return torch.randn(count, TOKENS, CHANNELS), (
        torch.arange(count) % 2 * 2.0 - 1.0 if labels else None
    )


def test_labels_stay_with_their_inputs_piece_by_piece(seeded, tmp_path):
    """Columns of 0 and 1, one for each class, may be whole numbers."""
    inputs, numbers = torch.randn(5, TOKENS, CHANNELS), torch.arange(5.0)
    columns = torch.eye(3, dtype=torch.long)[[0, 2, 1, 1, 0]]
    for name, labels in (("numbers", numbers), ("columns", columns)):
        path = export_attention(
            tmp_path / f"{name}.h5", Stack(), train=(inputs, labels), test=(inputs, labels),
            batch_size=2,
        )  # fmt: skip
        for split in read_arrays(path).splits:
            assert np.array_equal(split.inputs, inputs.numpy())
            assert np.array_equal(split.labels, labels.reshape(5, -1).numpy().astype(float))


@pytest.mark.parametrize(("suffix", "attended"), [("npz", None), ("h5", "mean")])
def test_a_data_loader_gives_what_all_examples_at_once_give(suffix, attended, seeded, tmp_path):
    model, train, test = Stack(), examples(7), examples(3)
    whole = read_arrays(
        export_attention(tmp_path / "whole.npz", model, train=train, test=test, attended=attended)
    )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*train), batch_size=3)
    path = tmp_path / f"pieces.{suffix}"
    export_attention(path, model, train=loader, test=test, attended=attended, batch_size=2)
    received = read_arrays(path)
    assert received.heads == whole.heads
    for split, expected in zip(received.splits, whole.splits, strict=True):
        for one, other in zip(split.arrays, expected.arrays, strict=True):
            assert_equal_in_float32(one, other)


def test_a_residual_connection_is_one_more_head(seeded, tmp_path):
    path = tmp_path / "mine.npz"
    data = {"train": examples(4), "test": examples(3)}
    plain = read_arrays(export_attention(path, Stack(), **data))
    torch.manual_seed(0)
    model = Stack()
    more = read_arrays(export_attention(path, model, residual=True, **data))
    assert plain.heads == (HEADS, HEADS)
    assert more.heads == (HEADS + 1, HEADS + 1)
    assert more.head_names == (("0", "1", "residual"),) * 2
    for layer in more.test.attention:
        assert (layer[:, HEADS] == np.eye(TOKENS)).all()
    recorded = record_attention(model, data["test"][0])
    assert np.array_equal(more.test.attention[1][:, :HEADS], recorded.attention[1])


class Changing(torch.nn.Module):
    """The number of layers depends on the batch."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)

    def forward(self, x):
        for _ in range(len(x)):
            x = self.layer(x, x, x)[0]


class Cross(Changing):
    def forward(self, x):
        return self.layer(x, x + 1.0, x)


def spoiled():
    model = Stack()
    with torch.no_grad():
        model.layers[1].in_proj_weight[0, 0] = float("nan")
    return model


def attention_of_none():
    model = Returning()
    model.spoil = True
    return model


TOKEN_IDS = torch.tensor([[0, 1, 2, 3]] * 2)
INPUTS = torch.linspace(-1.0, 1.0, 3 * TOKENS * CHANNELS).reshape(3, TOKENS, CHANNELS)


@pytest.mark.parametrize(
    ("model", "inputs", "more", "message"),
    [
        (lambda: torch.nn.Linear(CHANNELS, 2), INPUTS, {}, "model = "),
        (Stack, [], {}, "inputs = "),
        (Stack, INPUTS, {"batch_size": 0}, "batch_size = "),
        (lambda: Stack(False), INPUTS, {}, r"examples .* = 4: 1 went in; .*transpose\(0, 1\)"),
        (spoiled, INPUTS, {}, r"attention of layer 2\[0, 0, 0, 0\] = nan: every entry"),
        (Changing, INPUTS, {"batch_size": 2}, "was .* for the first example"),
        (Cross, INPUTS, {}, "key of MultiheadAttention = "),
        (attention_of_none, TOKEN_IDS, {}, "attentions = "),
        (
            Returning,
            TOKEN_IDS,
            {"forward": lambda model, batch: model(batch, output_attentions=True)},
            "hidden_states = ",
        ),
    ],
)
def test_what_cannot_be_recorded_is_named(seeded, model, inputs, more, message):
    with pytest.raises(InputError, match=message):
        record_attention(model(), inputs, **more)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "mine.txt"}, "path = "),
        ({"train": (torch.zeros(2, 4, 6), torch.tensor([0, 1]))}, "labels_train = "),
        ({"head_names": [["a", "b"], ["c"]]}, "head_names = "),
        ({"test": (torch.zeros(1, 4, 6), torch.tensor([torch.inf]))}, "labels_test = "),
        ({"test": (torch.zeros(1, 4, 6), torch.ones(1, 2))}, "labels_test = "),
    ],
)
def test_what_cannot_be_written_is_named_and_nothing_is_left(seeded, tmp_path, change, message):
    settings = {"path": "mine.npz", "train": examples(2), "test": examples(2)} | change
    with pytest.raises(InputError, match=message):
        export_attention(tmp_path / settings.pop("path"), Stack(), **settings)
    assert not list(tmp_path.iterdir())


def test_without_pytorch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"torch = \(absent\): .*\[torch\]"):
        record_attention(object(), [])


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_a_model_in_double_precision_is_exported_so(seeded, readout, tmp_path):
    """Attended inputs by hand in double precision, head by head."""
    model, inputs = Stack().double(), torch.randn(3, TOKENS, CHANNELS, dtype=torch.float64)
    labels = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    path = export_attention(
        tmp_path / "double.npz",
        model,
        train=(inputs, labels),
        test=(inputs, None),
        attended=readout,
    )
    with np.load(path) as found:
        received = found["attended_train"]
    recorded = record_attention(model, inputs)
    first, second = recorded.attention
    read = np.eye(TOKENS)[-1] if readout == "last" else np.full(TOKENS, 1 / TOKENS)
    for row in range(3):
        for one in range(HEADS):
            for two in range(HEADS):
                weights = first[row, one] @ second[row, two] @ read
                expected = recorded.inputs[row].T @ weights
                np.testing.assert_allclose(
                    received[row, one * HEADS + two], expected, rtol=0, atol=1e-14
                )
