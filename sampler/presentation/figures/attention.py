"""Attention that was sampled: mean matrices and the prior's, and single draws."""

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from sampler.analysis.learned_heads import SampledHeads
from sampler.analysis.names import head_label
from sampler.analysis.results import RunResults
from sampler.presentation import style

# Heads that have a row, and chains or repetitions whose single draws have a column.
MOST_HEADS, MOST_CHAINS = 6, 3
PANEL = 1.05  # inches


def draw_attention(run: RunResults) -> Figure | None:
    """Draw a row for each learned head: prior mean, posterior mean, single draws.

    Keys and queries of one example if all queries are known; keys of several examples in layers
    with one query. None where no attention was sampled.
    """
    attention = run.attention
    if attention is None:
        return None
    shown = attention.heads[:MOST_HEADS]
    panels = [panels_of(attention, layer, head) for layer, head in shown]
    height = (PANEL + 0.25) * len(shown) + 1.35
    figure = style.new_figure(style.WIDTH, height, "Learned attention", run.setting)
    axes = figure.subplots(len(shown), len(panels[0]), squeeze=False)
    largest = max(float(matrix.max()) for row in panels for matrix in row.values())
    marks = {"cmap": "Greys", "norm": PowerNorm(0.5, 0.0, largest or 1.0), "aspect": "auto"}
    for row, (layer, head), of_head in zip(axes, shown, panels, strict=True):
        for ax, matrix in zip(row, of_head.values(), strict=True):
            image = ax.imshow(matrix, interpolation="nearest", **marks)
            ax.spines[:].set(visible=True, linewidth=0.5)
            ax.set(xticks=[], yticks=[])
        one_query = attention.table[f"attention_{layer}"].shape[-1] == 1
        downwards, across = ("example", "key") if one_query else ("key", "query")
        place = head_label(layer, head).replace(", ", "\n")
        row[0].set_ylabel(f"{place}\n{downwards}", fontsize=9.0)
        row[0].set_xlabel(across, fontsize=9.0)
    for ax, title in zip(axes[0], panels[0], strict=True):
        ax.set_title(title, fontsize=9.0)
    more = len(attention.heads) - len(shown)
    label = rf"attention $|\Omega|${f'; {more} more heads' if more else ''}"
    bar = style.colour_bar(figure, image, list(axes.flat), label, aspect=35.0)
    bar.outline.set(visible=True, linewidth=0.5)  # it begins with white
    return figure


def panels_of(attention: SampledHeads, layer: int, head: int) -> dict[str, np.ndarray]:
    """Title → matrix of every panel of the row of a head."""
    singles = attention.singles(layer).values[:, -1, :, head]
    word = "chain" if attention.weights is None else "repetition"
    heaviest = np.argsort(-attention.chain_weights, kind="stable")[:MOST_CHAINS]
    panels = {
        "prior mean": attention.table[f"attention_{layer}_prior"].values[:, head],
        "posterior mean": attention.matrices(layer).values[:, head],
        **{f"{word} {chain}": singles[chain] for chain in heaviest},
    }
    # Keys down and queries of the first example; of one query, examples down and keys.
    return {
        title: np.abs(every[..., 0] if every.shape[-1] == 1 else every[0])
        for title, every in panels.items()
    }


ATTENTION = style.FigureEntry(
    draw_attention,
    "What learned heads attend to, a row for each head in matched order: mean over the prior, mean "
    "over all draws, and a single draw of some chains or repetitions, beside which a mean over "
    "modes is seen to be no attention. Where one query is read, a line of a panel is "
    "one of several training examples, with the keys from left to right; otherwise keys are from "
    "top to bottom, and queries from left to right, of one example.",
    "A row of maps of attention for each learned head: prior mean, posterior mean, and single "
    "draws.",
    section="attention",
)
