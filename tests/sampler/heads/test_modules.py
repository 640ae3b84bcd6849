"""Gates on heads of models of many families, held against the same models with other weights."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.heads.gates import closed_gates
from sampler.heads.modules import GatedModule
from tests.assertions import assert_equal_in_float32
from tests.sampler.heads.families import (
    EXAMPLES,
    FAMILIES,
    HEADS,
    WIDTH,
    Blocks,
    CausalAttention,
    Made,
    family,
    padded_words,
    torch,
)

SIZE = WIDTH // HEADS


def one_closed(closed: int) -> np.ndarray:
    """Gates of two layers of which one is closed."""
    return closed_gates((HEADS, HEADS), [divmod(closed, HEADS)])


def outputs(model, inputs) -> np.ndarray:
    """The model as its owner calls it."""
    with torch.no_grad():
        found = model.eval()(**inputs) if isinstance(inputs, dict) else model.eval()(inputs)
    return getattr(found, "logits", found).numpy()


def part_of(head: int) -> slice:
    """Channels of a head among all heads of its layer."""
    return slice(head * SIZE, (head + 1) * SIZE)


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"albert"}))
def test_a_closed_gate_is_the_model_without_rows_of_its_projection(name):
    made = family(name)
    gated = GatedModule(made.model, made.inputs, batch_size=4)
    assert gated.heads == (HEADS, HEADS)
    expected = outputs(made.model, made.inputs)
    assert_equal_in_float32(gated.outputs(np.ones(2 * HEADS), "mean"), expected)
    for head in range(2 * HEADS):
        layer, place = divmod(head, HEADS)
        other = copy.deepcopy(made.model)
        with torch.no_grad():
            made.weights(other)[layer][part_of(place)] = 0.0
        received = gated.outputs(one_closed(head), "zero")
        assert_equal_in_float32(received, outputs(other, made.inputs))
        assert np.abs(received - expected).max() > 0.01
    norms = [
        np.linalg.norm(weight.detach()[part_of(head)])
        for weight in made.weights(made.model)
        for head in range(HEADS)
    ]
    assert_equal_in_float32(gated.magnitudes(), np.array(norms))
    assert not any(module._forward_pre_hooks for module in made.model.modules())


def sent_by_hand(made: Made, joining) -> list[np.ndarray]:
    """What modules that join heads are given when the model runs: [example, token, channel]."""
    given = []
    handles = [
        module.register_forward_pre_hook(lambda _, positional: given.append(positional[0]))
        for module in joining
    ]
    outputs(made.model, made.inputs)
    for handle in handles:
        handle.remove()
    return [one.numpy() for one in given]


def test_every_run_of_a_shared_layer_has_gates_of_its_own():
    """By hand: a hook that changes the input of the projection the second time it is called."""
    made = family("albert")
    (joining,) = [
        module for name, module in made.model.named_modules() if name.endswith("attention.dense")
    ]
    gated = GatedModule(made.model, made.inputs, batch_size=4)
    assert gated.heads == (HEADS, HEADS)
    sent = sent_by_hand(made, [joining])
    assert len(sent) == 2
    for head in range(2 * HEADS):
        layer, place = divmod(head, HEADS)
        for kind, means in (("zero", None), ("mean", sent[layer].mean(axis=0))):
            calls = []

            def change(_, positional, calls=calls, layer=layer, place=place, means=means):
                calls.append(None)
                if len(calls) - 1 != layer:
                    return None
                changed = positional[0].clone()
                part = part_of(place)
                changed[..., part] = 0.0 if means is None else torch.from_numpy(means[:, part])
                return (changed, *positional[1:])

            handle = joining.register_forward_pre_hook(change)
            expected = outputs(made.model, made.inputs)
            handle.remove()
            assert_equal_in_float32(gated.outputs(one_closed(head), kind), expected)


def test_means_leave_padding_out():
    """By hand: the mean of every place over the examples that have a word there."""
    made = replace(family("bert"), inputs=padded_words(left=True))
    joining = [layer.attention.output.dense for layer in made.model.bert.encoder.layer]
    real = made.inputs["attention_mask"].numpy()[..., None]
    sent = sent_by_hand(made, joining)
    gated = GatedModule(made.model, made.inputs, batch_size=4)
    for head in range(2 * HEADS):
        layer, place = divmod(head, HEADS)
        means = (sent[layer] * real).sum(axis=0) / real.sum(axis=0)
        part = part_of(place)

        def change(_, positional, means=means, part=part):
            changed = positional[0].clone()
            changed[..., part] = torch.from_numpy(means[:, part])
            return (changed, *positional[1:])

        handle = joining[layer].register_forward_pre_hook(change)
        expected = outputs(made.model, made.inputs)
        handle.remove()
        assert_equal_in_float32(gated.outputs(one_closed(head), "mean"), expected)


def test_examples_of_other_lengths_in_a_list_are_those_that_are_padded():
    """Of a causal model that reads its last token, each length by itself."""
    made = family("nano_gpt")
    examples = [made.inputs[place, : 3 + place % 3] for place in range(EXAMPLES)]
    gated = GatedModule(made.model, examples, batch_size=4)
    for kind in ("zero", "mean"):
        received = gated.outputs(one_closed(1), kind)
        for place, one in enumerate(examples):
            means = None
            if kind == "mean":
                joining = [made.model.blocks[0].c_proj]
                sent = [
                    sent_by_hand(Made(made.model, other[None], None), joining)[0][0, : len(one)]
                    for other in examples
                ]
                means = [
                    np.mean([some[token] for some in sent if len(some) > token], axis=0)
                    for token in range(len(one))
                ]

            def change(_, positional, means=means):
                changed = positional[0].clone()
                filled = 0.0 if means is None else torch.from_numpy(np.array(means))
                changed[..., part_of(1)] = filled if means is None else filled[:, part_of(1)]
                return (changed, *positional[1:])

            handle = made.model.blocks[0].c_proj.register_forward_pre_hook(change)
            expected = outputs(made.model, one[None])
            handle.remove()
            assert_equal_in_float32(received[place], expected[0])


@pytest.mark.parametrize("name", ["nano_gpt", "gpt2"])
def test_slopes_are_finite_differences(name):
    made = family(name)
    made.model.double()
    double = made.inputs if isinstance(made.inputs, dict) else made.inputs.double()
    gated = GatedModule(made.model, double, batch_size=4)
    along = np.random.default_rng(0).standard_normal((EXAMPLES, 2))
    partly = np.linspace(0.0, 1.0, 2 * HEADS)
    for kind, gates in itertools.product(("zero", "mean"), (None, partly)):
        slopes = gated.slopes(along, kind, gates)
        here = np.ones(2 * HEADS) if gates is None else gates
        for head in range(2 * HEADS):
            step = 1e-4 * (1.0 - one_closed(head))
            up, down = (exact_outputs(gated, here + sign * step, kind) for sign in (1, -1))
            expected = (along * (up - down) / 2e-4).sum(axis=1)
            np.testing.assert_allclose(slopes[:, head], expected, rtol=1e-4, atol=1e-5)


def exact_outputs(gated: GatedModule, gates: np.ndarray, kind: str) -> np.ndarray:
    """Outputs in double precision."""
    means = gated._means(kind)
    with torch.no_grad():
        return gated._part(list(range(EXAMPLES)), torch.as_tensor(gates)[None], means).numpy()


class Scaled(CausalAttention):
    """Heads are scaled before they are joined, so that no module is given them as they are."""

    def forward(self, tokens):
        return self.c_proj(2.0 * self.joined(tokens))


class ByHead(CausalAttention):
    """Every matrix has an axis of heads, and no module joins them."""

    def forward(self, tokens):
        shape = (3, HEADS, SIZE, WIDTH)
        query, key, value = torch.einsum(
            "btw,phcw->pbthc", tokens, self.c_attn.weight.reshape(shape)
        )
        logits = torch.einsum("bqhc,bkhc->bhqk", query, key)
        sent = torch.einsum("bhqk,bkhc->bqhc", logits.softmax(dim=-1), value)
        joining = self.c_proj.weight.reshape(WIDTH, HEADS, SIZE)
        return torch.einsum("bqhc,whc->bqw", sent, joining) + self.c_proj.bias


@pytest.mark.parametrize("kind", [Scaled, ByHead])
def test_heads_that_no_module_is_given_are_replaced_where_they_are_computed(kind):
    torch.manual_seed(0)
    model, inputs = Blocks(kind), torch.randn(EXAMPLES, 5, WIDTH)
    gated = GatedModule(model, inputs, batch_size=4)
    assert gated.heads == (HEADS, HEADS)
    whole = outputs(model, inputs)
    assert_equal_in_float32(gated.outputs(np.ones(2 * HEADS), "zero"), whole)
    for head in range(2 * HEADS):
        layer, place = divmod(head, HEADS)
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.blocks[layer].c_proj.weight[:, part_of(place)] = 0.0
        expected = outputs(other, inputs)
        assert_equal_in_float32(gated.outputs(one_closed(head), "zero"), expected)
        assert np.abs(expected - whole).max() > 1e-3
    assert np.isnan(gated.magnitudes()).all()
    ones = np.ones((EXAMPLES, 2))
    step = 1e-2 * (1.0 - one_closed(3))
    up, down = (gated.outputs(1.0 + sign * step, "mean").sum(axis=1) for sign in (1, -1))
    slopes = gated.slopes(ones, "mean")
    np.testing.assert_allclose(slopes[:, 3], (up - down) / 2e-2, rtol=1e-2, atol=1e-3)


def test_modules_that_join_heads_can_be_named():
    torch.manual_seed(0)
    model, inputs = Blocks(Scaled), torch.randn(EXAMPLES, 5, WIDTH)
    gated = GatedModule(model, inputs, projection="c_proj")
    assert gated.heads == (HEADS, HEADS)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.blocks[0].c_proj.weight[:, part_of(1)] = 0.0
    assert_equal_in_float32(gated.outputs(one_closed(1), "zero"), outputs(other, inputs))
    with pytest.raises(InputError, match=r"projection = 'head'.*ran 1 times.*2 layers"):
        _ = GatedModule(model, inputs, projection="head").heads


def test_models_without_attention_and_outputs_of_another_kind_are_refused():
    with pytest.raises(InputError, match="MultiheadAttention"):
        _ = GatedModule(torch.nn.Linear(8, 8), torch.randn(3, 8)).heads
    made = family("nano_gpt")
    gated = GatedModule(made.model, made.inputs, lambda model, batch: model(batch)[:, None])
    with pytest.raises(InputError, match=r"outputs of the model = \(1, 1, 2\)"):
        gated.output_count()


def test_a_layer_that_some_examples_skip_is_named():
    made = family("nano_gpt")
    made.inputs[-1] = 0.0

    def forward(model, batch):
        if not batch[-1].any():
            return model.head((batch + model.blocks[0](batch))[:, -1])
        return model(batch)

    gated = GatedModule(made.model, made.inputs, forward)
    with pytest.raises(InputError, match=r"layers = \[2\].*did not with these"):
        gated.outputs(np.ones(2 * HEADS), "zero")
