"""Rank collapse: how far apart the tokens stay with depth, mask by mask."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.presentation.style import BLUE, GREEN, ORANGE, PURPLE, SKY_BLUE, VERMILLION, new_figure

COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY_BLUE)
MARKERS = "os^Dv*"
# Lower values leave the axis: with LayerNorm they are close to what rounding leaves of equal
# tokens, and without it they fall by more orders of magnitude than can be shown beside the others.
LOWEST = 1e-8


@dataclass(frozen=True)
class CollapseCurve:
    """μ(X_l) of one mask, [seed, depth] from depth 0 on, without and with LayerNorm."""

    label: str
    plain: np.ndarray
    normalised: np.ndarray


def draw_rank_collapse(curves: list[CollapseCurve], setting: str = "") -> Figure:
    """Draw μ(X_l)/μ(X_0) against depth l, one panel without and one with LayerNorm.

    Lines are geometric means over seeds, bands one standard deviation of the logarithm.
    """
    figure = new_figure(8.4, 4.6)
    title = "Rank collapse: distance of the tokens from their mean"
    figure.suptitle(title + (f", {setting}" if setting else ""))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, title in zip(panels, ("attention only", "LayerNorm after each layer"), strict=True):
        ax.set(title=title, xlabel="layers $l$", yscale="log")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    for place, curve in enumerate(curves):
        style = {"color": COLOURS[place % 6], "marker": MARKERS[place % 6]}
        _draw_curve(panels[0], curve.plain, curve.label, style)
        _draw_curve(panels[1], curve.normalised, None, style)
    panels[0].set_ylim(LOWEST, 10.0)
    seeds = len(curves[0].plain)
    panels[0].set_ylabel(r"$\mu(X_l)\,/\,\mu(X_0)$,  $\mu = \| X - 1\bar{x}^T \|_F$")
    figure.legend(
        loc="outside lower center",
        title=f"keys $j$ that query $i$ sees; geometric mean ± standard deviation, {seeds} seeds",
        title_fontsize=9.0,
        ncols=len(curves),
    )
    return figure


def _draw_curve(ax: Axes, distances: np.ndarray, label: str | None, style: dict) -> None:
    # A distance of exactly 0 has no logarithm; anything that far below the axis will do.
    share = distances / distances[:, :1]
    logarithms = np.log(np.maximum(share, np.finfo(float).tiny))
    centre, spread = logarithms.mean(axis=0), logarithms.std(axis=0)
    depth = np.arange(len(centre))
    low, high = np.exp(np.maximum(centre - spread, -700.0)), np.exp(centre + spread)
    ax.fill_between(depth, low, high, color=style["color"], alpha=0.2, linewidth=0.0)
    ax.plot(depth, np.exp(centre), markersize=4.0, label=label, **style)
