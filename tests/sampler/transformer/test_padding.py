"""Padded sequences, and models with fused attention, exported as each sequence would be alone."""

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.problem import build_problem
from sampler.settings.recipe import load_recipe
from sampler.tasks.arrays import read_arrays
from sampler.tasks.export import export_attention
from sampler.tasks.make import build_task
from sampler.tasks.splits import Split
from sampler.transformer.recording import record_attention
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
functional = torch.nn.functional

HEADS, CHANNELS, TOKENS = 2, 6, 5
LENGTHS = (3, 5, 1, 4, 2)
READOUTS = ("last", "mean")


class Encoder(torch.nn.Module):
    """Two layers of PyTorch's encoder, told by `attention_mask` where tokens are."""

    def __init__(self, norm_first=False):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(
            CHANNELS, HEADS, 8, batch_first=True, norm_first=norm_first
        )
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens, attention_mask=None):
        hidden = None if attention_mask is None else attention_mask == 0
        return self.encoder(tokens, src_key_padding_mask=hidden)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def sequences(lengths=LENGTHS):
    return [torch.randn(length, CHANNELS) for length in lengths]


def padded(examples, side="right", most=TOKENS):
    """Named inputs with noise for padding, behind, before or among the tokens of a sequence."""
    tokens = torch.randn(len(examples), most, CHANNELS)
    mask = torch.zeros(len(examples), most, dtype=torch.long)
    for row, example in enumerate(examples):
        free = most - len(example)
        places = {
            "right": torch.arange(len(example)),
            "left": torch.arange(len(example)) + free,
            "among": torch.randperm(most)[: len(example)].sort().values,
        }[side]
        tokens[row, places] = example
        mask[row, places] = 1
    return {"tokens": tokens, "attention_mask": mask}


@pytest.mark.parametrize(("norm_first", "side"), [(False, "among"), (True, "right"), (True, None)])
def test_a_padded_batch_is_recorded_as_its_sequences_one_by_one(norm_first, side):
    """Also where they come in a list."""
    model, examples = Encoder(norm_first), sequences()
    given = examples if side is None else padded(examples, side)
    batch = record_attention(model, given, batch_size=3)
    assert batch.lengths.tolist() == list(LENGTHS)
    for row, example in enumerate(examples):
        alone = record_attention(model, example[None])
        part = slice(0, len(example))
        assert alone.lengths is None
        assert_equal_in_float32(batch.inputs[row, part], alone.inputs[0])
        assert not batch.inputs[row, len(example) :].any()
        for received, expected in zip(batch.attention, alone.attention, strict=True):
            assert_equal_in_float32(received[row, :, part, part], expected[0])
            assert not received[row, :, len(example) :].any()
            assert not received[row, :, :, len(example) :].any()


def labels(count):
    return torch.arange(count) % 2 * 2.0 - 1.0


def loader(examples, most=TOKENS):
    """Batches of two, each padded to its own longest sequence."""
    values = labels(len(examples))
    for start in range(0, len(examples), 2):
        part = examples[start : start + 2]
        yield padded(part, most=max(map(len, part))), values[start : start + 2]


def attended_of(folder, readout, given):
    """Attended inputs of both splits, as the network of a recipe reads them."""
    recipe = folder / "mine.toml"
    network = f'readout = "{readout}"' if given == "tokens" else ""
    recipe.write_text(
        f'name = "mine"\ntask = {{kind = "arrays", path = "{given}.h5"}}\n[network]\nwidths = 3\n'
        f"{network}\n",
        encoding="utf-8",
    )
    loaded = load_recipe(recipe)
    problem = build_problem(loaded, build_task(loaded))
    return np.asarray(problem.learning.attended), np.asarray(problem.attended_test)


@pytest.mark.heavy
@pytest.mark.parametrize("readout", READOUTS)
def test_every_readout_is_that_of_the_sequences_alone(readout, tmp_path):
    """Both layouts, from a data loader, against sequences exported one by one."""
    model, examples = Encoder(), sequences()
    settings = {"residual": True, "batch_size": 2}
    expected = [
        np.asarray(
            read_arrays(
                export_attention(
                    tmp_path / "one.npz",
                    model,
                    train=(example[None], labels(1)),
                    test=(example[None], None),
                    attended=readout,
                    residual=True,
                )
            ).train.attended[0]
        )
        for example in examples
    ]
    for given, options in (("tokens", {}), ("attended", {"attended": readout})):
        export_attention(
            tmp_path / f"{given}.h5",
            model,
            train=loader(examples),
            test=(padded(examples, "left", 7), None),
            **settings,
            **options,
        )
        for received in attended_of(tmp_path, readout, given):
            assert_equal_in_float32(received, np.stack(expected))


@pytest.mark.heavy
def test_a_network_outside_the_theory_reads_the_last_token(tmp_path):
    """The same weights on padded tokens and on each sequence by itself."""
    import jax

    from sampler.token_network import TokenSplit, predict_tokens

    model, examples = Encoder(), sequences()
    path = export_attention(
        tmp_path / "tokens.npz", model, train=loader(examples), test=(padded(examples), None)
    )
    recipe = tmp_path / "mine.toml"
    text = 'name = "mine"\ntask = {kind = "arrays", path = "tokens.npz"}\n[network]\nwidths = 3\n'
    block = "residual = true\nmlp = {width = 4}\n"
    recipe.write_text(text + 'values = "relu"\nnorm = "before"\n' + block, encoding="utf-8")
    problem = build_problem(load_recipe(recipe), read_arrays(path))
    shapes = problem.network.weight_shapes
    keys = jax.random.split(jax.random.PRNGKey(0), len(shapes))
    drawn = {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    received = np.asarray(predict_tokens(drawn, *problem.train.arrays, problem.network))
    for row, example in enumerate(examples):
        alone = record_attention(model, example[None])
        split = Split(alone.inputs, None, alone.attention)
        arrays = TokenSplit.of(split, "last").astype(np.float64).arrays
        expected = predict_tokens(drawn, *arrays, problem.network)
        assert_equal_in_float32(received[row], np.asarray(expected)[0], operations=1000)
    recipe.write_text(text + 'values = "relu"\nreadout = "mean"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"network.readout = 'mean': .* 1 to 5 tokens, .*\"last\""):
        build_problem(load_recipe(recipe), read_arrays(path))


class HalfTold(torch.nn.Module):
    """Two layers of attention, of which only the first is told of padding."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (
            torch.nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True) for _ in range(2)
        )

    def forward(self, tokens, attention_mask):
        seen, _ = self.first(tokens, tokens, tokens, key_padding_mask=attention_mask == 0)
        return self.second(seen, seen, seen)


def hiding(rows):
    """Encoder inputs of two examples with this mask."""
    mask = torch.tensor(rows)
    return {"tokens": torch.randn(len(rows), 3, CHANNELS), "attention_mask": mask}


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (Encoder, hiding([[1, 1, 0], [0, 0, 0]]), "tokens of example 0 = "),
        (HalfTold, hiding([[1, 1, 0]]), "padding = "),
        (Encoder, {"tokens": [[1.0], [1.0, 2.0]]}, "tokens = "),
    ],
    ids=["empty", "half told", "lists"],
)
def test_what_cannot_be_recorded_is_named(model, inputs, message):
    with pytest.raises(InputError, match=message):
        record_attention(model(), inputs)
