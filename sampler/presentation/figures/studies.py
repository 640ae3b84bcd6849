"""Figures of the studies: rank collapse, attention as support-vector regression."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.presentation import style
from theory.studies.support_vectors import SupportVectorAttention

COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY_BLUE)
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
    figure = style.new_figure(style.WIDTH, 4.6)
    title = "Rank collapse: distance of the tokens from their mean"
    figure.suptitle(style.title_of(title, setting))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, title in zip(panels, ("attention only", "LayerNorm after each layer"), strict=True):
        ax.set(title=title, xlabel="layers $l$", yscale="log")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    for place, curve in enumerate(curves):
        marks = {"color": COLOURS[place % 6], "marker": MARKERS[place % 6]}
        _draw_curve(panels[0], curve.plain, curve.label, marks)
        _draw_curve(panels[1], curve.normalised, None, marks)
    panels[0].set_ylim(LOWEST, 10.0)
    seeds = len(curves[0].plain)
    panels[0].set_ylabel(r"$\mu(X_l)\,/\,\mu(X_0)$,  $\mu = \| X - 1\bar{x}^T \|_F$")
    figure.legend(
        loc="outside lower center",
        title=f"keys $j$ that query $i$ sees;\ngeometric mean ± standard deviation, {seeds} seeds",
        title_fontsize=9.0,
        ncols=min(3, len(curves)),
    )
    return figure


def _draw_curve(ax: Axes, distances: np.ndarray, label: str | None, marks: dict) -> None:
    # A distance of exactly 0 has no logarithm; anything that far below the axis will do.
    share = distances / distances[:, :1]
    logarithms = np.log(np.maximum(share, np.finfo(float).tiny))
    centre, spread = logarithms.mean(axis=0), logarithms.std(axis=0)
    depth = np.arange(len(centre))
    low, high = np.exp(np.maximum(centre - spread, -700.0)), np.exp(centre + spread)
    ax.fill_between(depth, low, high, color=marks["color"], alpha=0.2, linewidth=0.0)
    every = max(1, len(depth) // 12)
    ax.plot(depth, np.exp(centre), markersize=4.0, markevery=every, label=label, **marks)


# How far beyond the keys the regressor is drawn, as a share of their range.
MARGIN = 0.05


def draw_support_vectors(attention: SupportVectorAttention, setting: str = "") -> Figure:
    """Draw the first channel of an attention over keys with one channel.

    Above the labels, the regressor and its tube; below the values, which are 0 for every key inside
    the tube. Linear attention of one channel is a constant: φ(x) cancels. Raises ValueError for
    keys that are not on a line.
    """
    channels = attention.keys.shape[1]
    if channels != 1:
        raise ValueError(f"keys: {channels} channels; must be 1 to be drawn along a line")
    keys, labels, values = attention.keys[:, 0], attention.labels[:, 0], attention.values[:, 0]
    margin = MARGIN * np.ptp(keys)
    line = np.linspace(keys.min() - margin, keys.max() + margin, 500)
    fit = attention.attend(line[:, None])[:, 0]
    support = attention.coefficients[:, 0] != 0.0

    figure = style.new_figure(style.WIDTH, 5.4)
    kind = f"{str(attention.similarity).capitalize()} attention"
    figure.suptitle(style.title_of(f"{kind} is a support-vector regressor", setting))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 1.0])
    tube = rf"tube $f(x) \pm \varepsilon$, $\varepsilon$ = {attention.tube:g}"
    marks = {"color": style.BLUE, "alpha": 0.15, "linewidth": 0.0}
    above.fill_between(line, fit - attention.tube, fit + attention.tube, label=tube, **marks)
    above.plot(line, fit, color=style.BLUE, label=r"attention $f(x) = \sum_j A(x, k_j)\, v_j$")
    for shown, colour, face, label in (
        (~support, style.GREY, "white", "key inside the tube ($v_j = 0$)"),
        (support, style.VERMILLION, style.VERMILLION, r"support vector ($v_j \neq 0$)"),
    ):
        marks = {"color": colour, "markerfacecolor": face, "markersize": 6.0, "linestyle": "none"}
        above.plot(keys[shown], labels[shown], marker="o", label=label, **marks)
        below.vlines(keys[shown], 0.0, values[shown], color=colour)
        below.plot(keys[shown], values[shown], marker="o", **marks)
    above.set_ylabel("label $y_j$ at key $k_j$")
    below.axhline(0.0, color=style.GREY, linewidth=0.8, zorder=0)
    if support.any():
        _scale_by_decades(below, np.abs(values[support]))
    below.set_ylabel("value $v_j$")
    below.set_xlabel("query $x$, key $k_j$")
    figure.align_ylabels()
    figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _scale_by_decades(ax: Axes, sizes: np.ndarray) -> None:
    """The normalisers, and with them the values, differ by orders of magnitude along the line."""
    smallest, largest = float(sizes.min()), float(sizes.max())
    ax.set_yscale("symlog", linthresh=smallest)
    ax.set_ylim(-3.0 * largest, 3.0 * largest)
    decades = 10.0 ** np.arange(np.ceil(np.log10(smallest)), np.floor(np.log10(largest)) + 1.0)
    ax.set_yticks([*-decades[::-1], 0.0, *decades])
    ax.minorticks_off()
