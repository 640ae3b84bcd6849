"""Figure of a sweep over temperatures: what training labels and a validation split say of each."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from sampler.analysis.predictors import INFINITE, LEADING, NEXT, SAMPLED, predictor_name
from sampler.analysis.sweep_results import SweepResults
from sampler.presentation import style

TEMPERATURE = "posterior.temperature"
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
    points = sweep.points
    if any(set(point.settings) != {TEMPERATURE} for point in points) or len(points) < 2:
        return None
    points = sorted(points, key=lambda point: point.settings[TEMPERATURE])
    temperatures = np.array([float(point.settings[TEMPERATURE]) for point in points])
    eligible = {
        SAMPLED: np.array([point.trusted is True for point in points]),
        NEXT: np.array([point.text("next_order_status") == "fine" for point in points]),
    }
    panels = {}
    for quantity, (label, unit) in PANELS.items():
        values = {
            who: unit * np.array([point.number(quantity, who) for point in points])
            for who in PREDICTORS
        }
        if np.isfinite(list(values.values())).any():
            errors = [point.number(quantity, SAMPLED, "error") for point in points]
            panels[label] = values, unit * np.array(errors), unit
    if not panels:
        return None
    widths = {point.one_width for point in points}
    setting = f"$N$ = {widths.pop()}" if len(widths) == 1 and None not in widths else ""
    title = "Which temperature? Evidence and validation"
    figure = style.new_figure(style.WIDTH, 2.1 * len(panels) + 1.5, title, setting)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, (values, errors, unit)) in zip(axes, panels.items(), strict=True):
        draw_scores(ax, temperatures, values, errors, eligible)
        ax.set(xscale="log", ylabel=label)
        if unit == 100.0:
            style.accuracy_axis(ax.yaxis)
    axes[-1].set_xticks(temperatures, [f"{value:g}" for value in temperatures])
    axes[-1].xaxis.set_minor_locator(NullLocator())
    axes[-1].set_xlabel("temperature $\\mathcal{T}$\n▾ above a panel: the best of each predictor")
    # A panel has the predictors that it is about: the samples may have scores, but no evidence.
    shown = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in axes]
    entries = {label: handle for of_panel in shown for handle, label in of_panel}
    style.legend_below(figure, ([*entries.values()], [*entries]))
    return figure


def draw_scores(
    ax: Axes,
    temperatures: np.ndarray,
    values: dict[str, np.ndarray],
    errors: np.ndarray,
    eligible: dict[str, np.ndarray],
) -> None:
    """Draw one score of every predictor, and above it the temperature that is best by it.

    eligible: predictor → points that may be the best; all where it has none
    """
    for place, (who, (marker, dashes, size)) in enumerate(PREDICTORS.items()):
        if not np.isfinite(values[who]).any():
            continue
        colour, fill = style.colour_of(who), "none" if who == NEXT else "full"
        marks = {"color": colour, "marker": marker, "linestyle": dashes, "markersize": size}
        marks |= {"fillstyle": fill, "linewidth": 1.2, "capsize": 0.0, "zorder": 2}
        error, shown = errors if who == SAMPLED else None, values[who]
        if who == SAMPLED:
            failed = np.isfinite(shown) & ~eligible[who]
            if failed.any():
                crosses = {"color": colour, "label": f"{predictor_name(who)} (diagnostics failed)"}
                ax.plot(temperatures[failed], shown[failed], "x", **crosses)
            shown = np.where(failed, np.nan, shown)
        ax.errorbar(temperatures, shown, error, label=predictor_name(who), **marks)
        # Side by side where several predictors choose alike.
        beside = (place - 0.5 * (len(PREDICTORS) - 1)) * 0.02 * np.ptp(np.log(temperatures))
        among = np.where(eligible.get(who, True), values[who], np.nan)
        if not np.isfinite(among).any():
            continue
        best = temperatures[np.nanargmax(among)] * np.exp(beside)
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
