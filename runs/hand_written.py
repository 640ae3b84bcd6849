# %% [markdown]
# # Heads whose use is known: a transformer written by hand
#
# Its weights are set, not trained, so that it is known what each head is for. A sequence shows
# symbols that all differ; its last token repeats one of them, and the label is what the symbol
# after it stands for. Layer 1 has a head that copies the symbol of the token before, layer 2 one
# that looks for the token whose copied symbol is that of the query: an induction head. Beside each
# of them stand two idle heads: one attends at random and writes nothing, one attends to all tokens
# equally and writes where nobody reads. Which numbers put the idle heads last?
#
#     python runs/hand_written.py [FOLDER [SEEDS]]     (minutes; default runs/results/hand_written)

# %%
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from renew import record

import sampler
from sampler.heads.importance import PREDICTIONS
from sampler.presentation import style

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this study needs PyTorch: pip install -c constraints.txt -e '.[torch]'")

torch.set_num_threads(1)  # these matrices are too small for more
SYMBOLS, TOKENS, HEADS, LAYERS, SHARPNESS = 12, 9, 3, 2, 40.0
LEARNED, UNSEEN = 100, 1000  # examples of the theory; of predictions and of removal
USEFUL, IDLE_BY_VALUE, IDLE_BY_ATTENTION = range(HEADS)
# Channels: the symbol, its place, what the two useful heads write, and what nobody reads.
SYMBOL, PLACE, BEFORE, FOUND, UNREAD = np.cumsum([0, SYMBOLS, TOKENS, SYMBOLS, SYMBOLS])
CHANNELS = 57  # rounded up to a multiple of the heads
SIZE = CHANNELS // HEADS
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/results/hand_written")
SEEDS = range(int(sys.argv[2]) if len(sys.argv) > 2 else 10)


def induction(examples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Different symbols with their places, the last one of them again: what came after it?"""
    each, order = torch.arange(examples), torch.rand(examples, SYMBOLS).argsort(dim=1)
    before = torch.randint(0, TOKENS - 2, (examples,))
    shown = torch.cat([order[:, : TOKENS - 1], order[each, before, None]], dim=1)
    labels = torch.where(order[each, before + 1] < SYMBOLS // 2, -1.0, 1.0)
    places = torch.eye(TOKENS).expand(examples, -1, -1)
    return torch.cat([nn.functional.one_hot(shown, SYMBOLS), places], dim=2), labels


# %% [markdown]
# ## Weights
# %%
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


# %% [markdown]
# ## What removal costs, and which numbers tell so
# %%
useful = np.array([head == USEFUL for _ in range(LAYERS) for head in range(HEADS)])
of_heads: dict[str, list[np.ndarray]] = {}  # by number, those of every seed
above: dict[str, list[np.ndarray]] = {}
lost: dict[str, list[np.ndarray]] = {"zero_accuracy": [], "mean_accuracy": []}
accuracies = []
for seed in SEEDS:
    torch.manual_seed(seed)
    model = HandWritten(seed).eval()
    splits = {
        name: induction(count)
        for name, count in (("train", LEARNED), ("validation", UNSEEN), ("test", UNSEEN))
    }
    network = sampler.make_network(widths=20, temperature=0.1)
    found = sampler.ablate_heads(
        model, network, **splits, starts=1, solve_again=False, progress=False
    ).result
    accuracies.append(found.unpruned["accuracy"][0])
    for name, values in lost.items():
        values.append(np.array(found.measured[name].values))
        # Known by construction: without an idle head nothing changes.
        assert (values[-1][~useful] == 0.0).all()
    # Without the induction head the answer is one for all: chance, within four binomial errors.
    without = accuracies[-1] - lost["mean_accuracy"][-1][useful][1]
    assert abs(without - 0.5) < 4.0 * 0.5 / UNSEEN**0.5, without
    numbers_of = {key: np.array(one.values) for key, one in found.predicted.items()}
    for key, values in numbers_of.items():
        of_heads.setdefault(key, []).append(values)
        above.setdefault(key, []).append(values[useful] > values[~useful].max())
    print(f"  seed {seed}: accuracy {accuracies[-1]:.3f}", flush=True)

print(f"\naccuracy {np.mean(accuracies):.3f}; lost without a head, mean over {len(SEEDS)} seeds")
costs = {name: np.mean(values, axis=0) for name, values in lost.items()}
for name, values in costs.items():
    print(f"  {name}: " + ", ".join(f"{100 * one:.1f}" for one in values))
print(f"\nabove all idle heads, in how many of {len(SEEDS)} seeds")
print(f"  {'':44} previous  induction  both")
numbers: dict = {"seeds": len(SEEDS), "accuracy": float(np.mean(accuracies)), "above": {}}
for key, found_above in above.items():
    counts = np.sum(found_above, axis=0)
    both = int(np.sum(np.all(found_above, axis=1)))
    of = {"previous": int(counts[0]), "induction": int(counts[1]), "both": both}
    numbers["above"][key] = of
    print(f"  {PREDICTIONS[key]:44} {of['previous']:8} {of['induction']:10} {both:5}")
numbers["lost"] = {
    name: {
        "previous": float(values[useful][0]),
        "induction": float(values[useful][1]),
        "idle": float(np.abs(values[~useful]).max()),
    }
    for name, values in costs.items()
}
folder.mkdir(parents=True, exist_ok=True)
record(folder, "hand_written", numbers, made_by="python runs/hand_written.py", seeds=list(SEEDS))

# %%
SHOWN = ("score", "zeroed", "removed", "taylor", "magnitude")
KINDS = {
    "previous token": ([0], style.THEORY, "o"),
    "induction": ([HEADS], style.ORANGE, "s"),
    "idle": (np.flatnonzero(~useful), style.GREY, "x"),
}


def draw_hand_written() -> Figure:
    """Draw numbers of heads, relative to the largest of a model: a mark for each seed."""
    figure = style.new_figure(style.WIDTH, 0.42 * len(SHOWN) + 1.8)
    figure.suptitle("Two useful and four idle heads: which number tells them apart?")
    axes = figure.subplots()
    for row, key in enumerate(SHOWN):
        values = np.array(of_heads[key])
        values = values / np.abs(values).max(axis=1, keepdims=True)
        for shift, (name, (places, colour, mark)) in zip(
            (-0.2, 0.0, 0.2), KINDS.items(), strict=True
        ):
            shown = values[:, places].ravel()
            label = name if row == 0 else None
            axes.plot(shown, np.full(shown.size, row + shift), mark, color=colour, label=label)
    axes.set_yticks(range(len(SHOWN)), [PREDICTIONS[key] for key in SHOWN])
    axes.invert_yaxis()
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    axes.set_xlabel("relative to the largest of a model")
    style.legend_below(figure, axes.get_legend_handles_labels(), 3)
    return figure


with style.figure_style():
    written = style.save_figure(draw_hand_written(), folder, "hand_written")
print("figure:", *written)
