"""Gates on heads of PyTorch models, held against the same models with other weights."""

import copy

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.heads.torch_heads import TorchHeads, zero_heads
from tests.assertions import assert_equal_in_float32, assert_equal_to_rounding
from tests.sampler.torch_models.families import (
    FAMILIES,
    HEADS,
    LAYERS,
    SIZE,
    TOKENS,
    WIDTH,
    called,
    family,
    inputs_of,
    real_tokens,
    torch,
)

EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def part_of(head: int) -> slice:
    """Channels of a head among all heads of its layer."""
    return slice(head * SIZE, (head + 1) * SIZE)


def with_zeros(made, removed):
    """The model whose projections have zeros for these heads."""
    other = copy.deepcopy(made)
    with torch.no_grad():
        for layer, head in removed:
            other.output(other.layers[layer])[part_of(head)] = 0.0
    return other.model


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_without_heads_is_that_with_zeros_in_its_projections(name):
    made = family(name)
    inputs = inputs_of(made)
    heads = TorchHeads(made.model, inputs, batch_size=3)
    assert heads.heads == (HEADS,) * LAYERS
    assert [one.name for one in heads.projections] == [made.name.format(k) for k in range(LAYERS)]
    whole = called(made.model, inputs)
    assert_equal_in_float32(heads.without([]), whole)
    for removed in ([(0, 1)], [(0, 0), (1, 2), (1, 3)]):
        expected = called(with_zeros(made, removed), inputs)
        assert_equal_in_float32(heads.without(removed), expected, operations=1000)
        assert np.abs(expected - whole).max() > 1e-3
        applied = copy.deepcopy(made.model)
        by_layer = {layer: [head for at, head in removed if at == layer] for layer, _ in removed}
        zero_heads(applied, heads.projections, by_layer)
        np.testing.assert_array_equal(called(applied, inputs), expected)
    norms = [
        np.linalg.norm(made.output(made.layers[layer]).detach()[part_of(head)])
        for layer, head in EVERY
    ]
    assert_equal_in_float32(heads.magnitudes, np.array(norms))
    assert not any("forward" in vars(module) for module in made.model.modules())


def test_heads_of_keys_and_values_go_with_all_that_they_serve():
    """Whatever their weights are: without those heads nothing depends on them."""
    made = family("llama")
    heads = TorchHeads(made.model, inputs_of(made))
    projection = heads.projections[0]
    assert (projection.heads, projection.key_value_heads) == (HEADS, 2)
    for removed in ([], [0], [0, 1], [0, 2], [2, 3], [0, 2, 3], [0, 1, 2, 3]):
        other = copy.deepcopy(made)
        zero_heads(other.model, heads.projections, {0: removed})
        before = called(other.model, inputs_of(made))
        free = []
        for shared in range(2):
            changed = copy.deepcopy(other)
            attention = changed.layers[0].self_attn
            with torch.no_grad():
                for weights in (attention.k_proj.weight, attention.v_proj.weight):
                    weights[part_of(shared)] = 1.0
            if np.array_equal(called(changed.model, inputs_of(made)), before):
                free.append(shared)
        assert projection.unread(removed) == free


@pytest.mark.parametrize("name", ["gpt2", "encoder"])
def test_slopes_are_finite_differences_of_scaled_projections(name):
    made = family(name)
    made.model.double()
    inputs = inputs_of(made)
    inputs = inputs.double() if torch.is_tensor(inputs) else inputs
    along = np.random.default_rng(0).standard_normal((len(real_tokens("none")), 2))
    slopes = TorchHeads(made.model, inputs, batch_size=3).slopes(along)
    for place, (layer, head) in enumerate(EVERY):
        sides = []
        for sign in (1, -1):
            other = copy.deepcopy(made)
            with torch.no_grad():
                other.output(other.layers[layer])[part_of(head)] *= 1.0 + sign * 1e-4
            sides.append(called(other.model, inputs))
        expected = (along * (sides[0] - sides[1]) / 2e-4).sum(axis=1)
        np.testing.assert_allclose(slopes[:, place], expected, rtol=1e-4, atol=1e-5)


def sent_to(model, name, inputs) -> np.ndarray:
    """What a projection is given when the model runs: [example, token, channel]."""
    given = []
    handle = model.get_submodule(name).register_forward_pre_hook(
        lambda _, positional: given.append(positional[0])
    )
    called(model, inputs)
    handle.remove()
    return given[0].numpy()


def with_means(made, name, head, means, inputs) -> np.ndarray:
    """Outputs when a hook of one's own puts a mean in the place of a head."""

    def change(_, positional):
        changed = positional[0].clone()
        changed[..., part_of(head)] = torch.from_numpy(means[..., part_of(head)]).to(changed)
        return (changed, *positional[1:])

    handle = made.model.get_submodule(name).register_forward_pre_hook(change)
    expected = called(made.model, inputs)
    handle.remove()
    return expected


@pytest.mark.parametrize("side", ["none", "right", "left"])
def test_means_are_those_of_a_place_without_padding(side):
    made = family("gpt2")
    inputs, real = inputs_of(made, side), real_tokens(side).numpy()[..., None]
    heads = TorchHeads(made.model, inputs, batch_size=3)
    for layer, head in ((0, 1), (1, 3)):
        name = made.name.format(layer)
        sent = sent_to(made.model, name, inputs)
        means = (sent * real).sum(axis=0) / np.maximum(real.sum(axis=0), 1)
        expected = with_means(made, name, head, means, inputs)
        received = heads.without([(layer, head)], "mean")
        assert_equal_in_float32(received, expected, operations=1000)


def test_means_of_multihead_attention_leave_out_what_it_is_told_to():
    """The same tokens in a list, of which each sequence goes through the model alone."""
    made = family("encoder")
    padded = inputs_of(made, "right")
    alone = [tokens[real] for tokens, real in zip(padded["tokens"], real_tokens("right"))]  # noqa: B905
    for removed in ([(0, 1)], [(0, 2), (1, 0)]):
        received = TorchHeads(made.model, padded, batch_size=3).without(removed, "mean")
        expected = TorchHeads(made.model, alone, batch_size=3).without(removed, "mean")
        assert_equal_in_float32(received, expected, operations=1000)


# --- projections of one's own


class Own(torch.nn.Module):
    """Attention whose projection has a name of its own."""

    def __init__(self, layers: int = 2, shared: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.joined = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.after = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.readout = torch.nn.Linear(WIDTH, 2)
        self.shared = shared

    def forward(self, tokens):
        for layer in range(len(self.joined)):
            after = self.after[0 if self.shared else layer]
            tokens = tokens + after(self.joined[layer](tokens).tanh())
        return self.readout(tokens[:, -1])


TOKENS_OF_OWN = torch.linspace(-1.0, 1.0, 3 * TOKENS * WIDTH).reshape(3, TOKENS, WIDTH)


def test_projections_can_be_named_with_their_number_of_heads():
    model = Own()
    heads = TorchHeads(model, TOKENS_OF_OWN, projection={"after.0": 4, "after.1": 8})
    assert heads.heads == (4, 8)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.after[1].weight[:, 2:4] = 0.0
    assert_equal_in_float32(heads.without([(1, 1)]), called(other, TOKENS_OF_OWN))
    model.num_heads = 2
    assert TorchHeads(model, TOKENS_OF_OWN, projection="after.1").heads == (2,)


def test_every_run_of_a_shared_projection_has_heads_of_its_own():
    model = Own(shared=True)
    heads = TorchHeads(model, TOKENS_OF_OWN, projection={"after.0": 4})
    assert heads.heads == (4, 4)
    first = TOKENS_OF_OWN + model.after[0](model.joined[0](TOKENS_OF_OWN).tanh())
    second = model.joined[1](first).tanh()
    second = torch.cat([torch.zeros_like(second[..., :4]), second[..., 4:]], dim=-1)
    with torch.no_grad():
        expected = model.readout((first + model.after[0](second))[:, -1]).numpy()
    assert_equal_in_float32(heads.without([(1, 0)]), expected)
    with pytest.raises(InputError, match="several layers share"):
        zero_heads(model, heads.projections, {1: [0]})


@pytest.mark.parametrize(
    ("projection", "message"),
    [
        (None, r"projection = .*projection=\{"),
        ("after.0", r"heads of after.0 = .*give the number of heads"),
        ({"after.0": 3}, r"heads of after.0 = 3: are of 16 channels"),
        ({"nothing": 3}, "projection = "),
    ],
)
def test_projections_that_are_not_known_are_refused(projection, message):
    with pytest.raises(InputError, match=message):
        _ = TorchHeads(Own(), TOKENS_OF_OWN, projection=projection).heads


def test_a_layer_that_some_examples_skip_is_named():
    tokens = TOKENS_OF_OWN.clone()
    tokens[-1] = 0.0

    def forward(model, batch):
        if not batch[-1].any():
            return model.readout(batch[:, -1])
        return model(batch)

    heads = TorchHeads(Own(), tokens, forward, {"after.0": 4, "after.1": 4}, batch_size=2)
    with pytest.raises(InputError, match=r"layers of attention = \[\].*'after.1'\] with the first"):
        heads.without([(1, 0)])


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_layer_of_multihead_attention_is_itself_with_zeros_in_its_projection(batch_first):
    """With keys beyond those of the tokens, and no batch axis in front, too."""
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(
        WIDTH, HEADS, batch_first=batch_first, add_bias_kv=True, dtype=torch.float64
    )

    def forward(layer, batch):
        tokens = batch if batch_first else batch.transpose(0, 1)
        sent = layer(tokens, tokens, tokens)[0]
        return sent[:, -1] if batch_first else sent[-1]

    tokens = TOKENS_OF_OWN.double()
    projection, heads = layer.out_proj, TorchHeads(layer, tokens, forward)
    received = heads.without([(0, 1)])

    def fails(layer, batch):
        forward(layer, batch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TorchHeads(layer, tokens, fails).without([(0, 1)])
    assert layer.out_proj is projection
    with torch.no_grad():
        projection.weight[:, part_of(1)] = 0.0
        expected = forward(layer, tokens).numpy()
    assert_equal_to_rounding(received, expected, operations=1000)
