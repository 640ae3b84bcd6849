"""Windows of layers, single heads as paths, and the token that a label is read off."""

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.tasks.arrays import read_arrays
from sampler.tasks.export import export_attention
from sampler.transformer.recording import record_attention
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
functional = torch.nn.functional

TOKENS, CHANNELS, HEADS, LAYERS, WORDS = 5, 8, 2, 3, 11


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Block(torch.nn.Module):
    """Attention that calls the fused kernel, and an MLP, normalised before or behind each."""

    def __init__(self, before, mlp):
        super().__init__()
        linear, norm = torch.nn.Linear, torch.nn.LayerNorm
        self.qkv, self.out = linear(CHANNELS, 3 * CHANNELS), linear(CHANNELS, CHANNELS)
        self.norms = torch.nn.ModuleList(norm(CHANNELS) for _ in range(2))
        for one in self.norms:
            torch.nn.init.normal_(one.weight)
        self.mlp = None
        if mlp:
            hidden = linear(CHANNELS, 6), torch.nn.GELU(), linear(6, CHANNELS)
            self.mlp = torch.nn.Sequential(*hidden)
        self.before = before

    def attend(self, x, mask):
        query, key, value = (
            one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1)
        )
        mask = None if mask is None else mask[:, None, None, :] == 1
        heads = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(heads.transpose(1, 2).flatten(2))

    def forward(self, x, mask=None):
        first, second = self.norms
        if self.before:
            x = x + self.attend(first(x), mask)
            return x if self.mlp is None else x + self.mlp(second(x))
        x = first(x + self.attend(x, mask))
        return x if self.mlp is None else second(x + self.mlp(x))


class Model(torch.nn.Module):
    """Words and positions, three blocks, a last norm where norms come before, and a head."""

    def __init__(self, before=True, mlp=True):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, CHANNELS)
        self.places = torch.nn.Embedding(TOKENS, CHANNELS)
        self.blocks = torch.nn.ModuleList(Block(before, mlp) for _ in range(LAYERS))
        self.last = torch.nn.LayerNorm(CHANNELS) if before else torch.nn.Identity()
        self.head = torch.nn.Linear(CHANNELS, 1)

    def forward(self, ids, attention_mask=None):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, attention_mask)
        return self.head(self.last(x)[:, -1])


def words(examples):
    return torch.randint(0, WORDS, (examples, TOKENS))


def signs(examples):
    return torch.arange(examples) % 2 * 2.0 - 1.0


def spreads(tokens):
    """1/σ of a layer norm."""
    return (tokens.var(-1, unbiased=False) + 1e-5).rsqrt()


def by_hand(model, ids):
    """What enters each layer, Ω, r of each head, MLP and of the embedding, x_0 and MLPs."""
    x = model.words(ids) + model.places.weight
    start, entering, weights, mlps = x, [], [], []
    passed = []  # factors in order, with what they come after
    for layer, block in enumerate(model.blocks):
        first, second = block.norms
        seen = first(x) if block.before else x
        query, key, _ = (
            one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in block.qkv(seen).chunk(3, -1)
        )
        logits = query @ key.transpose(-1, -2) / (CHANNELS // HEADS) ** 0.5
        entering.append(seen)
        weights.append(logits.softmax(-1))
        x = x + block.attend(seen, None)
        if not block.before:
            passed.append((layer, "heads", spreads(x)))
            x = first(x)
        if block.mlp is not None:
            written = block.mlp(second(x) if block.before else x)
            mlps.append(written)
            x = x + written
            if not block.before:
                passed.append((layer, "mlp", spreads(x)))
                x = second(x)
    if model.blocks[0].before:
        passed.append((LAYERS, "heads", spreads(x)))

    def factor(layer, kind):
        """Of everything passed at or behind this place."""
        place = (layer, kind)
        ordered = [(one, two) for one, two, _ in passed]
        found = torch.ones(ids.shape)
        for (one, two), spread in zip(ordered, (spread for *_, spread in passed), strict=True):
            if (one, two == "mlp") >= (place[0], place[1] == "mlp"):
                found = found * spread
        return found

    return start, entering, weights, mlps, factor


@pytest.mark.parametrize(
    ("before", "mlp"),
    [(True, False), (False, True)],
    ids=["norms before", "norms behind, with MLPs"],
)
def test_single_paths_are_those_computed_by_hand(before, mlp, tmp_path):
    model, ids = Model(before, mlp), words(6)
    path = export_attention(
        tmp_path / "single.npz",
        model,
        train=(ids, signs(6)),
        test=(ids[:2], None),
        paths="single",
        mlps=mlp,
        share=1.0,
    )
    task = read_arrays(path)
    names = [f"{layer}.{head}" for layer in range(1, LAYERS + 1) for head in range(HEADS)]
    names += ["embedding"] + [f"mlp {layer}" for layer in range(1, LAYERS + 1)] * mlp
    assert task.path_names == tuple(names)
    assert "token read: last" in task.origin
    assert "layer 2: blocks.1" in task.origin
    with torch.no_grad():
        start, entering, weights, mlps, factor = by_hand(model, ids)
        expected = [
            factor(layer, "heads")[:, -1:]
            * torch.einsum("pk,pkc->pc", weights[layer][:, head, -1], entering[layer])
            for layer in range(LAYERS)
            for head in range(HEADS)
        ]
        expected.append(factor(0, "heads")[:, -1:] * start[:, -1])
        expected += [
            factor(layer, "mlp")[:, -1:] * one[:, -1] if not before else
            factor(layer, "heads")[:, -1:] * one[:, -1]
            for layer, one in enumerate(mlps)
        ]  # fmt: skip
    assert_equal_in_float32(
        task.train.attended, torch.stack(expected, dim=1).numpy(), operations=1000
    )


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_padding_changes_no_single_path(readout, tmp_path):
    model, lengths = Model(), torch.tensor([5, 3, 4])
    ids = words(3)
    mask = (torch.arange(TOKENS) < lengths[:, None]).long()
    settings = {"paths": "single", "share": 1.0, "mlps": True, "attended": readout}
    both = {"ids": ids, "attention_mask": mask}
    path = tmp_path / "a.npz"
    export_attention(path, model, train=(both, signs(3)), test=(both, None), **settings)
    received = read_arrays(path).train.attended
    for row, length in enumerate(lengths):
        alone = ids[row : row + 1, :length]
        export_attention(path, model, train=(alone, signs(1)), test=(alone, None), **settings)
        expected = read_arrays(path).train.attended[0]
        assert_equal_in_float32(received[row], expected, operations=1000)


def test_a_window_begins_with_what_its_values_multiply(tmp_path):
    model, ids = Model(before=True), words(4)
    path = export_attention(
        tmp_path / "window.npz",
        model,
        train=(ids, signs(4)),
        test=(ids, None),
        layers=(2, 3),
        heads={3: [1]},
        residual=True,
    )
    task = read_arrays(path)
    whole = record_attention(model, ids)
    with torch.no_grad():
        _, entering, weights, *_ = by_hand(model, ids)
    assert_equal_in_float32(task.train.inputs, entering[1].numpy(), operations=1000)
    assert np.array_equal(task.train.attention[0][:, :HEADS], whole.attention[1])
    assert np.array_equal(task.train.attention[1][:, 0], whole.attention[2][:, 1])
    assert_equal_in_float32(
        whole.attention[2], weights[2].transpose(-1, -2).numpy(), operations=1000
    )
    assert task.head_names == (("2.0", "2.1", "residual"), ("3.1", "residual"))
    assert task.numbers == (2, 3)
    assert task.origin == ("layer 2: blocks.1", "layer 3: blocks.2")


@pytest.mark.parametrize(("paths", "attended"), [("products", None), ("single", "last")])
def test_a_token_is_read_for_every_label(paths, attended, tmp_path):
    """Several labels of a sequence are as many examples, each as the token were the last."""
    model, ids = Model(), words(3)
    positions = torch.tensor([[1, 4], [0, -1], [3, 2]])
    labels = torch.tensor([[1.0, -1.0], [-1.0, 0.0], [1.0, -1.0]])
    path = tmp_path / "several.npz"
    export_attention(
        path,
        model,
        train=(ids, labels, positions),
        test=(ids, signs(3), positions[:, 0]),
        paths=paths,
        attended=attended,
        share=1.0 if paths == "single" else None,
    )
    task = read_arrays(path)
    assert task.train.labels[:, 0].tolist() == [1.0, -1.0, -1.0, 1.0, -1.0]
    assert task.test.examples == 3
    if paths == "products" and attended is None:
        from sampler.tasks.splits import attended_by_numpy

        received = attended_by_numpy(task.train, "last", (False,) * LAYERS)
        expected_paths = HEADS**LAYERS
    else:
        received, expected_paths = task.train.attended, task.train.attended.shape[1]
    assert received.shape == (5, expected_paths, CHANNELS)
    with torch.no_grad():
        _, entering, weights, _, factor = by_hand(model, ids)
    for row, (example, token) in enumerate([(0, 1), (0, 4), (1, 0), (2, 3), (2, 2)]):
        if paths == "single":
            first = weights[0][example, 0, token] @ entering[0][example]
            expected = factor(0, "heads")[example, token] * first
        else:
            reading = torch.eye(TOKENS)[token]
            for layer in reversed(range(LAYERS)):
                reading = reading @ weights[layer][example, 0]
            expected = reading @ entering[0][example]
        assert_equal_in_float32(received[row, 0], expected.numpy(), operations=1000)


def test_channels_are_left_out_by_their_share_of_the_training_examples(tmp_path):
    model, ids = Model(), words(40)
    found = {}
    for share in (1.0, 0.9):
        path = export_attention(
            tmp_path / f"{share}.npz",
            model,
            train=(ids[:30], signs(30)),
            test=(ids[30:], None),
            paths="single",
            share=share,
            batch_size=7,
        )
        found[share] = read_arrays(path)
    whole, few = found[1.0], found[0.9]
    rows = whole.train.attended.reshape(-1, CHANNELS)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    kept = few.channels
    shares = np.cumsum(values[::-1]) / values.sum()
    assert shares[kept - 1] >= 0.9 > shares[kept - 2]
    assert f"channels: {kept} of {CHANNELS}, with {100 * shares[kept - 1]:.2f} %" in few.origin[-1]
    basis = vectors[:, ::-1][:, :kept]
    for one, other in ((whole.train, few.train), (whole.test, few.test)):
        expected = (one.attended @ basis) @ (one.attended @ basis).swapaxes(1, 2) / CHANNELS
        received = other.attended @ other.attended.swapaxes(1, 2) / kept
        assert_equal_in_float32(received, expected, operations=1000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (2, 5)}, "layers = "),
        ({"heads": {1: [2]}}, r"heads\[1\] = "),
        ({"heads": [[0], [1], [1]]}, "heads = "),
        ({"paths": "double"}, "paths = "),
        ({"paths": "single", "residual": True}, "residual = "),
        ({"paths": "single", "head_names": [["a"]]}, "head_names = "),
        ({"mlps": True}, "mlps = "),
        ({"paths": "single", "attended": "middle"}, "attended = "),
        ({"paths": "single", "share": "0.9"}, "share = "),
        ({"share": 0.9}, "share = "),
    ],
)
def test_what_cannot_be_exported_is_said(settings, message, tmp_path, without_annotation_checks):
    ids = words(2)
    with pytest.raises(InputError, match=message):
        export_attention(
            tmp_path / "no.npz", Model(), train=(ids, signs(2)), test=(ids, None), **settings
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (torch.tensor([0, 9]), "token read of example 1 = "),
        (torch.tensor([0]), r"give whole numbers \[2\]"),
    ],
)
def test_wrong_tokens_are_said(positions, message, tmp_path):
    ids = words(2)
    with pytest.raises(InputError, match=message):
        export_attention(
            tmp_path / "no.npz", Model(), train=(ids, signs(2), positions), test=(ids, None)
        )


def test_more_paths_than_a_theory_can_have_are_not_written(tmp_path):
    """Six layers of eight heads: refused before ξ of any path is computed; tokens are written."""
    layer = torch.nn.TransformerEncoderLayer(16, 8, 8, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    train, test = ((torch.randn(4, TOKENS, 16), signs(4)) for _ in range(2))
    path = tmp_path / "a.npz"
    with pytest.raises(InputError, match=r"heads = 6 layers of 8 heads, 262,144 paths: .*single"):
        export_attention(path, model, train=train, test=test, attended="last")
    assert not path.exists()
    assert read_arrays(export_attention(path, model, train=train, test=test)).heads == (8,) * 6
    few = {number: [0] for number in range(2, 7)}
    written = export_attention(path, model, train=train, test=test, attended="last", heads=few)
    assert read_arrays(written).heads == (8, 1, 1, 1, 1, 1)
