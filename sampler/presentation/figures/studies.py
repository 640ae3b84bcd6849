"""Figures of studies: attention variants, rank collapse, attention as support-vector regression."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style
from sampler.recipes.settings import setting_text
from theory.studies.support_vectors import SupportVectorAttention

FORM = "attention.form"
LONGEST_LABEL, SHORTEST_WORD = 44, 8
# Column of the table, label, colour and marker of what a panel shows.
PANELS = {
    "alignment of path kernels": [("path_alignment", None, style.GREY, "o")],
    "off-diagonal share of $U_1$": [("off_diagonal_share", None, style.GREY, "o")],
    "accuracy": [
        ("accuracy_theory", style.LEADING, style.THEORY, "o"),
        ("accuracy_sampled", style.EXACT, style.SAMPLED, "D"),
        ("accuracy_gp", style.LIMIT, style.GAUSSIAN_PROCESS, "s"),
    ],
}
COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY_BLUE)
MARKERS = "os^Dv*"
# Lower values leave the axis: with LayerNorm they are close to what rounding leaves of equal
# tokens, and without it they fall by more orders of magnitude than can be shown beside the others.
LOWEST = 1e-8
# How far beyond the keys a regressor is drawn, as a share of their range.
MARGIN = 0.05


def draw_variant_comparison(sweep: SweepResults) -> Figure | None:
    """Draw the averages over seeds of attention variants, bars ±1 standard error.

    None unless a sweep over seeds leaves several attention variants and nothing else.
    """
    rows, key = sweep.seed_averages, f"{FORM}="
    if rows is None or len(rows) < 2 or not rows["settings"].str.startswith(key).all():
        return None
    names = [variant_name(text.removeprefix(key)) for text in rows["settings"]]
    if None in names:
        return None
    seeds = "/".join(map(str, sorted({*rows["points"]})))
    title = f"Attention variants: mean ± standard error over {seeds} seeds"
    height = 1.6 + len(PANELS) * (0.7 + 0.26 * len(rows))
    figure = style.new_figure(style.WIDTH, height, title)
    panels = figure.subplots(len(PANELS), 1, sharey=True)
    places = np.arange(len(rows))
    for ax, (title, shown) in zip(panels, PANELS.items(), strict=True):
        for column, label, colour, marker in shown:
            mean, error = (
                np.array(rows.get(name, [np.nan] * len(rows)))
                for name in (column, f"{column}_error")
            )
            if np.isfinite(mean).any():
                marks = {"fmt": marker, "color": colour, "markersize": 5.0, "capsize": 2.5}
                ax.errorbar(mean, places, xerr=np.nan_to_num(error), label=label, **marks)
        ax.set_xlabel(title)
        ax.grid(axis="both", color=style.GRID, linewidth=0.8)
        # Shares of 1: a tenth of a point must not look like all.
        ax.set_xlim(style.span_at_least(ax.get_xlim(), 0.01 * style.LEAST_POINTS, 1.0))
        ax.set_yticks(places, names)
    panels[0].invert_yaxis()
    style.legend_below(figure, panels[-1].get_legend_handles_labels(), 3)
    return figure


def variant_name(text: str) -> str | None:
    """Return a short name of an attention variant as a recipe writes it; None for another text."""
    try:
        return name_of_form(tomllib.loads(f"form = {text}")["form"])
    except tomllib.TOMLDecodeError:
        return None


def name_of_form(form: Any) -> str | None:
    """Return a short name of the value of `attention.form`: kinds of variants and their settings.

    None for a value of another form.
    """
    variants = _flattened(form)
    if not variants or not all(isinstance(one, dict) and "kind" in one for one in variants):
        return None
    values: dict[str, dict[str, None]] = {"kind": {}}
    for one in variants:
        for key, value in one.items():
            values.setdefault(key, {})[str(value).replace("_", " ")] = None
    kinds = values.pop("kind")
    return "; ".join([" and ".join(kinds), *(f"{key} {', '.join(v)}" for key, v in values.items())])


def short_label(settings: Mapping[str, Any]) -> str:
    """Return swept keys and their values at one point, for an axis: variants by name.

    Where that is too long it is the longest of them that is cut: points still differ by the others.
    """
    words = [
        (key == FORM and name_of_form(value)) or setting_text(key.rpartition(".")[2], value)
        for key, value in settings.items()
    ]
    excess = len(", ".join(words)) - LONGEST_LABEL
    if excess > 0:
        longest = max(words, key=len)
        kept = max(len(longest) - excess - 1, SHORTEST_WORD)
        words[words.index(longest)] = longest[:kept].rstrip(" ,;") + "…"
    return ", ".join(words)


def _flattened(variants: Any) -> list:
    """Return variants out of lists by layer and by head."""
    if isinstance(variants, list | tuple):
        return [one for inner in variants for one in _flattened(inner)]
    return [variants]


@dataclass(frozen=True)
class CollapseCurve:
    """Distances μ(X_l) of one mask, [seed, depth] from depth 0 on, without and with LayerNorm."""

    label: str
    plain: np.ndarray
    normalised: np.ndarray


def draw_rank_collapse(curves: list[CollapseCurve], setting: str = "") -> Figure:
    """Draw μ(X_l)/μ(X_0) against depth l, one panel without and one with LayerNorm.

    Lines are geometric means over seeds, bands one standard deviation of the logarithm.
    """
    title = "Rank collapse: distance of the tokens from their mean"
    figure = style.new_figure(style.WIDTH, 4.6, title, setting)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, title in zip(panels, ("attention only", "LayerNorm after each layer"), strict=True):
        ax.set(title=title, xlabel="layers $l$", yscale="log")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    for place, curve in enumerate(curves):
        marks = {"color": COLOURS[place % 6], "marker": MARKERS[place % 6]}
        _draw_curve(panels[0], curve.plain, curve.label, marks)
        _draw_curve(panels[1], curve.normalised, None, marks)
    panels[0].set_ylim(LOWEST, 10.0)
    panels[0].set_ylabel(r"$\mu(X_l)\,/\,\mu(X_0)$,  $\mu = \| X - 1\bar{x}^T \|_F$")
    seeds = len(curves[0].plain)
    title = f"keys $j$ that query $i$ sees;\ngeometric mean ± standard deviation, {seeds} seeds"
    style.legend_below(figure, columns=min(3, len(curves)), title=title, title_fontsize=9.0)
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

    title = f"{str(attention.similarity).capitalize()} attention is a support-vector regressor"
    figure = style.new_figure(style.WIDTH, 5.4, title, setting)
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
    style.legend_below(figure, above.get_legend_handles_labels())
    return figure


def _scale_by_decades(ax: Axes, sizes: np.ndarray) -> None:
    """Scale values whose sizes differ by orders of magnitude, as normalisers along a line do."""
    smallest, largest = float(sizes.min()), float(sizes.max())
    ax.set_yscale("symlog", linthresh=smallest)
    ax.set_ylim(-3.0 * largest, 3.0 * largest)
    decades = 10.0 ** np.arange(np.ceil(np.log10(smallest)), np.floor(np.log10(largest)) + 1.0)
    ax.set_yticks([*-decades[::-1], 0.0, *decades])
    ax.minorticks_off()


VARIANT_COMPARISON = style.FigureEntry(
    draw_variant_comparison,
    "Attention variants, means over seeds with their standard errors. Above how alike "
    "their paths are (smaller: less redundant), below how well they predict.",
    "Attention variants, one per row: alignment of their path kernels, off-diagonal share of "
    "U₁, and accuracy of theory, exact posterior and infinite width, with error bars.",
    of=("sweep",),
)
