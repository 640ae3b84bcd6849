"""Heads whose use is known: a transformer written by hand.

Its weights are set, not trained, so that it is known what each head is for. A sequence shows
symbols that all differ; its last token repeats one of them, and the label is what the symbol
after it stands for. Layer 1 has a head that copies the symbol of the token before, layer 2 one
that looks for the token whose copied symbol is that of the query: an induction head. Beside each
of them stand two idle heads: one attends at random and writes nothing, one attends to all tokens
equally and writes where nobody reads. Which numbers put the idle heads last?

    python -m runs.studies.hand_written_heads.study     minutes
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import sampler
from runs.studies.study import Study
from runs.studies.tables import table
from runs.studies.which_heads.mathematics import NAMES, numbers_of_theory
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
USEFUL_HEADS = np.array([head == USEFUL for _ in range(LAYERS) for head in range(HEADS)])
LOST = ("zero_accuracy", "mean_accuracy")


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


# --- what removal costs, and which numbers tell so


def measure(seed: int, folder: Path) -> dict:
    """Accuracy of a model, what it loses without each head, and the numbers of its heads."""
    torch.manual_seed(seed)
    model = HandWritten(seed).eval()
    counts = {"train": LEARNED, "validation": UNSEEN, "test": UNSEEN}
    splits = {name: induction(count) for name, count in counts.items()}
    file = sampler.export_attention(folder / "attention.npz", model, **splits, residual=True)
    recipe = sampler.Recipe(
        task=sampler.Arrays(file), network={"widths": 20}, posterior={"temperature": 0.1}
    )
    heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    numbers = numbers_of_theory(recipe, heads, again=False)
    del splits["train"]
    ablated = sampler.ablate_heads(model, **splits, progress=False)
    costs, accuracy = ablated.to_dataframe(), ablated.result.attrs["whole_accuracy"]
    lost = {name: costs[name].to_numpy() for name in LOST}
    # By construction nothing changes without an idle head …
    assert not any(values[~USEFUL_HEADS].any() for values in lost.values())
    # … and without the induction head the answer is chance, within four binomial errors.
    without = accuracy - lost["mean_accuracy"][USEFUL_HEADS][1]
    assert abs(without - 0.5) < 4.0 * 0.5 / UNSEEN**0.5, without
    return {
        "accuracy": accuracy,
        "lost": {name: values.tolist() for name, values in lost.items()},
        "numbers": costs[["taylor", "magnitude"]].to_dict("list") | numbers.to_dict("list"),
    }


def summary(models: list[dict]) -> dict:
    """In how many models each useful head has a number above all idle heads, and mean costs."""
    above = {}
    for key in models[0]["numbers"]:
        values = np.array([one["numbers"][key] for one in models])
        best = values[:, USEFUL_HEADS] > values[:, ~USEFUL_HEADS].max(axis=1)[:, None]
        previous, induced = best.sum(axis=0)
        above[key] = {"previous": previous, "induction": induced, "both": best.all(axis=1).sum()}
    costs = {name: np.mean([one["lost"][name] for one in models], axis=0) for name in LOST}
    lost = {}
    for name, values in costs.items():
        previous, induced = values[USEFUL_HEADS]
        idle = np.abs(values[~USEFUL_HEADS]).max()
        lost[name] = {"previous": previous, "induction": induced, "idle": idle}
    accuracy = np.mean([one["accuracy"] for one in models])
    return {"seeds": len(models), "accuracy": accuracy, "above": above, "lost": lost}


LABELS = {
    "taylor": "Taylor importance",
    "score": "theory: head score",
    "zeroed": "theory: rows and columns of U₁ zeroed",
    "removed": "theory: head removed after learning",
    "magnitude": "magnitude of the output weights",
}
SHOWN = ("score", "zeroed", "removed", "taylor", "magnitude")
KINDS = {
    "previous token": ([USEFUL], style.THEORY, "o"),
    "induction": ([HEADS + USEFUL], style.ORANGE, "s"),
    "idle": (np.flatnonzero(~USEFUL_HEADS), style.GREY, "x"),
}


def draw(models: list[dict]) -> Figure:
    """Draw numbers of heads, relative to the largest of a model: a mark for each seed."""
    figure = style.new_figure(style.WIDTH, 0.42 * len(SHOWN) + 1.8)
    figure.suptitle("Two useful and four idle heads: which number tells them apart?")
    axes = figure.subplots()
    for row, key in enumerate(SHOWN):
        values = np.array([one["numbers"][key] for one in models])
        values = values / np.abs(values).max(axis=1, keepdims=True)
        for shift, (name, (places, colour, mark)) in zip(
            (-0.2, 0.0, 0.2), KINDS.items(), strict=True
        ):
            shown = values[:, places].ravel()
            label = name if row == 0 else None
            axes.plot(shown, np.full(shown.size, row + shift), mark, color=colour, label=label)
    axes.set_yticks(range(len(SHOWN)), [NAMES[key] for key in SHOWN])
    axes.invert_yaxis()
    axes.axvline(0.0, color=style.GREY, linewidth=0.8)
    axes.set_xlabel("relative to the largest of a model")
    style.legend_below(figure, axes.get_legend_handles_labels(), 3)
    return figure


STUDY = Study(
    __file__,
    points=lambda small, folder: {
        str(seed): (measure, seed, folder) for seed in range(1 if small else 10)
    },
    numbers=lambda rows: summary(list(rows.values())),
    tables=lambda numbers: {
        "numbers": table(
            "number",
            {label: numbers["above"][key] for key, label in LABELS.items()},
            {"head of the token before": ("previous", 0), "induction head": ("induction", 0)},
        )
    },
    figures=lambda rows, numbers: {"figure": draw(list(rows.values()))},
)

if __name__ == "__main__":
    STUDY.run()
