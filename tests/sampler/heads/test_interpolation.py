"""Heads that send what they do of other examples, by automatic differentiation and by swaps."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from sampler.heads.measures import predictions_of_model
from sampler.heads.modules import GatedModule
from tests.assertions import assert_equal_in_float32
from tests.sampler.heads.families import (
    EXAMPLES,
    HEADS,
    TOKENS,
    WIDTH,
    WORDS,
    Blocks,
    CausalAttention,
    family,
    padded_words,
    torch,
)

SIZE, STEPS = WIDTH // HEADS, 3


def along(outputs, examples):
    """Something that depends on outputs and example."""
    return np.tanh(outputs) + np.arange(EXAMPLES)[examples, None]


def joined(joining, run) -> tuple[list, object]:
    """What modules that join heads are given, and the outputs."""
    given = []

    def keep(_, positional):
        positional[0].retain_grad()
        given.append(positional[0])

    handles = [module.register_forward_pre_hook(keep) for module in joining]
    outputs = run()
    for handle in handles:
        handle.remove()
    return given, getattr(outputs, "logits", outputs)


def by_autograd(model, joining, inputs_of) -> np.ndarray:
    """Example by example, gradients kept of what joins heads."""
    rows = []
    for example in range(EXAMPLES):

        def run(share, example=example):
            return model.eval()(**inputs_of(example, share))

        (other, _), (own, _) = (joined(joining, partial(run, share)) for share in (0.0, 1.0))
        total = np.zeros(HEADS * len(joining))
        for step in range(1, STEPS + 1):
            given, outputs = joined(joining, partial(run, step / STEPS))
            towards = along(outputs.detach().double().numpy(), [example])
            (outputs * torch.from_numpy(towards)).sum().backward()
            by_layer = [
                ((swapped - one) * at.grad).reshape(-1, HEADS, SIZE).sum(dim=(0, 2)).detach()
                for swapped, one, at in zip(other, own, given, strict=True)
            ]
            total += torch.cat(by_layer).numpy() / STEPS
        rows.append(total)
    return np.array(rows)


def between(own, others, share):
    return share * own + (1.0 - share) * others


class Named(torch.nn.Module):
    """A model whose one input has a name."""

    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens)


@pytest.mark.parametrize("lengths", [None, (3, 4, 5, 3, 4, 3)])
def test_inputs_are_interpolated_token_by_token(lengths):
    """Tokens that no other example has, here the last of the only one of five, stay."""
    made = family("nano_gpt")
    examples = [made.inputs[at, : lengths[at] if lengths else None] for at in range(EXAMPLES)]

    def inputs_of(example, share):
        own = examples[example]
        others = []
        for token in range(len(own)):
            some = [one[token] for at, one in enumerate(examples)
                    if at != example and len(one) > token]  # fmt: skip
            others.append(torch.stack(some).mean(dim=0) if some else own[token])
        return {"tokens": between(own, torch.stack(others), share)[None]}

    joining = [block.c_proj for block in made.model.blocks]
    expected = by_autograd(Named(made.model), joining, inputs_of)
    for inputs in (examples, {"tokens": made.inputs}) if lengths is None else (examples,):
        model = Named(made.model)
        received = GatedModule(model, inputs, batch_size=4).interpolated_slopes(along, STEPS)
        assert_equal_in_float32(received, expected, operations=1000)


@pytest.mark.heavy
@pytest.mark.parametrize("left", [None, False, True])
def test_numbers_of_words_are_interpolated_where_they_are_looked_up(left):
    """BERT takes the embeddings of its words as an argument, too."""
    made = family("bert")
    if left is not None:
        made = replace(made, inputs=padded_words(left))
    numbers = made.inputs["input_ids"]
    mask = made.inputs.get("attention_mask", torch.ones_like(numbers))
    with torch.no_grad():
        words = made.model.bert.embeddings.word_embeddings(numbers)

    def inputs_of(example, share):
        own = words[example]
        mean = own.clone()
        for token in range(TOKENS):
            some = [words[at, token] for at in range(EXAMPLES) if at != example and mask[at, token]]
            if mask[example, token] and some:
                mean[token] = torch.stack(some).mean(dim=0)
        return {
            "inputs_embeds": between(own, mean, share)[None],
            "attention_mask": mask[example][None],
        }

    joining = [layer.attention.output.dense for layer in made.model.bert.encoder.layer]
    expected = by_autograd(made.model, joining, inputs_of)
    gated = GatedModule(made.model, made.inputs, batch_size=4)
    assert_equal_in_float32(gated.interpolated_slopes(along, STEPS), expected, operations=1000)
    assert not made.model.bert.embeddings.word_embeddings._forward_hooks


def test_in_a_model_that_is_linear_in_its_heads_it_is_the_cost_of_a_swap():
    """The last layer of it, whose heads are added up at the token that is read."""
    torch.manual_seed(0)
    model, inputs = Blocks(CausalAttention), torch.randn(EXAMPLES, TOKENS, WIDTH)
    others = (inputs.sum(dim=0) - inputs) / (EXAMPLES - 1)
    joining = model.blocks[1].c_proj
    constant = np.random.default_rng(0).standard_normal((EXAMPLES, 2))
    found = GatedModule(model, inputs).interpolated_slopes(
        lambda outputs, examples: constant[examples], STEPS
    )
    with torch.no_grad():
        (swapped,), _ = sent(joining, lambda: model(others))
        for head in range(HEADS):
            part = slice(head * SIZE, (head + 1) * SIZE)

            def change(_, positional, part=part):
                changed = positional[0].clone()
                changed[..., part] = swapped[..., part]
                return (changed,)

            handle = joining.register_forward_pre_hook(change)
            gained = (constant * (model(inputs).numpy())).sum(axis=1)
            handle.remove()
            gained -= (constant * model(inputs).numpy()).sum(axis=1)
            assert_equal_in_float32(found[:, HEADS + head], gained, operations=1000)


def sent(joining, run) -> tuple[list, object]:
    """What a module is given, without gradients."""
    given = []
    handle = joining.register_forward_pre_hook(lambda _, positional: given.append(positional[0]))
    outputs = run()
    handle.remove()
    return given, outputs


class LookedUp(torch.nn.Module):
    """Tokens with numbers, of which no module knows."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.table = Blocks(CausalAttention), torch.randn(WORDS, WIDTH)

    def forward(self, numbers):
        return self.model(self.table[numbers])


def test_inputs_that_cannot_be_interpolated_have_no_such_prediction():
    torch.manual_seed(0)
    gated = GatedModule(LookedUp(), torch.randint(0, WORDS, (EXAMPLES, TOKENS)))
    assert np.isnan(gated.interpolated_slopes(along, STEPS)).all()
    labels = np.eye(2)[np.arange(EXAMPLES) % 2]
    assert "eap_ig" not in predictions_of_model(gated, labels, "squared", 0)


class Prefixed(torch.nn.Module):
    """A token is put before all others behind the embedding: places are not those of the mask."""

    def __init__(self, model) -> None:
        super().__init__()
        self.embedding, self.model = torch.nn.Embedding(WORDS, WIDTH), model

    def forward(self, input_ids, attention_mask):
        tokens = self.embedding(input_ids)
        tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], dim=1)
        mask = torch.cat([torch.ones_like(attention_mask[:, :1]), attention_mask], dim=1)
        return self.model(inputs_embeds=tokens, attention_mask=mask).logits


def test_padding_at_places_that_are_unknown_leaves_it_out():
    model = Prefixed(family("bert").model)
    inputs = padded_words(left=True)
    assert np.isnan(GatedModule(model, inputs).interpolated_slopes(along, STEPS)).all()
