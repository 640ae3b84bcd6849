"""Predictions: theory against draws, and draws alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sampler.analysis.results import RunResults
from sampler.presentation import style
from theory.observables import labels_are_classes

LARGEST_VECTOR_DRAWING = 5000  # points; beyond this the SVG holds them as one picture
POINTS = {"fmt": "o", "markersize": 2.5, "capsize": 0.0, "markeredgewidth": 0.0}


@dataclass(frozen=True)
class ComparedPredictor:
    """One quantity of the predictor over the test set; theory, sampled, mcse: [test_example].

    next_order: the theory to next order, None where it is not known. own: the user's own theories.
    """

    symbol: str
    theory: np.ndarray
    sampled: np.ndarray
    mcse: np.ndarray
    next_order: np.ndarray | None = None
    own: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def theories(self) -> list[tuple[str, np.ndarray, str]]:
        """Name, values and colour of every theory."""
        found = [(style.LEADING, self.theory, style.THEORY)]
        if self.next_order is not None:
            found.append((style.NEXT, self.next_order, style.NEXT_ORDER))
        own = enumerate(self.own.items())
        return found + [(name, one, style.own_colour(place)) for place, (name, one) in own]


def draw_predictor(quantities: list[ComparedPredictor], sampled_label: str, setting: str) -> Figure:
    """Draw each quantity, sampled against every theory, in a panel with the line of equality."""
    columns = len(quantities)
    figure = style.new_figure(style.WIDTH if columns > 1 else 3.6, 3.7)
    figure.suptitle(style.title_of("Predictor on the test set", setting))
    panels = figure.subplots(1, columns, squeeze=False)[0]
    for ax, quantity in zip(panels, quantities, strict=True):
        _draw_scatter(ax, quantity, sampled_label)
    values = quantities[0].sampled.size
    entries = panels[0].get_legend_handles_labels()
    marks = [
        Line2D([], [], color=one[0].get_color(), marker="o", linestyle="none")
        if isinstance(one, ErrorbarContainer)
        else one
        for one in entries[0]
    ]
    title = f"{values} values, bars ±1 MCSE"
    style.legend_below(figure, (marks, entries[1]), 3, title=title, title_fontsize=9.0)
    return figure


def _draw_scatter(ax: Axes, quantity: ComparedPredictor, sampled_label: str) -> None:
    sampled, mcse = np.ravel(quantity.sampled), np.nan_to_num(np.ravel(quantity.mcse))
    shown = [sampled]
    for place, (name, values, colour) in enumerate(quantity.theories):
        theory = np.ravel(values)
        # The first ones on top: of those that follow, a wrong one scatters over everything.
        marks = {"color": colour, "alpha": 0.4, "elinewidth": 0.8, "zorder": 3.0 - 0.1 * place}
        container = ax.errorbar(theory, sampled, mcse, label=name, **POINTS, **marks)
        _rasterize_large(container, theory.size)
        shown.append(theory)
    ax.axline((0.0, 0.0), slope=1.0, color=style.GREY, linewidth=1.0, zorder=0, label="equal")
    ax.set_title(quantity.symbol)
    ax.set_xlabel("theory")
    # A warning in brackets on a line of its own: both do not fit beside one axis.
    ax.set_ylabel(sampled_label.replace(" (", "\n("))
    both = np.concatenate(shown)
    both = both[np.isfinite(both)]
    if both.size:
        margin = 0.05 * np.ptp(both) or 0.5
        # One range for both axes makes the line of equality the diagonal.
        ax.set(xlim=(both.min() - margin, both.max() + margin))
        ax.set(ylim=ax.get_xlim())
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(4))
    ax.set_aspect("equal")


def _rasterize_large(container: ErrorbarContainer, size: int) -> None:
    if size > LARGEST_VECTOR_DRAWING:
        for artist in container.get_children():
            artist.set_rasterized(True)


def draw_sampled_predictor(
    mean: np.ndarray,
    variance: np.ndarray,
    labels: np.ndarray | None,
    sampled_label: str,
    setting: str,
) -> Figure:
    """Draw posterior mean and deviation of f over the test set, in ascending order of the mean.

    mean, variance: [test_example] or [test_example, output]; labels [test_example, output] or None.
    Where labels are classes, those that the value speaks for are told from the others by colour.
    """
    flat, deviation = mean.ravel(), np.sqrt(variance.ravel())
    order = np.argsort(flat, kind="stable")
    figure = style.new_figure(style.WIDTH, 4.2)
    figure.suptitle(style.title_of("Predictor on the test set", setting))
    ax = figure.subplots()
    rank = np.empty(flat.size)
    rank[order] = np.arange(flat.size)
    for shown, colour, name in _groups(flat.size, labels):
        marks = {"color": colour, "ecolor": colour, "alpha": 0.6, "elinewidth": 0.5}
        points = (rank[shown], flat[shown], deviation[shown])
        _rasterize_large(ax.errorbar(*points, label=name, **POINTS, **marks), flat.size)
    ax.axhline(0.0, color=style.GREY, linewidth=1.0, zorder=0)
    ax.set_xlabel("test values in ascending order")
    ax.set_ylabel(f"{sampled_label}\nmean of $f(x)$, bars ±1 posterior deviation")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _groups(size: int, labels: np.ndarray | None) -> list[tuple[np.ndarray, str, str]]:
    """Which values belong together, their colour and their name."""
    if labels is None or labels.size != size or not labels_are_classes(labels):
        return [(np.ones(size, bool), style.VERMILLION, f"{size} test values")]
    if labels.shape[1] == 1:
        positive, names = labels[:, 0] > 0, ("class +", "class −")
    else:
        positive = (labels == labels.max(axis=1, keepdims=True)).ravel()
        names = ("its class", "another class")
    return [(positive, style.VERMILLION, names[0]), (~positive, style.BLUE, names[1])]


def predictor_of_run(run: RunResults) -> Figure | None:
    """Mean and variance of the samples against those of the theory, to both orders."""
    symbols = {"predictor_mean": "mean $m(x)$", "predictor_variance": "variance $v(x)$"}
    tables = {symbol: run.compared(key) for key, symbol in symbols.items()}
    quantities = [
        ComparedPredictor(
            symbol,
            table.theory,
            table.sampled.value,
            table.sampled.mcse,
            table.next_order,
            table.own or {},
        )
        for symbol, table in tables.items()
        if table is not None and table.theory is not None
    ]
    return draw_predictor(quantities, run.sampled_label, run.setting) if quantities else None


def predictor_alone(run: RunResults) -> Figure | None:
    """Mean and deviation of f where there is no theory to hold them against."""
    tables = [run.compared(f"predictor_{moment}") for moment in ("mean", "variance")]
    if run.theory is not None or None in tables:
        return None
    mean, variance = (table.sampled.value for table in tables)
    return draw_sampled_predictor(mean, variance, run.labels_test, run.sampled_label, run.setting)


PREDICTOR = style.FigureEntry(
    predictor_of_run,
    "The predictor, a point per test example: exact posterior against every theory. They agree "
    "on the line.",
    "Scatter plots over the test set: sampled mean and variance of the predictor against those "
    "of the theory, with the line of equality.",
)
PREDICTOR_SAMPLED = style.FigureEntry(
    predictor_alone,
    "The predictor over the test set, by the samples alone.",
    "Sampled mean and deviation of the predictor over the test set, without a theory beside.",
)
