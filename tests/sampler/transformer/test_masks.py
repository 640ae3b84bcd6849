"""Masks of padding in every form and place: recognised, or refused by name, and never tokens."""

import itertools
import math

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.transformer.recording import real_tokens, record_attention
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
functional = torch.nn.functional

HEADS, CHANNELS, TOKENS = 2, 6, 5
LENGTHS = (3, 5, 1, 4)
NUMBERS = {"-inf": -math.inf, "-1e4": -1e4, "min": torch.finfo(torch.float32).min}
FORMS = ("keep", "hide 0/1", *NUMBERS)
SHAPES = ("tokens", "keys", "pairs")
PLACES = ("module", "kernel", "softmax")


class Layer(torch.nn.Module):
    """Attention in one of three ways, with a mask [example, 1, query or 1, key] to add to it."""

    def __init__(self, place):
        super().__init__()
        self.place = place
        is_module = place == "module"
        self.inner = (
            torch.nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)
            if is_module
            else torch.nn.Linear(CHANNELS, 3 * CHANNELS)
        )

    def forward(self, x, added):
        if self.place == "module":
            if added is not None and added.shape[2] == 1:
                return x + self.inner(x, x, x, key_padding_mask=added[:, 0, 0])[0], None
            if added is not None:
                added = added.expand(-1, HEADS, -1, -1).flatten(0, 1)
            return x + self.inner(x, x, x, attn_mask=added)[0], None
        projected = self.inner(x).chunk(3, dim=-1)
        query, key, value = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in projected)
        if self.place == "kernel":
            if added is not None and added.dtype == torch.bool:
                added = ~added
            sent = functional.scaled_dot_product_attention(query, key, value, attn_mask=added)
            return x + sent.transpose(1, 2).flatten(2), None
        logits = query @ key.transpose(-2, -1) / math.sqrt(CHANNELS / HEADS)
        if added is not None and added.dtype == torch.bool:
            logits = logits.masked_fill(added, -math.inf)
        elif added is not None:
            logits = logits + added
        weights = logits.softmax(dim=-1)
        return x + (weights @ value).transpose(1, 2).flatten(2), weights


class Told(torch.nn.Module):
    """Two layers told of padding by an argument of any name, in one of the forms.

    A mask of True or 1 reaches the layers as True where keys are hidden; numbers as they are.
    """

    def __init__(self, place, form="hide", is_causal=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Layer(place) for _ in range(2))
        self.form, self.is_causal = form, is_causal

    def forward(self, tokens, output_attentions=False, output_hidden_states=False, **named):
        (mask,) = named.values() or (None,)
        if mask is not None:
            if self.form not in NUMBERS:
                mask = (mask != 0) == self.form.startswith("hide")
            mask = mask[:, None, None] if mask.ndim == 2 else mask
        if self.is_causal:
            later = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1) > 0
            number = NUMBERS.get(self.form)
            later = later if number is None else torch.zeros(later.shape).masked_fill(later, number)
            later = later[None, None]
            mask = later if mask is None else (mask | later if number is None else mask + later)
            mask = mask.expand(len(tokens), -1, -1, -1)
        hidden, found = [tokens], []
        for layer in self.layers:
            tokens, weights = layer(tokens, mask)
            hidden.append(tokens)
            found.append(weights)
        return Returned(found, hidden) if output_attentions else tokens


class Returned:
    def __init__(self, attentions, hidden_states):
        self.attentions, self.hidden_states = attentions, hidden_states


def real_of(side):
    behind = torch.arange(TOKENS) < torch.tensor(LENGTHS)[:, None]
    return behind if side == "right" else behind.flip(1)


def written(real, form, shape):
    """A mask of these tokens in a form and shape."""
    mask = real if form.startswith("keep") else ~real
    if form.endswith("0/1"):
        mask = mask.long()
    if form in NUMBERS:
        mask = torch.zeros(real.shape).masked_fill(~real, NUMBERS[form])
    if shape == "tokens":
        return mask
    return mask[:, None, None].expand(-1, 1, TOKENS if shape == "pairs" else 1, -1)


def assert_alone(model, tokens, found, real, alone):
    """Every sequence is what it is alone, and padding is 0; `alone` keeps what that is."""
    assert found.lengths.tolist() == list(LENGTHS)
    for row, length in enumerate(LENGTHS):
        key = row, *real[row].tolist()
        if key not in alone:
            alone[key] = record_attention(model, tokens[row, real[row]][None])
        by_itself = alone[key]
        part = slice(0, length)
        assert_equal_in_float32(found.inputs[row, part], by_itself.inputs[0])
        for received, expected in zip(found.attention, by_itself.attention, strict=True):
            assert_equal_in_float32(received[row, :, part, part], expected[0])
            assert not received[row, :, length:].any()


@pytest.mark.heavy
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
def test_padding_is_recognised_in_every_form_shape_and_name(place, is_causal):
    """−∞ hides every key from padding before a causal model, which some kernels make NaN."""
    tokens = torch.randn(len(LENGTHS), TOKENS, CHANNELS)
    names = itertools.cycle(("attention_mask", "padding", "m", "src_key_padding_mask", "valid"))
    alone = {}
    for form, shape, side in itertools.product(FORMS, SHAPES, ("right", "left")):
        real = real_of(side)
        model = Told(place, form, is_causal)
        given = {"tokens": tokens, next(names): written(real, form, shape)}
        spoiled = {
            "kernel": (),
            "softmax": ("-inf",),
            "module": set(FORMS) - set(NUMBERS) | {"-inf"},
        }
        if is_causal and side == "left" and form in spoiled[place]:
            with pytest.raises(InputError, match=r"nan: every entry must be finite; .*−10⁴"):
                record_attention(model, given)
            continue
        found = record_attention(model, given, batch_size=2)
        assert_alone(model, tokens, found, real, alone)
        assert np.array_equal(real_tokens(model, given), real.numpy()), (form, shape, side)


def test_a_model_that_finds_padding_itself_says_so_by_what_it_hides():
    """No argument is a mask: tokens of zeros are padding."""
    tokens = torch.randn(len(LENGTHS), TOKENS, CHANNELS)
    real = real_of("left")
    tokens[~real] = 0.0

    def forward(model, batch):
        mask = (batch == 0).all(dim=-1)
        return model(batch, m=mask, output_attentions=True)

    for place in PLACES:
        model = Told(place)
        found = record_attention(model, tokens, forward=forward)
        assert_alone(model, tokens, found, real, {})


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("attention_mask", [[1, 1, 1, 0, 0]], "gives to what `attention_mask` hides, .*hand it"),
        ("mask", [[0.0, 0.0, -1e4, 0.0, 0.0]], r"mask\[0\] = "),
        ("attention_mask", [[1, 0]], r"= \(1, 2\): hides something, but not of the 5 tokens"),
        ("attention_mask", [[1, 1, 2, 2, 0]], "must be .*, 1 for a token and 0 for padding"),
    ],
)
def test_a_mask_that_attention_does_not_follow_is_refused(name, values, message):
    given = {"tokens": torch.randn(1, TOKENS, CHANNELS), name: torch.tensor(values)}
    with pytest.raises(InputError, match=message):
        record_attention(Told("kernel"), given, forward=lambda model, batch: model(batch["tokens"]))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("token_type_ids", [[0, 0, 0, 1, 1]]),
        ("mask", [[1, 1]]),
        ("mask", [[1, 1, 1, 1, 1, 1, 1, 1, 1, 0]]),  # of ten parts of five tokens
        ("bias", [[0.0, -1.0, 0.5, 0.0, 0.0]]),
    ],
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_what_is_no_mask_of_padding_hides_no_token(name, values, is_causal):
    given = {"tokens": torch.randn(1, TOKENS, CHANNELS), name: torch.tensor(values)}
    model = Told("kernel", is_causal=is_causal)
    assert real_tokens(model, given, forward=lambda model, batch: model(batch["tokens"])) is None


@pytest.mark.parametrize(
    ("name", "values", "known"),
    [
        ("attention_mask", [1, 1, 1, 0, 0], True),
        ("lengths", 3, True),
        ("token_type_ids", [0, 0, 0, 1, 1], None),
        ("m", [False, False, False, True, True], False),
    ],
)
def test_behind_a_causal_model_a_name_must_say_what_is_padding(name, values, known):
    """No token sees those behind it, so that weights bear out any mask that cuts the end off."""
    given = {"tokens": torch.randn(1, TOKENS, CHANNELS), name: torch.tensor([values])}
    model = Told("kernel", is_causal=True)

    def forward(model, batch):
        return model(batch["tokens"])

    if known is False:
        with pytest.raises(InputError, match=f"gives to what `{name}` hides"):
            real_tokens(model, given, forward=forward)
        return
    found = real_tokens(model, given, forward=forward)
    assert (found is None) if known is None else (found.tolist() == [[True] * 3 + [False] * 2])


@pytest.mark.parametrize("place", PLACES)
def test_a_key_that_nothing_sees_is_a_token_where_no_mask_can_hide_it(place):
    """Logits of hundreds: known of calls that are given their masks, doubted of softmax alone."""
    tokens, model = torch.randn(1, TOKENS, CHANNELS), Told(place)
    with torch.no_grad():
        for layer in model.layers:
            inner = layer.inner
            weight = inner.in_proj_weight if place == "module" else inner.weight
            weight.zero_()
            weight[CHANNELS:][:CHANNELS, 0] = 1.0  # keys are the first channel
            bias = inner.in_proj_bias if place == "module" else inner.bias
            bias.zero_()
            bias[:CHANNELS] = 1.0  # queries are alike
    tokens[0, :, 0] = torch.tensor([300.0, 300.0, 0.0, 300.0, 300.0])
    if place == "softmax":
        with pytest.raises(InputError, match="attention to token 2 of example 0"):
            real_tokens(model, tokens)
    else:
        assert real_tokens(model, tokens) is None
