"""Chains as they ran, and pairs of elements of U_1."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.analysis.labels import pair_name
from sampler.analysis.results import RunResults
from sampler.presentation import style

MOST_POINTS = 2000  # of a chain or of a cloud; of more every so many are drawn
MOST_ELEMENTS = 4  # beside each other
BINS = 30
SHOWN = (0.25, 99.75)  # per cent of the draws; the rest would take most of the axis


def draw_traces(series: Mapping[str, np.ndarray], setting: str) -> Figure:
    """Draw each series, label → [chain, draw], draw by draw, and its histogram, chain by chain."""
    figure = style.new_figure(style.WIDTH, 1.6 * len(series) + 1.3)
    figure.suptitle(style.title_of("Traces of the chains", setting))
    axes = figure.subplots(
        len(series), 2, sharex="col", sharey="row", squeeze=False, width_ratios=(3.2, 1.0)
    )
    for (trace, histogram), (label, values) in zip(axes, series.items(), strict=True):
        _draw_trace(trace, histogram, values)
        trace.set_ylabel(label)
        trace.yaxis.set_major_locator(MaxNLocator(4))
    axes[-1, 0].set_xlabel("draw")
    axes[-1, 1].set_xlabel("density")
    for ax in axes[:, 1]:
        ax.set_xticks([])
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels(), 4)
    return figure


def _draw_trace(trace: Axes, histogram: Axes, values: np.ndarray) -> None:
    every = -(-values.shape[1] // MOST_POINTS)
    edges = np.histogram_bin_edges(values, BINS)
    for chain, one in enumerate(values):
        colour = style.CHAINS[chain % len(style.CHAINS)]
        draws = np.arange(0, len(one), every)
        (line,) = trace.plot(
            draws, one[::every], color=colour, linewidth=0.5, alpha=0.7, label=f"chain {chain}"
        )
        line.set_rasterized(True)
        heights, _ = np.histogram(one, edges, density=True)
        # Each chain as high as the others: the scale of a density says nothing here.
        shown = heights / max(heights.max(), np.finfo(float).tiny)
        outline = {"baseline": None, "orientation": "horizontal", "linewidth": 1.0}
        histogram.stairs(shown, edges, color=colour, **outline)


def draw_pairs(
    draws: np.ndarray,
    names: Sequence[str],
    theories: Sequence[tuple[str, np.ndarray, str]],
    setting: str,
) -> Figure:
    """Draw elements of U_1 against each other, [chain, draw, element], and their histograms.

    theories: name, [element] and colour of what is marked in every panel.
    """
    count = len(names)
    flat = draws.reshape(-1, count)
    points = flat[:: -(-len(flat) // MOST_POINTS)]
    side = 1.3 if count > 2 else 2.2
    figure = style.new_figure(style.WIDTH if count > 2 else 4.6, side * count + 1.3)
    figure.suptitle(style.title_of("Elements of $U_1$ in pairs", setting))
    axes = figure.subplots(count, count, squeeze=False, sharex="col")
    low, high = np.percentile(flat, SHOWN, axis=0)
    for _, values, _ in theories:
        low, high = np.minimum(low, values), np.maximum(high, values)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    for row, column in np.ndindex(count, count):
        ax = axes[row, column]
        if column > row:
            ax.set_axis_off()
            continue
        if column == row:
            heights, edges = np.histogram(flat[:, row], BINS, (low[row], high[row]))
            ax.stairs(heights, edges, color=style.SAMPLED, fill=True, alpha=0.4)
            ax.set_yticks([])
        else:
            (cloud,) = ax.plot(
                points[:, column], points[:, row], ".", color=style.SAMPLED, markersize=1.5,
                alpha=0.3,
            )  # fmt: skip
            cloud.set_rasterized(True)
            ax.set_ylim(low[row], high[row])
        ax.set_xlim(low[column], high[column])
        for label, values, colour in theories:
            if column == row:
                ax.axvline(values[row], color=colour, linewidth=1.2, label=label)
            else:
                ax.plot(values[column], values[row], "+", color=colour, markersize=9, mew=1.8)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        if column < row:
            ax.yaxis.set_major_locator(MaxNLocator(3))
        if row == count - 1:
            ax.set_xlabel(names[column].replace(" × ", " ×\n"), fontsize=9.0)
        if column == 0:
            ax.set_ylabel(names[row].replace(" × ", " ×\n"), fontsize=9.0)
    entries = axes[0, 0].get_legend_handles_labels()
    if entries[0]:
        style.legend_below(figure, entries, 3)
    return figure


def traces_of_run(run: RunResults) -> Figure | None:
    """Of the slowest numbers; None where none can be judged."""
    return draw_traces(run.slowest_series, run.setting) if run.slowest_series else None


def pairs_of_run(run: RunResults) -> Figure | None:
    """Of a few elements of U_1, where their draws were kept and move."""
    draws = run.order_parameter_draws
    if draws is None or draws.shape[-1] < 2 or not run.slowest_series:
        return None
    places = _elements(draws.values)
    paths = [str(name) for name in draws["path"].values]
    known = run.order_parameters_of_theories
    colours = style.theory_colours(known)
    theories = [
        (name, np.array([values[place] for place in places]), colours[name])
        for name, values in known.items()
    ]
    shown = np.stack([draws.values[(..., *place)] for place in places], axis=-1)
    return draw_pairs(shown, [pair_name(paths, *place) for place in places], theories, run.setting)


def _elements(draws: np.ndarray) -> list[tuple[int, int]]:
    """All elements of a matrix of two paths; of a larger one the largest of the diagonal."""
    paths = draws.shape[-1]
    if paths == 2:
        return [(0, 0), (0, 1), (1, 1)]
    size = np.abs(draws.mean(axis=(0, 1))).diagonal()
    return [(int(i), int(i)) for i in np.sort(np.argsort(-size, kind="stable")[:MOST_ELEMENTS])]


TRACES = style.FigureEntry(
    traces_of_run,
    "The slowest numbers draw by draw, and their histograms chain by chain. Chains that mix look "
    "like noise and lie on top of each other.",
    "Lines: log posterior, predictor and U₁ against the number of the draw, one colour per chain, "
    "with histograms beside.",
    section="diagnostics",
)
PAIRS = style.FigureEntry(
    pairs_of_run,
    "Draws of elements of U₁ against each other, their histograms on the diagonal, and where the "
    "theories are: they predict the mean of the draws.",
    "Scatter plots of draws of elements of U₁ in pairs, with the predictions of the theories.",
    section="diagnostics",
)
