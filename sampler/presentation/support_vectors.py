"""Attention as a regressor: keys on a line, the tube around the regressor, the values."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.presentation.style import BLUE, GREY, VERMILLION, new_figure
from theory.support_vectors import SupportVectorAttention

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

    figure = new_figure(7.6, 5.2)
    kind = f"{str(attention.similarity).capitalize()} attention"
    figure.suptitle(f"{kind} is a support-vector regressor" + (f", {setting}" if setting else ""))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 1.0])
    above.fill_between(
        line,
        fit - attention.tube,
        fit + attention.tube,
        color=BLUE,
        alpha=0.15,
        linewidth=0.0,
        label=rf"tube $f(x) \pm \varepsilon$, $\varepsilon$ = {attention.tube:g}",
    )
    above.plot(line, fit, color=BLUE, label=r"attention $f(x) = \sum_j A(x, k_j)\, v_j$")
    for shown, colour, face, label in (
        (~support, GREY, "white", "key inside the tube ($v_j = 0$)"),
        (support, VERMILLION, VERMILLION, r"support vector ($v_j \neq 0$)"),
    ):
        marks = {"color": colour, "markerfacecolor": face, "markersize": 6.0, "linestyle": "none"}
        above.plot(keys[shown], labels[shown], marker="o", label=label, **marks)
        below.vlines(keys[shown], 0.0, values[shown], color=colour)
        below.plot(keys[shown], values[shown], marker="o", **marks)
    above.set_ylabel("label $y_j$ at key $k_j$")
    below.axhline(0.0, color=GREY, linewidth=0.8, zorder=0)
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
