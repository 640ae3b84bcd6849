"""Recorded attention against softmax(QKᵀ/√d), by loops from a model's own weights."""

from dataclasses import replace

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.torch_models.recording import record_attention
from tests.assertions import assert_equal_in_float32
from tests.sampler.torch_models.families import (
    HEADS,
    LAYERS,
    LENGTHS,
    TOKENS,
    WIDTH,
    by_loops,
    called,
    family,
    inputs_of,
    real_tokens,
    torch,
)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("encoder", "none"), ("encoder", "left"), ("gpt2", "right"), ("gpt2", "left"),
        # A mask of ones lets libraries leave out the mask of attention.
        ("llama", "masked"), ("llama", "right"),
    ],
)  # fmt: skip
def test_recorded_attention_is_softmax_of_the_models_own_weights(name, side):
    made = family(name)
    inputs = inputs_of(made, side)
    recorded = record_attention(made.model, inputs, batch_size=3)
    assert recorded.heads == (HEADS,) * LAYERS
    for number, (layer, stream) in enumerate(zip(made.layers, made.streams(inputs), strict=True)):
        with torch.no_grad():
            tokens = made.norm(layer, stream).double().numpy()
        real = real_tokens(side).numpy()
        assert real.all() if recorded.lengths is None else recorded.lengths.tolist() == [*LENGTHS]
        for example, places in enumerate(real):
            count = places.sum()
            received = recorded.attention[number][example]
            expected = by_loops(made, layer, tokens[example], places)
            np.testing.assert_allclose(received[:, :count, :count], expected, atol=1e-6)
            # Padding carries no weight.
            assert not received[:, count:].any()
            assert not received[:, :, count:].any()
            if number == 0:
                np.testing.assert_allclose(
                    recorded.inputs[example, :count], tokens[example, places], atol=1e-6
                )


def test_layers_of_pytorch_are_causal_where_only_a_hint_says_so():
    made = family("encoder")
    hidden = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS)

    def forward(model, tokens):
        model.encoder(tokens, mask=hidden, is_causal=True)

    tokens = inputs_of(made)
    (matrices, _) = record_attention(made.model, tokens, forward=forward).attention
    causal = replace(made, is_causal=True)
    for example, received in enumerate(matrices):
        vectors = tokens[example].double().numpy()
        expected = by_loops(causal, made.layers[0], vectors, np.ones(TOKENS, bool))
        np.testing.assert_allclose(received, expected, atol=1e-6)


def test_a_model_within_another_one_is_recorded_as_it_is():
    """Fused attention is put aside meanwhile, and is back afterwards."""
    made = family("gpt2")

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = made.model.transformer, torch.nn.Linear(WIDTH, 1)

        def forward(self, input_ids):
            return self.head(self.backbone(input_ids).last_hidden_state[:, 0])

    own, inputs = Own(), inputs_of(made)
    assert made.model.config._attn_implementation == "sdpa"
    received = record_attention(own, inputs["input_ids"])
    assert made.model.config._attn_implementation == "sdpa"
    expected = record_attention(made.model, inputs)
    for one, other in zip(received.attention, expected.attention, strict=True):
        np.testing.assert_array_equal(one, other)


class Fused(torch.nn.Module):
    """A layer that shows nothing of its attention."""

    def __init__(self):
        super().__init__()
        self.joined, self.c_proj = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, 2)

    def parts(self, tokens):
        shape = (*tokens.shape[:2], HEADS, WIDTH // HEADS)
        return [one.view(shape).transpose(1, 2) for one in self.joined(tokens).chunk(3, -1)]

    def forward(self, tokens):
        sent = torch.nn.functional.scaled_dot_product_attention(*self.parts(tokens))
        return self.c_proj(sent.transpose(1, 2).flatten(2))[:, -1]


def own_attention(model, batch):
    query, key, _ = model.parts(batch)
    return batch, [torch.softmax(query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5, dim=-1)]


def test_a_function_gives_the_attention_of_any_model():
    torch.manual_seed(0)
    model, tokens = Fused(), torch.randn(5, TOKENS, WIDTH)
    recorded = record_attention(model, tokens, attention=own_attention, batch_size=2)
    with torch.no_grad():
        _, (weights,) = own_attention(model, tokens)
    np.testing.assert_array_equal(recorded.inputs, tokens.numpy())
    expected = weights.transpose(2, 3).numpy()
    assert_equal_in_float32(recorded.attention[0], expected)


@pytest.mark.parametrize(
    ("batch_first", "asked"), [(True, {}), (False, {"need_weights": False})], ids=str
)
def test_callers_of_a_layer_receive_what_they_asked_for(batch_first, asked):
    received = []
    layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)

    def forward(model, batch):
        tokens = batch if batch_first else batch.transpose(0, 1)
        received.append(model(tokens, tokens, tokens, **asked))

    tokens = torch.randn(2, TOKENS, WIDTH)
    recorded = record_attention(layer, tokens, forward=forward)
    with torch.no_grad():
        forward(layer.eval(), tokens)
    np.testing.assert_array_equal(recorded.inputs, tokens.numpy())
    (attended, weights), (expected, expected_weights) = received
    assert_equal_in_float32(attended.numpy(), expected.numpy())
    assert (weights is None) == (expected_weights is None)
    if weights is not None:
        assert_equal_in_float32(weights.numpy(), expected_weights.numpy())


@pytest.mark.parametrize(("name", "fails"), [("encoder", False), ("encoder", True), ("gpt2", True)])
def test_hooks_of_others_are_given_what_they_always_are_and_stay(name, fails):
    """One before a module of attention, and one behind it that changes what it returns.

    Modes of all modules, too, are afterwards as before.
    """
    made = family(name)
    inputs = inputs_of(made)
    attention = [
        part
        for part in made.model.modules()
        if type(part).__name__ in ("MultiheadAttention", "GPT2Attention")
    ]
    assert len(attention) == LAYERS
    given, returned = [], []

    def before(module, positional):
        given.append(module)

    def behind(module, positional, output):
        returned.append(tuple(output[0].shape))
        return (output[0] + 0.5, *output[1:])

    for part in attention:
        part.register_forward_pre_hook(before)
        part.register_forward_hook(behind)
    expected_outputs = called(made.model, inputs)
    expected = list(returned)
    given.clear(), returned.clear()
    made.layers[0].train()
    modes = [module.training for module in made.model.modules()]

    def forward(model, batch):
        outputs = model(**batch) if isinstance(batch, dict) else model(batch)
        np.testing.assert_allclose(
            getattr(outputs, "logits", outputs).numpy(), expected_outputs, atol=1e-5
        )
        if fails:
            raise KeyboardInterrupt

    if fails:
        with pytest.raises(KeyboardInterrupt):
            record_attention(made.model, inputs, forward=forward)
    else:
        record_attention(made.model, inputs, forward=forward)
    assert given == attention
    assert returned == expected
    assert [module.training for module in made.model.modules()] == modes
    assert torch.backends.mha.get_fastpath_enabled()
    for part in made.model.modules():
        assert "forward" not in vars(part)
        hooks = len(part._forward_hooks), len(part._forward_pre_hooks)
        assert hooks == ((1, 1) if part in given else (0, 0))


def test_a_forward_that_another_library_put_there_runs_and_stays():
    made = family("gpt2")
    module = made.layers[0].attn
    inner, runs = module.forward, []

    def forward(*positional, **named):
        runs.append(1)
        return inner(*positional, **named)

    module.forward = forward
    record_attention(made.model, inputs_of(made))
    assert runs == [1]
    assert module.forward is forward


def test_sequences_of_a_list_are_what_they_are_alone_in_their_order():
    made = family("encoder")
    lengths = [3, 5, 1, 5, 3, 5, 1]
    examples = [torch.randn(length, WIDTH) for length in lengths]
    recorded = record_attention(made.model, examples, batch_size=2)
    assert recorded.lengths.tolist() == lengths
    for row, (length, example) in enumerate(zip(lengths, examples, strict=True)):
        alone = record_attention(made.model, example[None])
        assert_equal_in_float32(recorded.inputs[row, :length], alone.inputs[0])
        for one, other in zip(recorded.attention, alone.attention, strict=True):
            assert_equal_in_float32(one[row, :, :length, :length], other[0])
            assert not one[row, :, length:].any()


def test_a_window_begins_with_the_tokens_before_its_first_layer():
    made = family("gpt2")
    inputs = inputs_of(made)
    whole = record_attention(made.model, inputs)
    part = record_attention(made.model, inputs, layers=(2, 2), heads={2: [3, 1]})
    assert part.chosen == {2: [1, 3]}
    assert part.modules == ("transformer.h.1.attn",)
    np.testing.assert_array_equal(part.attention[0], whole.attention[1][:, [1, 3]])
    with torch.no_grad():
        expected = made.layers[1].ln_1(made.streams(inputs)[1])
    assert_equal_in_float32(part.inputs, expected.numpy())


# --- what is refused


def test_an_encoder_with_a_decoder_is_refused_by_the_cause():
    transformers = pytest.importorskip("transformers", reason="models of Hugging Face")
    config = transformers.T5Config(
        vocab_size=WIDTH, d_model=WIDTH, d_kv=4, d_ff=24, num_layers=2, num_heads=HEADS
    )
    model = transformers.T5Model(config)
    with pytest.raises(InputError, match="an encoder with a decoder"):
        record_attention(model, {"input_ids": torch.ones(2, 3, dtype=torch.long)})
    ids = torch.randint(1, WIDTH, (2, 3))
    recorded = record_attention(model.get_encoder(), {"input_ids": ids})
    assert recorded.heads == (HEADS, HEADS)
    with torch.no_grad():
        block = model.encoder.block[0].layer[0]
        expected = block.layer_norm(model.shared(ids))
    assert_equal_in_float32(recorded.inputs, expected.numpy())
