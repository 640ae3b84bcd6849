"""A transformer written by hand: the task it answers, and its weights.

Layer 1 has a head that copies the symbol of the token before, layer 2 one that looks for the token
whose copied symbol is that of the query: an induction head. Beside each of them stand two idle
heads: one attends at random and writes nothing, one attends to all tokens equally and writes where
nobody reads.
"""

import sys

import numpy as np

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this study needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

torch.set_num_threads(1)  # these matrices are too small for more
SYMBOLS, TOKENS, HEADS, LAYERS, SHARPNESS = 12, 9, 3, 2, 40.0
USEFUL, IDLE_BY_VALUE, IDLE_BY_ATTENTION = range(HEADS)
# Channels: the symbol, its place, what the two useful heads write, and what nobody reads.
SYMBOL, PLACE, BEFORE, FOUND, UNREAD = np.cumsum([0, SYMBOLS, TOKENS, SYMBOLS, SYMBOLS])
CHANNELS = 57  # rounded up to a multiple of the heads
SIZE = CHANNELS // HEADS
USEFUL_HEADS = np.array([head == USEFUL for _ in range(LAYERS) for head in range(HEADS)])


def induction(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Different symbols with their places, the last one of them again: what came after it?"""
    each, order = torch.arange(examples), torch.rand(examples, SYMBOLS).argsort(dim=1)
    before = torch.randint(0, TOKENS - 2, (examples,))
    shown = torch.cat([order[:, : TOKENS - 1], order[each, before, None]], dim=1)
    labels = torch.where(order[each, before + 1] < SYMBOLS // 2, -1.0, 1.0)
    places = torch.eye(TOKENS).expand(examples, -1, -1)
    return torch.cat([nn.functional.one_hot(shown, SYMBOLS), places], dim=2), labels


# --- weights


class HandWritten(nn.Module):
    """Two layers of attention with residual connections; every weight is set."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(SYMBOLS + TOKENS, CHANNELS, bias=False)
        self.embedding.weight.data.copy_(torch.eye(CHANNELS, SYMBOLS + TOKENS))
        self.layers = nn.ModuleList(
            nn.MultiheadAttention(CHANNELS, HEADS, bias=False, batch_first=True)
            for _ in range(LAYERS)
        )
        generator = torch.Generator().manual_seed(seed)
        for layer, attention in enumerate(self.layers):
            write_useful_head(attention, layer)
            write_idle_heads(attention, generator)
        self.readout = nn.Linear(CHANNELS, 1, bias=False)
        self.readout.weight.data.zero_()
        self.readout.weight.data[0, FOUND : FOUND + SYMBOLS // 2] = -4.0
        self.readout.weight.data[0, FOUND + SYMBOLS // 2 : FOUND + SYMBOLS] = 4.0

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for attention in self.layers:
            hidden = hidden + attention(hidden, hidden, hidden, need_weights=False)[0]
        return self.readout(hidden[:, -1])[:, 0]


def of_head(attention: nn.MultiheadAttention, head: int) -> tuple[torch.Tensor, ...]:
    """W_Q, W_K, W_V [row, channel] and W_O [channel, row] of a head, to be written into."""
    rows = slice(head * SIZE, (head + 1) * SIZE)
    ins = attention.in_proj_weight.data.reshape(3, CHANNELS, CHANNELS)[:, rows]
    return *ins, attention.out_proj.weight.data[:, rows]


def write_useful_head(attention: nn.MultiheadAttention, layer: int) -> None:
    """Attend to the token before; or to that whose copied symbol is the query's."""
    query, key, value, out = of_head(attention, USEFUL)
    for one in (query, key, value, out):
        one.zero_()
    if layer == 0:
        query[:TOKENS, PLACE : PLACE + TOKENS] = SHARPNESS * torch.eye(TOKENS)
        key[1:TOKENS, PLACE : PLACE + TOKENS - 1] = torch.eye(TOKENS - 1)
        # Nothing stands before the first token, which attends to all tokens equally.
    else:
        query[:SYMBOLS, SYMBOL : SYMBOL + SYMBOLS] = SHARPNESS * torch.eye(SYMBOLS)
        key[:SYMBOLS, BEFORE : BEFORE + SYMBOLS] = torch.eye(SYMBOLS)
    value[:SYMBOLS, SYMBOL : SYMBOL + SYMBOLS] = torch.eye(SYMBOLS)
    written = (BEFORE, FOUND)[layer]
    out[written : written + SYMBOLS, :SYMBOLS] = torch.eye(SYMBOLS)


def write_idle_heads(attention: nn.MultiheadAttention, generator: torch.Generator) -> None:
    """Random logits whose values are not written; uniform attention whose values nobody reads."""
    *ins, out = of_head(attention, IDLE_BY_VALUE)
    for one in ins:
        one.copy_(torch.randn(one.shape, generator=generator))
    out.zero_()
    query, key, value, out = of_head(attention, IDLE_BY_ATTENTION)
    for one in (query, key, value, out):
        one.zero_()
    value[:SYMBOLS, SYMBOL : SYMBOL + SYMBOLS] = torch.eye(SYMBOLS)
    out[UNREAD : UNREAD + SYMBOLS, :SYMBOLS] = torch.eye(SYMBOLS)


def of_seed(seed: int, counts: dict[str, int]) -> tuple[HandWritten, dict]:
    """A model, whose idle heads have this seed, and so many examples of each split."""
    torch.manual_seed(seed)
    model = HandWritten(seed).eval()
    return model, {name: induction(count) for name, count in counts.items()}
