"""Residual streams of hand-written models: what is followed, and what is refused."""

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.transformer.chosen_layers import EVERY_LAYER
from sampler.transformer.single_paths import find_paths, recorded_paths
from tests.assertions import assert_equal_in_float32

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")

EXAMPLES, TOKENS, CHANNELS, HEADS, LAYERS, EPSILON = 5, 4, 8, 2, 3, 1e-3


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Norm(torch.nn.Module):
    """A root mean square, which may be called by the name of its argument."""

    def __init__(self):
        super().__init__()
        self.eps = EPSILON

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()


class Attention(torch.nn.Module):
    """Attention without modules of its own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, CHANNELS, CHANNELS) / CHANNELS**0.5)

    def weights(self, x):
        query, key = (
            (x @ one).unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.weight[:2]
        )
        return (query @ key.transpose(-1, -2)).softmax(-1)

    def forward(self, x):
        value = (x @ self.weight[2]).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return (self.weights(x) @ value).transpose(1, 2).flatten(2) @ self.weight[3]


class Sum(torch.nn.Module):
    """An addition as a module, given two tensors."""

    def forward(self, one, other):
        return one + other


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.second, self.attention, self.sum = Norm(), Norm(), Attention(), Sum()
        self.gate = torch.nn.Linear(CHANNELS, CHANNELS)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(CHANNELS, 6), torch.nn.GELU(), torch.nn.Linear(6, CHANNELS)
        )


class Plain(Block):
    """Norms before; `scale` is that of a layer."""

    def __init__(self, scale=None):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(CHANNELS) if scale is None else scale)

    def forward(self, x):
        x = self.sum(x, self.scale * self.attention(self.norm(x=x)))
        return self.sum(x, self.scale * self.mlp(self.second(x=x)))


class Scaled(Plain):
    def __init__(self):
        super().__init__(torch.rand(CHANNELS))


class GatedByTokens(Block):
    def forward(self, x):
        return x + self.gate(x).sigmoid() * self.attention(self.norm(x))


class ActivatedBehind(Block):
    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.second(x)).relu()


class Model(torch.nn.Module):
    def __init__(self, block, blocks=None):
        super().__init__()
        self.embedding = torch.nn.Linear(CHANNELS, CHANNELS)
        self.blocks = torch.nn.ModuleList(blocks or [block() for _ in range(LAYERS)])
        self.norm = Norm()

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def recorded(model, inputs, forward=None):
    """ξ of every path at the last token."""
    paths = find_paths(model, inputs[:1], EVERY_LAYER, True, forward)
    last = np.zeros((1, 1, TOKENS))
    last[..., -1] = 1.0
    found = recorded_paths(
        model, inputs, paths, lambda real, _: last.repeat(len(real), axis=0), forward, 2
    )
    return found[:, 0]


@torch.no_grad()
def by_hand(model, inputs):
    """Of heads, embedding and MLPs, for models that normalise before their layers."""
    x = start = model.embedding(inputs)
    heads, mlps = [], []
    for block in model.blocks:
        seen = block.norm(x)
        heads.append(block.attention.weights(seen)[:, :, -1] @ seen)
        x = x + block.scale * block.attention(seen)
        written = block.mlp(block.second(x))
        mlps.append(written[:, -1])
        x = x + block.scale * written
    spread = (x[:, -1].square().mean(-1) + EPSILON).rsqrt()
    found = torch.cat([*heads, start[:, -1:], torch.stack(mlps, dim=1)], dim=1)
    return (found * spread[:, None, None]).numpy()


def block_by_block(model, batch):
    x = model.embedding(batch)
    for block in model.blocks:
        x = block(x)
    return model.norm(x)


@pytest.mark.parametrize(
    ("block", "forward", "is_tied"), [(Plain, None, True), (Scaled, block_by_block, False)]
)
def test_single_paths_of_models_of_ones_own(block, forward, is_tied):
    """Attention is a leaf, norms are called by name, sums are modules, blocks may be the same."""
    model = Model(block, [block()] * LAYERS if is_tied else None)
    inputs = torch.randn(EXAMPLES, TOKENS, CHANNELS)
    assert_equal_in_float32(
        recorded(model, inputs, forward), by_hand(model, inputs), operations=1000
    )


@pytest.mark.parametrize(
    ("block", "operation"),
    [
        (GatedByTokens, "(Mul|Sigmoid)"),
        (ActivatedBehind, "Relu"),
    ],
)
def test_what_is_no_sum_is_refused(block, operation):
    inputs = torch.randn(1, TOKENS, CHANNELS)
    with pytest.raises(InputError, match=f"operation on the residual stream = {operation}: stands"):
        find_paths(Model(block), inputs, EVERY_LAYER, False, None)


@pytest.mark.parametrize("function", [torch.tanh, lambda x: x.max(dim=1).values])
def test_functions_behind_the_last_normalisation_are_none_of_the_streams(function):
    model, inputs = Model(Plain), torch.randn(EXAMPLES, TOKENS, CHANNELS)
    received = recorded(model, inputs, lambda model, x: function(model(x)))
    assert_equal_in_float32(received, by_hand(model, inputs), operations=1000)
