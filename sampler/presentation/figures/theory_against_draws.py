"""Theory against draws, element by element, and the predictor of draws without a theory."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.names import is_overlap
from sampler.analysis.predictors import AXIS, INFINITE, LEADING, SAMPLED, is_theory
from sampler.analysis.results import RunResults
from sampler.presentation import style
from theory.observables import labels_are_classes

# Quantity → its numbers in a panel.
PANELS = {
    "order_parameter": "elements of $U_1$",
    "predictor_mean": "mean $m(x)$",
    "predictor_variance": "variance $v(x)$",
}
MOST_POINTS = 400  # of a panel; of more every k-th is drawn
SHOWN = 0.99  # share of the residuals that a panel is wide enough for


def draw_theory_against_draws(run: RunResults) -> Figure | None:
    """Draw elements of U_1, and means and variances of the predictor: draws against every theory.

    Below them the differences in Monte Carlo standard errors, and between dotted lines what the
    largest of them reaches by chance. Where no theory of wide layers is known, infinite width is in
    its place.
    """
    tables = {name: predicted_elements(run, name) for name in PANELS}
    tables = {name: table for name, table in tables.items() if table is not None}
    if not tables:
        return None
    figure = style.new_figure(style.WIDTH, 4.6, "Theory against draws", run.setting)
    shape = {"squeeze": False, "sharex": "col", "height_ratios": (2.0, 1.0)}
    axes = figure.subplots(2, len(tables), **shape)
    for (above, below), (name, table) in zip(axes.T, tables.items(), strict=True):
        draw_elements(above, below, run, table, run.comparison.largest_by_chance(name))
        above.set_title(PANELS[name])
    axes[0, 0].set_ylabel(style.bracket_below(f"{run.name_of(SAMPLED)}") + "\n± MCSE")
    axes[1, 0].set_ylabel("difference\nin MCSE")
    for ax in axes[1]:
        ax.set_xlabel("prediction")
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels())
    return figure


def predicted_elements(run: RunResults, quantity: str) -> xr.Dataset | None:
    """Elements with an error, along `element`, by the theories; None where there are none."""
    table = None if run.comparison is None else run.comparison.elements(quantity)
    if table is None:
        return None
    names = [str(name) for name in table[AXIS].values]
    theories = [name for name in names if is_theory(name)] or [n for n in names if n == INFINITE]
    columns = {name: table[name].values for name in ("sampled", "error")}
    known = np.isfinite(columns["sampled"]) & (columns["error"] > 0.0)
    if is_overlap(quantity):
        known &= np.triu(np.ones(known.shape, dtype=bool))
    if not theories or not known.any():
        return None
    predicted = table["predicted"].sel({AXIS: theories}).values[:, known]
    of_elements = {name: ("element", values[known]) for name, values in columns.items()}
    return xr.Dataset(
        {"predicted": ((AXIS, "element"), predicted), **of_elements}, {AXIS: theories}
    )


def draw_elements(
    above: Axes, below: Axes, run: RunResults, table: xr.Dataset, limit: float
) -> None:
    """Draw one quantity: samples against theories, and below their differences in errors."""
    shown = slice(None, None, -(-table.sizes["element"] // MOST_POINTS))
    sampled, error = (table[name].values[shown] for name in ("sampled", "error"))
    theories = [str(name) for name in table[AXIS].values]
    residuals = ((table["sampled"] - table["predicted"]) / table["error"]).transpose(AXIS, ...)
    # Nearly all of them: a few far ones would flatten all others.
    end = max(1.3 * limit, 1.1 * float(np.nanquantile(np.abs(residuals), SHOWN)))
    for name, predicted, gaps in zip(
        theories, table["predicted"].values, residuals.values, strict=True
    ):
        colour = style.colour_of(name, theories)
        face = {"markerfacecolor": colour if name == LEADING else "none", "markersize": 3.0}
        marks = {"fmt": "o", "color": colour, "elinewidth": 1.0, "capsize": 0.0, **face}
        above.errorbar(predicted[shown], sampled, error, label=run.name_of(name), **marks)
        within = np.clip(gaps, -end, end)
        below.plot(predicted[shown], within[shown], "o", color=colour, clip_on=False, **face)
    ends = np.array(above.get_xlim())
    above.plot(ends, ends, color=style.GREY, linewidth=0.8, zorder=1)
    above.set_xlim(*ends)
    for at in (-limit, 0.0, limit):
        line = {"color": style.GREY, "linestyle": ":" if at else "-", "linewidth": 0.8}
        below.axhline(at, zorder=1, **line)
    below.set_ylim(-end, end)


def draw_sampled_predictor(run: RunResults) -> Figure | None:
    """Draw posterior mean and deviation of f, in ascending order of the mean.

    Where no theory of the network predicts it. Where labels are classes, colours show the class of
    each example.
    """
    moments = [run.sampled(name) for name in ("predictor_mean", "predictor_variance")]
    if any(map(is_theory, run.predictions("predictor_mean"))) or None in moments:
        return None
    mean, variance = (estimate.value.ravel() for estimate in moments)
    figure = style.new_figure(style.WIDTH, 4.2, "Predictor on the test set", run.setting)
    ax = figure.subplots()
    rank = np.argsort(np.argsort(mean, kind="stable"))
    colours = style.VERMILLION, style.BLUE
    groups = groups_of(mean.size, run.labels_test)
    for (name, shown), colour in zip(groups.items(), colours, strict=False):
        marks = {"fmt": "o", "markersize": 2.5, "capsize": 0.0, "color": colour, "alpha": 0.6}
        error = np.sqrt(variance[shown])
        ax.errorbar(rank[shown], mean[shown], error, elinewidth=0.5, label=name, **marks)
    ax.axhline(0.0, color=style.GREY, linewidth=1.0, zorder=0)
    ax.set_xlabel("test values in ascending order")
    ax.set_ylabel(f"{run.name_of(SAMPLED)}\nmean of $f(x)$, bars ±1 posterior deviation")
    style.legend_below(figure)
    return figure


def groups_of(size: int, labels: np.ndarray | None) -> dict[str, np.ndarray]:
    """Name of a group of test values → which belong to it."""
    if labels is None or labels.size != size or not labels_are_classes(labels):
        return {f"{size} test values": np.ones(size, bool)}
    if labels.shape[1] == 1:
        positive = labels[:, 0] > 0
        return {"class +": positive, "class −": ~positive}
    positive = (labels == labels.max(axis=1, keepdims=True)).ravel()
    return {"its class": positive, "another class": ~positive}


THEORY_AGAINST_DRAWS = style.FigureEntry(
    draw_theory_against_draws,
    "Elements of U₁, and mean and variance of the predictor over the test set: exact posterior "
    "against each theory, on the line where they agree. Below, their difference in Monte Carlo "
    "standard errors (MCSE): beyond the dotted lines chance alone brings none of them; "
    "what lies beyond the panel is at its ends.",
    "Exact posterior against theory, element by element of U₁ and of the predictor, and below "
    "their differences in Monte Carlo standard errors.",
)
PREDICTOR_SAMPLED = style.FigureEntry(
    draw_sampled_predictor,
    "The predictor over the test set, by the samples alone.",
    "Sampled mean and deviation of the predictor over the test set, without a theory.",
)
