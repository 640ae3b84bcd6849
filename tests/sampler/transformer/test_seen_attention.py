"""What a forward pass shows of attention, call by call: masks, scales, shared keys, order."""

import numpy as np
import pytest

from sampler.attention.masks import HiddenKeys, tokens_of
from sampler.attention.padding import without_padding
from sampler.errors import InputError
from sampler.transformer.recording import record_attention
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")

EXAMPLES, TOKENS, CHANNELS = 3, 5, 8


class Called(torch.nn.Module):
    """Calls the kernel once with 4 heads of queries, fewer of keys, and what else it is given."""

    def __init__(self, of_keys=4, **settings):
        super().__init__()
        self.of_keys, self.settings = of_keys, settings
        self.query = torch.nn.Linear(CHANNELS, 4 * 2)
        self.key = torch.nn.Linear(CHANNELS, of_keys * 2)

    def projected(self, x):
        query = self.query(x).unflatten(-1, (4, 2)).transpose(1, 2)
        return query, self.key(x).unflatten(-1, (self.of_keys, 2)).transpose(1, 2)

    def forward(self, x):
        query, key = self.projected(x)
        kernel = torch.nn.functional.scaled_dot_product_attention
        return kernel(query, key, key, **self.settings)


def softmax_by_head(model, x, scale, added=0.0):
    """Ω [example, head, key, query]: head h of the queries sees head h·H_k/4 of the keys."""
    query, key = (one.detach().double().numpy() for one in model.projected(x))
    omega = np.zeros((len(x), 4, TOKENS, TOKENS))
    for head in range(4):
        shared = head * model.of_keys // 4
        logits = scale * query[:, head] @ key[:, shared].swapaxes(1, 2) + added
        raised = np.exp(logits)
        omega[:, head] = (raised / raised.sum(axis=-1, keepdims=True)).swapaxes(1, 2)
    return omega


@pytest.fixture(autouse=True)
def tokens():
    torch.manual_seed(0)
    return torch.randn(EXAMPLES, TOKENS, CHANNELS)


CAUSAL = np.where(np.tril(np.ones((TOKENS, TOKENS))), 0.0, -np.inf)
BIAS = torch.linspace(-1.0, 1.0, TOKENS**2).reshape(TOKENS, TOKENS)


@pytest.mark.parametrize(
    ("settings", "scale", "added"),
    [
        ({"of_keys": 2, "enable_gqa": True}, 2**-0.5, 0.0),
        ({"scale": 0.25}, 0.25, 0.0),
        ({"is_causal": True}, 2**-0.5, CAUSAL),
        ({"attn_mask": BIAS}, 2**-0.5, BIAS.double().numpy()),
    ],
    ids=["shared keys", "scale", "causal", "bias"],
)
def test_a_call_is_softmax_by_its_definition(settings, scale, added, tokens):
    model = Called(**settings)
    received = record_attention(model, tokens).attention[0]
    assert_equal_in_float32(received, softmax_by_head(model, tokens, scale, added))


def test_queries_of_other_tokens_than_the_keys_are_refused(tokens):
    """As many as there are keys, so that only their making tells."""

    class Crossing(Called):
        def forward(self, x):
            query, key = self.projected(x)
            query, _ = self.projected(x.flip(1))
            return torch.nn.functional.scaled_dot_product_attention(query, key, key)

    with pytest.raises(InputError, match="must be made of the same tokens"):
        record_attention(Crossing(), tokens)


def test_sequences_come_back_in_the_order_in_which_they_were_given():
    """Lengths that alternate and repeat go through the model length by length."""
    lengths = [3, 5, 1, 5, 3, 5, 1]
    examples = [torch.randn(length, CHANNELS) for length in lengths]
    model = torch.nn.MultiheadAttention(CHANNELS, 2, batch_first=True)

    def forward(model, batch):
        return model(batch, batch, batch)

    found = record_attention(model, examples, forward=forward, batch_size=2)
    assert found.lengths.tolist() == lengths
    for row, (length, example) in enumerate(zip(lengths, examples, strict=True)):
        alone = record_attention(model, example[None], forward=forward)
        assert np.array_equal(found.inputs[row, :length], example.numpy())
        assert not found.inputs[row, length:].any()
        part = found.attention[0][row, :, :length, :length]
        assert_equal_in_float32(part, alone.attention[0][0])


def test_layers_hide_the_same_padding_or_none_of_them_does():
    weights = np.full((1, 1, 3, 3), 0.5)
    weights[..., 2] = 0.0
    nothing = HiddenKeys.of(np.zeros((1, 3, 3), bool))
    last = HiddenKeys.of(np.tile([False, False, True], (1, 3, 1)))
    assert tokens_of([weights] * 2, [last, last], {}).tolist() == [[True, True, False]]
    for hidden in ([last, nothing], [nothing, last]):
        with pytest.raises(InputError, match="must hide the same padding"):
            tokens_of([weights] * 2, hidden, {})


def test_tokens_keep_their_order_before_long_padding(rng):
    """Of 40 tokens: sorting rows of more than 16 numbers may exchange equal ones."""
    real = rng.random((3, 40)) < 0.5
    numbers = np.arange(40, dtype=np.float32)
    inputs = np.broadcast_to(numbers[:, None], (3, 40, 1))
    attention = (real[:, None, :, None] * numbers[:, None] + 100 * numbers).astype(np.float32)
    attention = attention * real[:, None, :, None]
    (moved, matrices), lengths = without_padding(inputs, [attention], real)
    for row, places in enumerate(map(np.flatnonzero, real)):
        count = lengths[row]
        assert count == len(places)
        assert moved[row, :count, 0].tolist() == places.tolist()
        expected = attention[row, 0][np.ix_(places, places)]
        assert np.array_equal(matrices[row, 0, :count, :count], expected)
        assert not moved[row, count:].any()
        assert not matrices[row, 0, count:].any()
        assert not matrices[row, 0, :, count:].any()


@pytest.mark.parametrize("number", [-torch.inf, -2.0e38])
def test_several_masks_added_up_hide_padding_as_one_does(number, tokens):
    """A sum of the most negative numbers may be rounded on its way; what weakens hides nothing."""
    added = torch.zeros(EXAMPLES, 1, 1, TOKENS)
    added[1, ..., 3:] = number
    added[:, ..., 0] = -1.0

    def forward(model, batch):
        model.settings = {"attn_mask": batch["added"]}
        return model(batch["tokens"])

    found = record_attention(Called(), {"tokens": tokens, "added": added}, forward=forward)
    assert found.lengths.tolist() == [5, 3, 5]
