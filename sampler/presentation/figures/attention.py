"""Attention that was sampled: mean matrices beside the prior, known heads, and single draws."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sampler.analysis.attention_found import AttentionFound
from sampler.analysis.results import RunResults
from sampler.attention.measures import aimed_at
from sampler.presentation import style
from sampler.presentation.figures.network import abbreviated

# Heads that have a row, and chains or repetitions whose single draws have a column.
MOST_HEADS, MOST_CHAINS = 6, 3
# Inches of a panel, and letters of a name that fit above it.
PANEL, LETTERS = 1.05, 13


def draw_attention(run: RunResults) -> Figure | None:
    """Draw a row for each learned head: prior mean, known head, posterior mean, single draws.

    Where all queries are known, keys and queries of one example; of a layer of which one query is
    read, keys of several examples. None where no attention was sampled.
    """
    found = run.attention
    if found is None:
        return None
    heads = [
        (layer, int(head))
        for layer in found.layers
        for head in np.flatnonzero(found.table[f"learned_{layer}"].values)
    ]
    shown = heads[:MOST_HEADS]
    order = np.argsort(-found.chain_weights, kind="stable")
    chains = order[:MOST_CHAINS].tolist()
    panels = [panels_of(found, layer, head, chains) for layer, head in shown]
    columns = max(map(len, panels))
    height = PANEL * len(shown) + 1.35 + 0.12 * len(shown)
    figure = style.new_figure(style.WIDTH, height, "Attention found", run.setting)
    axes = figure.subplots(len(shown), columns, squeeze=False)
    largest = max(float(np.abs(one).max()) for row in panels for _, one in row)
    norm = PowerNorm(0.5, 0.0, largest or 1.0)
    for row, (layer, head) in enumerate(shown):
        name = str(found.table[f"head_{layer}"].values[head])
        for ax, (title, matrix) in zip(axes[row], panels[row], strict=True):
            image = draw_panel(ax, matrix, norm)
            ax.set_title(title, fontsize=8.0)
            ax.set_visible(bool(title))
        one_query = found.table[f"attention_{layer}"].shape[-1] == 1
        label = f"layer {layer}\n{abbreviated(name, LETTERS)}"
        downwards, across = ("example", "key") if one_query else ("key", "query")
        axes[row, 0].set_ylabel(f"{label}\n{downwards}", fontsize=8.0)
        axes[row, 0].set_xlabel(across, fontsize=8.0)
    more = f"; {len(heads) - len(shown)} more heads" if len(heads) > len(shown) else ""
    style.colour_bar(figure, image, list(axes.flat), rf"attention $|\Omega|${more}", aspect=35.0)
    return figure


def panels_of(
    found: AttentionFound, layer: int, head: int, chains: list[int]
) -> list[tuple[str, np.ndarray]]:
    table = found.table
    prior = table[f"attention_{layer}_prior"].values[:, head]
    panels = [("prior mean", prior)]
    known = nearest_known(found, layer, head)
    if known is not None:
        place, name = known
        panels.append(
            (abbreviated(name, LETTERS), table[f"attention_{layer}_known"].values[:, place])
        )
    else:
        panels.append(("", np.zeros_like(prior)))
    panels.append(("posterior mean", found.matrices(layer).values[:, head]))
    word = "chain" if found.weights is None else "repetition"
    singles = found.singles(layer).values[:, -1, :, head]
    panels += [(f"{word} {chain}", singles[chain]) for chain in chains]
    return [(title, seen(matrices)) for title, matrices in panels]


def nearest_known(found: AttentionFound, layer: int, head: int) -> tuple[int, str] | None:
    """The known head at the smallest mean distance, of those that made the labels, if any did.

    One that made the labels goes to one head, as in matched order; the nearest where none is left.
    """
    table = found.table
    if f"known_{layer}" not in table.coords:
        return None
    names = [str(name) for name in table[f"known_{layer}"].values]
    generating = np.flatnonzero(table[f"generating_{layer}"].values)
    distances = table[f"distance_{layer}"].values[..., 1:].mean(axis=(0, 1))
    if generating.size:
        learned = np.flatnonzero(table[f"learned_{layer}"].values)
        alone = tuple((int(one),) for one in learned)
        _, targets = aimed_at(distances[:, generating], alone)
        if targets[head] >= 0:
            place = int(generating[targets[head]])
            return place, names[place]
    places = generating if generating.size else np.arange(len(names))
    nearest = int(places[np.argmin(distances[head, places])])
    return nearest, names[nearest]


def seen(matrices: np.ndarray) -> np.ndarray:
    """Keys down and queries of the first example; of one query, examples down and keys."""
    return np.abs(matrices[..., 0] if matrices.shape[-1] == 1 else matrices[0])


def draw_panel(ax: Axes, matrix: np.ndarray, norm: PowerNorm) -> AxesImage:
    """Draw a matrix without marks on its axes."""
    ax.set_xticks([])
    ax.set_yticks([])
    return ax.imshow(matrix, cmap="Greys", norm=norm, interpolation="nearest", aspect="auto")


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
