"""Gates on heads: open ones change nothing, slopes are derivatives, PyTorch and JAX agree."""

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.heads.gates import GatedModule, GatedNetwork, closed_gates
from sampler.tasks import splits
from sampler.tasks.splits import Split, StreamedSplit, made_in_parts
from sampler.transformer.model import FrozenNetwork
from tests.assertions import assert_equal_to_rounding
from theory import Architecture, attended_inputs

EXAMPLES, TOKENS, CHANNELS, WIDTHS, HEADS = 6, 4, 3, (5, 4, 3), (2, 3)
COUNT = sum(HEADS)


def one_closed(heads: int, closed: int) -> np.ndarray:
    """Gates of one layer of which one is closed."""
    return closed_gates((heads,), [(0, closed)])


@pytest.fixture(scope="module")
def gated() -> GatedNetwork:
    random = np.random.default_rng(1)
    shapes = {"V_0": (5, CHANNELS), "V_1": (2, 4, 5), "V_2": (3, 3, 4), "a": (1, 3)}
    weights = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    attention = tuple(
        random.dirichlet(np.ones(TOKENS), (EXAMPLES, heads, TOKENS)).swapaxes(-1, -2)
        for heads in HEADS
    )
    inputs = random.standard_normal((EXAMPLES, TOKENS, CHANNELS))
    architecture = Architecture(HEADS, (5, 4, 3), (1.0,) * 4, CHANNELS)
    return GatedNetwork(FrozenNetwork(weights, architecture), inputs, attention)


def test_examples_that_are_streamed_are_held_here(gated, monkeypatch):
    labels = np.ones((EXAMPLES, 1))
    whole = Split(gated.inputs, labels, gated.attention)
    held = made_in_parts(whole.part, labels, "", (gated.inputs,))
    monkeypatch.setattr(splits, "HELD_BYTES", 1)
    monkeypatch.setattr(splits, "BLOCK", 4)
    streamed = made_in_parts(whole.part, labels, "", (gated.inputs,))
    assert isinstance(streamed, StreamedSplit)
    gates = one_closed(COUNT, 1)
    for split in (held, streamed):
        again = GatedNetwork.of_blocks(gated.network, split.blocks())
        assert np.array_equal(again.outputs(gates, "mean"), gated.outputs(gates, "mean"))


def test_open_gates_give_the_network_and_a_closed_one_the_ablation(gated):
    attended = attended_inputs(gated.inputs, gated.attention, "mean")
    for removed in ([], [(0, 1)], [(1, 2)]):
        gates = closed_gates(HEADS, removed)
        expected = gated.network.without(removed).predictor(attended)
        assert_equal_to_rounding(gated.outputs(gates, "zero"), expected, operations=1000)


def test_open_gates_do_not_know_what_closed_ones_let_through(gated):
    found = [gated.outputs(np.ones(COUNT), kind) for kind in ("zero", "mean")]
    assert_equal_to_rounding(*found, operations=1000)


def test_slopes_are_finite_differences(gated):
    along = np.random.default_rng(2).standard_normal((EXAMPLES, 1))
    for kind in ("zero", "mean"):
        slopes = gated.slopes(along, kind)
        for head in range(COUNT):
            step = 1e-5 * (1.0 - one_closed(COUNT, head))
            up, down = (gated.outputs(1.0 + sign * step, kind) for sign in (1, -1))
            expected = (along * (up - down) / 2e-5).sum(axis=1)
            np.testing.assert_allclose(slopes[:, head], expected, rtol=1e-6, atol=1e-8)


def test_a_gate_enters_linearly_so_patching_is_exact_for_the_output(gated):
    """This network is linear in each gate: f with it closed is f minus its slope."""
    ones = np.ones((EXAMPLES, 1))
    for kind in ("zero", "mean"):
        whole, slopes = gated.outputs(np.ones(COUNT), kind), gated.slopes(ones, kind)
        for head in range(COUNT):
            closed = gated.outputs(one_closed(COUNT, head), kind)
            assert_equal_to_rounding(whole[:, 0] - slopes[:, head], closed[:, 0], operations=1000)


def test_a_split_of_other_heads_is_refused(gated):
    with pytest.raises(InputError, match="random_heads"):
        GatedNetwork(gated.network, gated.inputs, gated.attention[::-1])


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
    found.manual_seed(0)
    return found


def encoder(torch, batch_first: bool):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=batch_first)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@pytest.mark.parametrize("batch_first", [True, False])
def test_gates_of_a_pytorch_encoder(torch, batch_first):
    """Open gates leave it as it is; a closed one is the ablation by columns of `out_proj`."""
    import copy

    model, inputs = encoder(torch, batch_first), torch.randn(6, 5, 8)

    def forward(one, batch):
        tokens = batch if batch_first else batch.transpose(0, 1)
        hidden = one(tokens)
        return (hidden if batch_first else hidden.transpose(0, 1))[:, -1, :2]

    gated = GatedModule(model, inputs, forward, batch_size=4)
    assert model.training
    other = copy.deepcopy(model).eval()
    with torch.no_grad():
        np.testing.assert_allclose(
            gated.outputs(np.ones(4), "mean"), forward(other, inputs).numpy(), atol=2e-6
        )
        other.layers[1].self_attn.out_proj.weight[:, :4] = 0.0
        np.testing.assert_allclose(
            gated.outputs(one_closed(4, 2), "zero"), forward(other, inputs).numpy(), atol=2e-6
        )
    assert not any(module._forward_hooks for module in model.modules())
    along = np.ones((6, 2), np.float32)
    model.double()
    double = GatedModule(model, inputs.double(), forward, batch_size=4)
    slopes = double.slopes(along.astype(float), "mean")
    step = 1e-3 * (1.0 - one_closed(4, 1))
    up, down = (double.outputs(1.0 + sign * step, "mean") for sign in (1, -1))
    np.testing.assert_allclose(slopes[:, 1], ((up - down) / 2e-3).sum(axis=1), rtol=2e-3, atol=2e-3)


def test_sequences_of_unequal_length_are_refused(torch):
    with pytest.raises(InputError, match="of one length"):
        GatedModule(encoder(torch, True), [torch.randn(3, 8), torch.randn(4, 8)])
    with pytest.raises(InputError, match="MultiheadAttention"):
        GatedModule(torch.nn.Linear(8, 8), torch.randn(3, 8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Bert", "GPT2", "ViT"])
def test_gates_of_hugging_face_models(torch, kind):
    """Open gates leave the model as it is, closed ones change it, in every layer."""
    remedy = "transformers is an extra: pip install -e '.[transformers]'"
    made = pytest.importorskip("transformers", reason=remedy)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    inputs = {"input_ids": torch.randint(1, 11, (6, 5))}
    if kind == "Bert":
        config = made.BertConfig(vocab_size=11, intermediate_size=16, **sizes)
        model = made.BertForSequenceClassification(config)
    elif kind == "GPT2":
        config = made.GPT2Config(
            vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2, pad_token_id=0,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        model = made.GPT2ForSequenceClassification(config)
    else:
        config = made.ViTConfig(
            image_size=8, patch_size=4, num_channels=1, intermediate_size=16, **sizes
        )
        model = made.ViTForImageClassification(config)
        inputs = {"pixel_values": torch.randn(6, 1, 8, 8)}
    gated = GatedModule(model, inputs)
    with torch.no_grad():
        expected = model.eval()(**inputs).logits.numpy()
    whole = gated.outputs(np.ones(4), "zero")
    np.testing.assert_allclose(whole, expected, atol=2e-6)
    assert gated.heads == (2, 2)
    for head in range(4):
        assert np.abs(gated.outputs(one_closed(4, head), "zero") - whole).max() > 1e-6
    assert gated.slopes(np.ones_like(whole), "mean").shape == (6, 4)
