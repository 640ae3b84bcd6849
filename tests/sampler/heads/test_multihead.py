"""Gates on heads of `torch.nn.MultiheadAttention`, and what its callers receive."""

import copy

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.heads.gates import closed_gates
from sampler.heads.modules import GatedModule
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")


def one_closed(heads: int, closed: int) -> np.ndarray:
    """Gates of one layer of which one is closed."""
    return closed_gates((heads,), [(0, closed)])


def own_layers():
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


def test_a_module_with_gates_is_its_layers_computed_by_head():
    """In batches of unequal size, one head closed below and one above."""
    model, inputs = own_layers(), torch.randn(6, 5, 8)
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


def test_means_are_those_of_the_weights_that_the_model_has_now():
    model, inputs = own_layers(), torch.randn(6, 5, 8)
    gated, gates = GatedModule(model, inputs), one_closed(4, 1)
    before = gated.outputs(gates, "mean")
    with torch.no_grad():
        model.layers[0].in_proj_bias += 1.0
    after = gated.outputs(gates, "mean")
    assert np.array_equal(after, GatedModule(model, inputs).outputs(gates, "mean"))
    assert np.abs(after - before).max() > 0.1
    model.layers[0].in_proj_bias.data -= 1.0  # which PyTorch does not count as a change
    assert_equal_in_float32(gated.outputs(gates, "mean"), before)


def test_a_layer_that_runs_twice_has_two_gates_and_one_that_does_not_run_has_none():
    """By hand: the layer applied twice, its second occurrence with the columns of W_O zeroed."""
    model, inputs = own_layers().eval(), torch.randn(6, 5, 8)
    first, _ = model.layers

    def forward(model, batch):
        tokens = batch
        for _ in range(2):
            tokens = tokens + first(tokens, tokens, tokens)[0]
        return tokens[:, -1, :2]

    gated = GatedModule(model, inputs, forward)
    assert gated.heads == (2, 2)
    closed = copy.deepcopy(first)
    with torch.no_grad():
        closed.out_proj.weight[:, 4:] = 0.0
        once = inputs + first(inputs, inputs, inputs)[0]
        expected = (once + closed(once, once, once)[0])[:, -1, :2].numpy()
    assert_equal_in_float32(gated.outputs(one_closed(4, 3), "zero"), expected)


@pytest.mark.parametrize(
    ("of_layer", "projection", "setting"),
    [({}, "out_proj", "projection"), ({"add_bias_kv": True}, None, "add_bias_kv")],
)
def test_what_such_a_layer_cannot_do_is_refused(of_layer, projection, setting):
    model = own_layers()
    model.layers[1] = torch.nn.MultiheadAttention(8, 2, batch_first=True, **of_layer)
    gated = GatedModule(model, torch.randn(2, 3, 8), projection=projection)
    with pytest.raises(InputError, match=setting):
        gated.outputs(np.ones(4), "zero")
