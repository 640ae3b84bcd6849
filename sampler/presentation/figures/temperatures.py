"""Figure of a sweep over temperatures: evidence and validation scores of each."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from sampler.analysis.predictors import AXIS, INFINITE, LEADING, NEXT, SAMPLED, predictor_name
from sampler.analysis.selection import TEMPERATURE
from sampler.analysis.sweep_results import PASSED, SweepResults
from sampler.presentation import style

# Name of a predictor in columns → marker, dashes and size. Where theories and samples agree, all
# are still seen: a dot on a diamond in a ring.
PREDICTORS = {
    INFINITE: ("s", "--", 4.0),
    NEXT: ("o", "-", 10.0),
    SAMPLED: ("D", "none", 6.0),
    LEADING: ("o", "-", 3.0),
}
# Quantity → label of its panel, and unit.
PANELS = {
    "log_evidence": (r"evidence $\ln p(y)$", 1.0),
    "validation_log_predictive_density": ("log predictive density,\nvalidation split", 1.0),
    "validation_accuracy": ("accuracy (%),\nvalidation split", 100.0),
}


def draw_against_temperature(sweep: SweepResults) -> Figure | None:
    """Draw evidence and scores of the validation split against the temperature, the best marked.

    Of every predictor that is known. None unless the temperature alone was swept. Best are points
    that may be chosen: samples whose diagnostics pass, a next order that holds.
    """
    dataset = sweep.dataset
    if dataset["point"].dims != (TEMPERATURE,) or dataset.sizes[TEMPERATURE] < 2:
        return None
    points = dataset.sortby(TEMPERATURE).reindex({"quantity": list(PANELS), AXIS: list(PREDICTORS)})
    known = points["value"].notnull().any((TEMPERATURE, AXIS))
    points = points.isel(quantity=known.values)
    panels = [str(name) for name in points["quantity"].values]
    if not panels:
        return None
    usable = points["value"].notnull()
    for who, column, sound in (
        (SAMPLED, "diagnostics", PASSED),
        (NEXT, "next_order_status", "fine"),
    ):
        if column in points:
            usable = usable & ((points[AXIS] != who) | (points[column] == sound))
    points = points.assign(usable=usable)
    widths = {point.one_width for point in sweep.points}
    setting = f"$N$ = {widths.pop()}" if len(widths) == 1 and None not in widths else ""
    title = "Which temperature? Evidence and validation"
    figure = style.new_figure(style.WIDTH, 2.1 * len(panels) + 1.5, title, setting)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, name in zip(axes, panels, strict=True):
        label, unit = PANELS[name]
        draw_scores(ax, points.sel(quantity=name), unit)
        ax.set(xscale="log", ylabel=label)
        if unit == 100.0:
            style.accuracy_axis(ax.yaxis)
    temperatures = points[TEMPERATURE].values
    axes[-1].set_xticks(temperatures, [f"{value:g}" for value in temperatures])
    axes[-1].xaxis.set_minor_locator(NullLocator())
    axes[-1].set_xlabel("temperature $\\mathcal{T}$\n▾ above a panel: the best of each predictor")
    # A panel has the predictors that it is about: the samples may have scores, but no evidence.
    shown = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in axes]
    entries = {label: handle for of_panel in shown for handle, label in of_panel}
    style.legend_below(figure, ([*entries.values()], [*entries]))
    return figure


def draw_scores(ax: Axes, points: xr.Dataset, unit: float) -> None:
    """Draw one score of every predictor, and above it the temperature that is best by it."""
    temperatures = points[TEMPERATURE].values
    for place, (who, (marker, dashes, size)) in enumerate(PREDICTORS.items()):
        of = points.sel({AXIS: who})
        values, usable = unit * of["value"].values, of["usable"].values
        if not np.isfinite(values).any():
            continue
        colour, fill = style.colour_of(who), "none" if who == NEXT else "full"
        marks = {"color": colour, "marker": marker, "linestyle": dashes, "markersize": size}
        marks |= {"fillstyle": fill, "linewidth": 1.2, "capsize": 0.0, "zorder": 2}
        error, shown, failed = None, values, np.isfinite(values) & ~usable
        if who == SAMPLED:
            error, shown = unit * of["error"].values, np.where(failed, np.nan, values)
            if failed.any():
                crosses = {"color": colour, "label": f"{predictor_name(who)} (diagnostics failed)"}
                ax.plot(temperatures[failed], values[failed], "x", **crosses)
        ax.errorbar(temperatures, shown, error, label=predictor_name(who), **marks)
        if usable.any():
            # Side by side where several predictors choose alike.
            beside = (place - 0.5 * (len(PREDICTORS) - 1)) * 0.02 * np.ptp(np.log(temperatures))
            best = float(of["value"].where(of["usable"]).idxmax(TEMPERATURE)) * np.exp(beside)
            looks = {"color": colour, "markersize": 6.0, "clip_on": False}
            ax.plot(best, 1.04, "v", transform=ax.get_xaxis_transform(), **looks)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.minus_signs(f"{value:g}")))
    ax.grid(axis="y", color=style.GRID, linewidth=0.8)


AGAINST_TEMPERATURE = style.FigureEntry(
    draw_against_temperature,
    "Evidence of the training labels, and log predictive density and accuracy on the validation "
    "split, against the temperature. A triangle above a panel is the best temperature of the "
    "predictor of that colour, among samples whose diagnostics pass and next orders that hold.",
    "Evidence, log predictive density and accuracy against temperature for theory, exact "
    "posterior and infinite width, with the best of each marked.",
    of=("sweep",),
)
