"""Attention that was sampled: mean matrices beside the prior, known heads, and single draws."""

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from sampler.analysis.estimates import centre_of
from sampler.analysis.results import RunResults
from sampler.analysis.sampled_heads import SampledHeads
from sampler.attention.similarity import aimed_at
from sampler.presentation import style

# Heads that have a row, and chains or repetitions whose single draws have a column.
MOST_HEADS, MOST_CHAINS = 6, 3
# Inches of a panel, and letters of a name that fit above it.
PANEL, LETTERS = 1.05, 13


def draw_attention(run: RunResults) -> Figure | None:
    """Draw a row for each learned head: prior mean, known head, posterior mean, single draws.

    Where all queries are known, keys and queries of one example; of a layer of which one query is
    read, keys of several examples. None where no attention was sampled.
    """
    attention = run.attention
    if attention is None:
        return None
    heads = [
        (layer, int(head))
        for layer in attention.layers
        for head in np.flatnonzero(attention.table[f"learned_{layer}"].values)
    ]
    shown = heads[:MOST_HEADS]
    panels = [panels_of(attention, layer, head) for layer, head in shown]
    height = (PANEL + 0.12) * len(shown) + 1.35
    figure = style.new_figure(style.WIDTH, height, "Learned attention", run.setting)
    axes = figure.subplots(len(shown), len(panels[0]), squeeze=False)
    largest = max(float(matrix.max()) for row in panels for _, matrix in row)
    marks = {"cmap": "Greys", "norm": PowerNorm(0.5, 0.0, largest or 1.0), "aspect": "auto"}
    for row, (layer, head) in enumerate(shown):
        for ax, (title, matrix) in zip(axes[row], panels[row], strict=True):
            image = ax.imshow(matrix, interpolation="nearest", **marks)
            ax.spines[:].set(visible=True, linewidth=0.5)
            ax.set(xticks=[], yticks=[], visible=bool(title))
            ax.set_title(title, fontsize=9.0)
        one_query = attention.table[f"attention_{layer}"].shape[-1] == 1
        downwards, across = ("example", "key") if one_query else ("key", "query")
        name = abbreviated(str(attention.table[f"head_{layer}"].values[head]))
        axes[row, 0].set_ylabel(f"layer {layer}\n{name}\n{downwards}", fontsize=9.0)
        axes[row, 0].set_xlabel(across, fontsize=9.0)
    more = f"; {len(heads) - len(shown)} more heads" if len(heads) > len(shown) else ""
    style.colour_bar(figure, image, list(axes.flat), rf"attention $|\Omega|${more}", aspect=35.0)
    return figure


def abbreviated(name: str) -> str:
    """Cut a name to the letters that fit above a panel."""
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def panels_of(attention: SampledHeads, layer: int, head: int) -> list[tuple[str, np.ndarray]]:
    """Titles and matrices of the row of a head; an empty title leaves its place empty."""
    table, singles = attention.table, attention.singles(layer).values[:, -1, :, head]
    prior = table[f"attention_{layer}_prior"].values[:, head]
    known, title = nearest_known(attention, layer, head), ""
    if known is not None:
        title = abbreviated(str(table[f"known_{layer}"].values[known]))
    of_known = prior if known is None else table[f"attention_{layer}_known"].values[:, known]
    word = "chain" if attention.weights is None else "repetition"
    heaviest = np.argsort(-attention.chain_weights, kind="stable")[:MOST_CHAINS]
    panels = [
        ("prior mean", prior),
        (title, of_known),
        ("posterior mean", attention.matrices(layer).values[:, head]),
        *((f"{word} {chain}", singles[chain]) for chain in heaviest),
    ]
    # Keys down and queries of the first example; of one query, examples down and keys.
    return [
        (title, np.abs(every[..., 0] if every.shape[-1] == 1 else every[0]))
        for title, every in panels
    ]


def nearest_known(attention: SampledHeads, layer: int, head: int) -> int | None:
    """The known head at the smallest mean distance, of those that made the labels, if any did.

    One that made the labels goes to one head, as in matched order; the nearest where none is left.
    """
    table = attention.table
    if f"known_{layer}" not in table.coords:
        return None
    generating = np.flatnonzero(table[f"generating_{layer}"].values)
    distances = centre_of(table[f"distance_{layer}"].values[..., 1:], attention.weights)
    if generating.size:
        learned = np.flatnonzero(table[f"learned_{layer}"].values)
        _, targets = aimed_at(distances[:, generating], tuple((int(head),) for head in learned))
        if targets[head] >= 0:
            return int(generating[targets[head]])
    places = generating if generating.size else np.arange(table.sizes[f"known_{layer}"])
    return int(places[np.argmin(distances[head, places])])


ATTENTION = style.FigureEntry(
    draw_attention,
    "What learned heads attend to, a row for each head in matched order: mean over the prior, the "
    "known head that is nearest to it (one that made the labels, where there are such), mean over "
    "all draws, and a single draw of some chains or repetitions, beside which a mean over modes is "
    "seen to be no attention. Where one query is read, a line of a panel is "
    "one of several training examples, with the keys from left to right; otherwise keys are from "
    "top to bottom, and queries from left to right, of one example.",
    "A row of maps of attention for each learned head: prior mean, nearest known head, posterior "
    "mean, and single draws.",
    section="attention",
)
