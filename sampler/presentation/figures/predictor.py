"""Predictions: theory against draws, and draws alone."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from sampler.presentation import style
from sampler.presentation.results import ShownRun
from theory.observables import labels_are_classes

LARGEST_VECTOR_DRAWING = 5000  # points; beyond this the SVG holds them as one picture
POINTS = {"fmt": "o", "markersize": 2.5, "capsize": 0.0, "markeredgewidth": 0.0}


@dataclass(frozen=True)
class ComparedPredictor:
    """One quantity of the predictor over the test set; theory, sampled, mcse: [test_example].

    next_order: the theory to next order, None where it is not known.
    """

    symbol: str
    theory: np.ndarray
    sampled: np.ndarray
    mcse: np.ndarray
    next_order: np.ndarray | None = None


def draw_predictor(quantities: list[ComparedPredictor], sampled_label: str, setting: str) -> Figure:
    """Draw each quantity sampled against theory, one panel each, with the line of equality."""
    figure = style.new_figure(4.4 * len(quantities) + 0.4, 4.4)
    figure.suptitle(style.title_of("Predictor on the test set", setting))
    for ax, quantity in zip(
        figure.subplots(1, len(quantities), squeeze=False)[0], quantities, strict=True
    ):
        _draw_scatter(ax, quantity, sampled_label)
    return figure


def _draw_scatter(ax: Axes, quantity: ComparedPredictor, sampled_label: str) -> None:
    theory, sampled, mcse = (
        np.ravel(values) for values in (quantity.theory, quantity.sampled, quantity.mcse)
    )
    marks = {"color": style.SAMPLED, "alpha": 0.45, "elinewidth": 0.8}
    label = f"{theory.size} test values, bars ±1 MCSE"
    if quantity.next_order is not None:
        label = "leading order, bars ±1 MCSE"
    container = ax.errorbar(theory, sampled, np.nan_to_num(mcse), label=label, **POINTS, **marks)
    _rasterize_large(container, theory.size)
    both = np.concatenate([theory, sampled])
    if quantity.next_order is not None:
        beyond = np.ravel(quantity.next_order)
        marks = {"color": style.NEXT_ORDER, "alpha": 0.35, "markersize": 2.5}
        (points,) = ax.plot(beyond, sampled, "s", label="next order", markeredgewidth=0.0, **marks)
        points.set_rasterized(theory.size > LARGEST_VECTOR_DRAWING)
        both = np.concatenate([both, beyond])
    ax.axline(
        (0.0, 0.0), slope=1.0, color=style.GREY, linewidth=1.0, zorder=0, label="sampled = theory"
    )
    ax.set_xlabel(f"theory, {quantity.symbol}")
    # A warning in brackets on a line of its own: both do not fit beside one axis.
    ax.set_ylabel(f"{sampled_label}, {quantity.symbol}".replace(" (", "\n("))
    both = both[np.isfinite(both)]
    if both.size:
        margin = 0.05 * np.ptp(both) or 0.5
        # One range for both axes makes the line of equality the diagonal.
        ax.set(xlim=(both.min() - margin, both.max() + margin))
        ax.set(ylim=ax.get_xlim())
    ax.set_aspect("equal")
    handles, labels = ax.get_legend_handles_labels()
    if quantity.next_order is not None:  # in the order in which they were drawn
        order = [labels.index(one) for one in (label, "next order", "sampled = theory")]
        handles, labels = [handles[i] for i in order], [labels[i] for i in order]
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    ax.legend(handles, labels, ncols=2, columnspacing=1.0, **place)


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
    figure = style.new_figure(7.2, 4.2)
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
    ax.legend(loc="upper left")
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


def predictor_of_run(run: ShownRun) -> Figure | None:
    """Mean and variance of the samples against those of the theory, to both orders."""
    symbols = {"predictor_mean": "mean $m(x)$", "predictor_variance": "variance $v(x)$"}
    tables = {symbol: run.compared_as(key) for key, symbol in symbols.items()}
    quantities = [
        ComparedPredictor(
            symbol, table.theory, table.sampled.value, table.sampled.mcse, table.next_order
        )
        for symbol, table in tables.items()
        if table is not None and table.theory is not None
    ]
    return draw_predictor(quantities, run.sampled_label, run.setting) if quantities else None


def predictor_alone(run: ShownRun) -> Figure | None:
    """Mean and deviation of f where there is no theory to hold them against."""
    tables = [run.compared_as(f"predictor_{moment}") for moment in ("mean", "variance")]
    if run.theory is not None or None in tables:
        return None
    mean, variance = (table.sampled.value for table in tables)
    return draw_sampled_predictor(mean, variance, run.labels_test, run.sampled_label, run.setting)


PREDICTOR = style.FigureEntry(
    predictor_of_run,
    "The predictor, a point per test example: samples against theory, to leading and, where it is "
    "known, to next order. On the line they agree.",
    "Scatter plots over the test set: sampled mean and variance of the predictor against those "
    "of the theory, with the line of equality.",
)
PREDICTOR_SAMPLED = style.FigureEntry(
    predictor_alone,
    "The predictor over the test set, by the samples alone.",
    "Sampled mean and deviation of the predictor over the test set, without a theory beside.",
)
