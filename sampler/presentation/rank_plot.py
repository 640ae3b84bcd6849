"""Ranks of the draws, chain by chain: flat where the chains agree."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binom, rankdata

from sampler.presentation.order_parameter_matrix import LARGEST_NUMBERED
from sampler.presentation.style import CHAINS, new_figure

BINS = 20


def rank_histogram(draws: np.ndarray, bins: int) -> np.ndarray:
    """Count, for each chain, its draws in equal bins of their rank among all draws.

    draws: [chain, draw]; returns [chain, bin]. Chains with one law give about equal counts.
    """
    ranks = rankdata(draws, method="average").reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, bins + 1)
    return np.stack([np.histogram(chain, edges)[0] for chain in ranks])


def draw_ranks(draws: np.ndarray, path_names: list[str], setting: str) -> Figure:
    """Draw the rank histograms of the elements of U_1.

    draws: [chain, draw, path, path_]. With few paths every distinct element has its panel, placed
    as in the matrix; with many only the diagonal is shown.
    """
    paths = len(path_names)
    every_element = paths <= LARGEST_NUMBERED
    columns = paths if every_element else int(np.ceil(np.sqrt(paths)))
    rows = paths if every_element else -(-paths // columns)
    figure = new_figure(max(1.75 * columns, 5.2) + 1.4, 1.45 * rows + 1.3)
    shown = "$U_1$" if every_element else "the diagonal of $U_1$"
    figure.suptitle(f"Ranks of {shown} by chain" + (f", {setting}" if setting else ""))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, ax in enumerate(grid.flat):
        row, column = divmod(place, columns) if every_element else (place, place)
        if row >= paths or column > row:
            ax.set_axis_off()
            continue
        _draw_element(ax, draws[:, :, row, column])
        _name_element(ax, path_names[row], path_names[column])
    # With three paths or more the corner of the matrix has no panels.
    _explain(figure, grid[0, 0], grid[0, -1] if every_element and paths >= 3 else None)
    return figure


def draw_predictor_ranks(draws: np.ndarray, names: list[str], setting: str) -> Figure:
    """Draw the rank histograms of f at some test examples: draws [chain, draw, example]."""
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(max(1.75 * columns, 5.2) + 1.4, 1.45 * rows + 1.3)
    figure.suptitle("Ranks of $f(x)$ by chain" + (f", {setting}" if setting else ""))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, ax in enumerate(grid.flat):
        if place >= len(names):
            ax.set_axis_off()
            continue
        _draw_element(ax, draws[:, :, place])
        ax.set_title(names[place], fontsize=8.0)
    _explain(figure, grid[0, 0])
    return figure


def _explain(figure: Figure, first: Axes, corner: Axes | None = None) -> None:
    """Range, legend and labels of all panels, whose axes are shared: once they have their data."""
    first.set_ylim(bottom=0.0)
    entries = first.get_legend_handles_labels()
    if corner is None:
        figure.legend(*entries, loc="outside right upper")
    else:
        corner.legend(*entries, loc="upper right")
    figure.supxlabel("rank among all draws (fraction)", fontsize=10.0)
    figure.supylabel("draws in bin / expected", fontsize=10.0)


def _draw_element(ax: Axes, draws: np.ndarray) -> None:
    chains, length = draws.shape
    # At least ten draws expected in a bin, so that bins are not all noise.
    bins = int(np.clip(length // 10, 1, BINS))
    counts = rank_histogram(draws, bins)
    expected = length / bins
    edges = np.linspace(0.0, 1.0, bins + 1)
    low, high = binom.ppf([0.025, 0.975], length, 1.0 / bins) / expected
    ax.axhspan(low, high, color="#DDDDDD", zorder=0, label="95 % range of\nindependent draws")
    for chain in range(chains):
        heights = counts[chain] / expected
        colour = CHAINS[chain % len(CHAINS)]
        ax.stairs(
            heights, edges, baseline=None, color=colour, linewidth=1.0, label=f"chain {chain}"
        )
    ax.set(xlim=(0.0, 1.0), xticks=(0.0, 0.5, 1.0))


def _name_element(ax: Axes, row_name: str, column_name: str) -> None:
    name = row_name if row_name == column_name else f"{row_name},\n{column_name}"
    ax.set_title(name, fontsize=8.0)


def draw_series_ranks(series: Mapping[str, np.ndarray], setting: str) -> Figure:
    """Draw the rank histograms of single numbers, label → [chain, draw], side by side."""
    figure = new_figure(2.4 * len(series) + 1.8, 3.0)
    figure.suptitle("Ranks in function space by chain" + (f", {setting}" if setting else ""))
    axes = figure.subplots(1, len(series), squeeze=False, sharex=True, sharey=True)[0]
    for ax, (label, values) in zip(axes, series.items(), strict=True):
        _draw_element(ax, values)
        ax.set_title(label, fontsize=9.0)
    axes[0].set_ylim(bottom=0.0)
    axes[0].set_ylabel("draws in bin / expected")
    figure.supxlabel("rank among all draws (fraction)", fontsize=10.0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
