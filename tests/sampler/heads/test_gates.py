"""Gates on heads: open ones change nothing, slopes are derivatives, PyTorch and JAX agree."""

from types import SimpleNamespace

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.heads.gates import GatedModule, GatedNetwork, closed_gates, norms_by_head
from sampler.tasks import splits
from sampler.tasks.splits import Split, StreamedSplit, made_in_parts
from sampler.transformer.model import FrozenNetwork
from tests.assertions import assert_equal_in_float32, assert_equal_to_rounding
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


def by_token(gated: GatedNetwork, gates: np.ndarray, replacement: str) -> np.ndarray:
    """The network with gates, every head and token in a loop; means from a pass with all open."""
    weights, inputs = gated.network.weights, gated.inputs

    def passed(gates, means):
        hidden, sent, first = inputs @ weights["V_0"].T / CHANNELS**0.5, [], 0
        for layer, heads in enumerate(HEADS):
            values = weights[f"V_{layer + 1}"]
            above = np.zeros((EXAMPLES, TOKENS, values.shape[1]))
            for head in range(heads):
                seen = np.stack([o[head].T for o in gated.attention[layer]]) @ hidden
                sent.append(seen @ values[head].T / WIDTHS[layer] ** 0.5)
                gate = gates[first + head]
                above += gate * sent[-1] + (1.0 - gate) * means[first + head]
            hidden, first = above / heads**0.5, first + heads
        return hidden.mean(axis=1) @ weights["a"].T / WIDTHS[-1] ** 0.5, sent

    _, sent = passed(np.ones(COUNT), np.zeros(COUNT))
    means = [one.mean(axis=0) for one in sent] if replacement == "mean" else np.zeros(COUNT)
    return passed(gates, means)[0]


@pytest.mark.parametrize("replacement", ["zero", "mean"])
def test_gates_below_and_above_let_through_what_the_whole_network_sends(gated, replacement):
    """A mean is that of a head while all others are open, whatever is closed below it."""
    gates = np.array([0.0, 1.0, 1.0, 0.0, 0.25])
    received = gated.outputs(gates, replacement)
    expected = by_token(gated, gates, replacement)
    assert_equal_to_rounding(received, expected, operations=1000)


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


def own_layers(torch):
    """Two layers of attention with biases, and what a caller of each received."""

    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(
                torch.nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2)
            )
            for layer in self.layers:
                torch.nn.init.normal_(layer.in_proj_bias)
                torch.nn.init.normal_(layer.out_proj.bias)
            self.received = []

        def forward(self, tokens):
            for layer in self.layers:
                attended, weights = layer(tokens, tokens, tokens)
                self.received.append(weights)
                tokens = tokens + attended
            return tokens[:, -1, :2]

    return Layers()


def by_head(model, inputs, gates, means=None):
    """Outputs of these layers, and what each head sent, from the weights of their modules."""
    tokens, all_sent, size = inputs, [], 8
    for place, layer in enumerate(model.layers):
        weights, bias = (
            part.detach().double().numpy().reshape(3, size, -1)
            for part in (layer.in_proj_weight, layer.in_proj_bias)
        )
        query, key, value = (tokens @ w.T + b[:, 0] for w, b in zip(weights, bias, strict=True))
        joined = np.zeros_like(tokens)
        for head in range(2):
            part = slice(head * size // 2, (head + 1) * size // 2)
            logits = query[..., part] @ key[..., part].swapaxes(1, 2) / (size / 2) ** 0.5
            raised = np.exp(logits)
            sent = raised / raised.sum(axis=-1, keepdims=True) @ value[..., part]
            gate, mean = gates[2 * place + head], 0.0 if means is None else means[len(all_sent)]
            all_sent.append(sent)
            joined[..., part] = gate * sent + (1.0 - gate) * mean
        out = layer.out_proj
        matrix, added = (one.detach().double().numpy() for one in (out.weight, out.bias))
        tokens = tokens + joined @ matrix.T + added
    return tokens[:, -1, :2], all_sent


def test_a_module_with_gates_is_its_layers_computed_by_head(torch):
    """In batches of unequal size, one head closed below and one above."""
    model, inputs = own_layers(torch), torch.randn(6, 5, 8)
    gated, gates = GatedModule(model, inputs, batch_size=4), closed_gates((2, 2), [(0, 1), (1, 0)])
    tokens = inputs.double().numpy()
    _, sent = by_head(model, tokens, np.ones(4))
    for kind, means in (("zero", None), ("mean", [one.mean(axis=0) for one in sent])):
        expected, _ = by_head(model, tokens, gates, means)
        assert_equal_in_float32(gated.outputs(gates, kind), expected)
    norms = [
        np.linalg.norm(layer.out_proj.weight.detach().numpy()[:, part])
        for layer in model.layers
        for part in (slice(0, 4), slice(4, 8))
    ]
    assert_equal_in_float32(gated.magnitudes(), np.array(norms))


def test_means_are_those_of_the_weights_that_the_model_has_now(torch):
    model, inputs = own_layers(torch), torch.randn(6, 5, 8)
    gated, gates = GatedModule(model, inputs), one_closed(4, 1)
    before = gated.outputs(gates, "mean")
    with torch.no_grad():
        model.layers[0].in_proj_bias += 1.0
    after = gated.outputs(gates, "mean")
    assert np.array_equal(after, GatedModule(model, inputs).outputs(gates, "mean"))
    assert np.abs(after - before).max() > 0.1
    model.layers[0].in_proj_bias.data -= 1.0  # which PyTorch does not count as a change
    assert_equal_in_float32(gated.outputs(gates, "mean"), before)


def test_magnitudes_are_norms_of_what_a_head_is_multiplied_with(torch):
    """GPT-2 keeps matrices with the input first, all others with the output first."""
    matrix = torch.arange(24.0).reshape(4, 6)  # [input, output], two heads of two channels
    expected = [np.sqrt((np.arange(12.0) ** 2).sum()), np.sqrt((np.arange(12.0, 24.0) ** 2).sum())]
    as_in_gpt_2 = SimpleNamespace(weight=matrix, nf=6)
    linear = torch.nn.Linear(4, 6)
    linear.weight.data = matrix.T.contiguous()
    for module in (as_in_gpt_2, linear):
        np.testing.assert_allclose(norms_by_head(module, 2), expected, rtol=1e-6)


def test_a_caller_receives_the_weights_that_it_would_have(torch):
    model, inputs = own_layers(torch), torch.randn(3, 5, 8)
    with torch.no_grad():
        model.eval()(inputs)
    expected, model.received = model.received, []
    GatedModule(model, inputs).outputs(one_closed(4, 3), "zero")
    for one, other in zip(model.received, expected, strict=True):
        assert_equal_in_float32(one.numpy(), other.numpy())


def test_padding_and_further_keys_are_refused(torch):
    model = own_layers(torch)
    masked = {
        "tokens": torch.randn(2, 3, 8),
        "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    with pytest.raises(InputError, match="of one length"):
        GatedModule(model, masked)
    GatedModule(model, masked | {"attention_mask": torch.ones(2, 3)})
    model.layers[1] = torch.nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)
    with pytest.raises(InputError, match="add_bias_kv"):
        GatedModule(model, torch.randn(2, 3, 8)).outputs(np.ones(4), "zero")


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
