"""Accuracy along a sweep: theories, exact posterior, infinite width."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sampler.analysis.predictors import INFINITE, LEADING, NEXT, SAMPLED, TUNED, predictor_name
from sampler.analysis.results import temperature_text
from sampler.analysis.sweep_results import SweepResults
from sampler.presentation import style
from sampler.settings.point_labels import short_label

MOST_LABELS = 24
ERRORS = "bars: thick ±1 MCSE, thin ±1 binomial error of the test set"
BAND = "band: ±1 binomial error of the test set, leading order"
# Where both orders and the samples coincide all are seen: a dot on a diamond in a ring.
DOT, LEVEL = {"markersize": 3.5, "zorder": 6}, {"markersize": 16.0, "markeredgewidth": 2.0}
CROSS = {"markersize": 7.0}
RING = {"markersize": 11.0, "markerfacecolor": "none", "zorder": 3.5}


def draw_accuracy_against_width(sweep: SweepResults) -> Figure | None:
    """Draw every accuracy of a sweep against the width, on a logarithmic axis.

    Where something else was swept the points are shown side by side under their names.
    """
    widths, sampled = sweep.widths, np.isfinite(sweep.numbers("accuracy", SAMPLED))
    if not (sampled.any() or np.isfinite(sweep.numbers("accuracy")).any()):
        return None
    temperatures = {run.temperature for run in sweep.runs if run is not None}
    setting = temperature_text(temperatures.pop() if len(temperatures) == 1 else None)
    height = 6.2 if widths is None else 5.2
    figure = style.new_figure(style.WIDTH, height, "Accuracy on the test set", setting)
    ax = figure.subplots()
    position = np.arange(len(sweep.rows), dtype=float) if widths is None else widths
    draw_predictions(ax, position, sweep)
    if sampled.any():
        draw_samples(ax, position, sweep)
    notes = [ERRORS] if sampled.any() else []
    if widths is None:
        # As many names as there is room for side by side.
        every = -(-len(sweep.rows) // MOST_LABELS)
        names = [short_label(point.settings) for point in sweep.rows[::every]]
        ax.set_xticks(position[::every], names, rotation=30, ha="right", rotation_mode="anchor")
    else:
        tick_widths(ax, widths)
        banded = draw_band(ax, widths, sweep)
        notes = ["width $N$", *notes, *([BAND] if banded else [])]
    ax.set(xlabel="\n".join(notes), ylabel="accuracy (%)")
    style.accuracy_axis(ax.yaxis)
    # Samples directly under the theory they are compared with.
    first = (style.LEADING, style.NEXT, style.EXACT)
    entries = zip(*ax.get_legend_handles_labels(), strict=True)
    entries = sorted(entries, key=lambda entry: not (entry[1] in first or "posterior" in entry[1]))
    style.legend_below(figure, tuple(map(list, zip(*entries, strict=True))))
    return figure


def tick_widths(ax: Axes, widths: np.ndarray) -> None:
    """Tick the widths that were computed, as long as their labels do not touch."""
    ax.set_xscale("log")
    gaps = np.diff(np.log10(widths))
    if (gaps > 0.06 * np.ptp(np.log10(widths))).all() and len(widths) <= 12:
        ax.xaxis.set_major_locator(FixedLocator(list(widths)))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:g}"))


def draw_band(ax: Axes, widths: np.ndarray, sweep: SweepResults) -> bool:
    """Draw the error by the finite test set; False where its size is not the same everywhere."""
    tables = [run.theory for run in sweep.runs if run is not None and run.theory is not None]
    sizes = {table.sizes.get("test_example") for table in tables}
    tests = sizes.pop() if len(sizes) == 1 else None
    if tests:
        accuracy = sweep.numbers("accuracy")
        ends = accuracy + np.outer([-1.0, 1.0], np.sqrt(accuracy * (1.0 - accuracy) / tests))
        band = {"color": style.THEORY, "alpha": 0.12, "linewidth": 0.0, "zorder": 0}
        ax.fill_between(widths, *(100.0 * ends), **band)
    return bool(tests)


def draw_predictions(ax: Axes, position: np.ndarray, sweep: SweepResults) -> None:
    """Draw predictions; marks without lines where neighbours do not form a curve."""
    curve = sweep.widths is not None
    level = "" if curve else "_"
    looks = {
        LEADING: ("o", "-", DOT),
        NEXT: ("o", (0, (4, 1)), RING),
        TUNED: (level, "-", LEVEL),
        INFINITE: ("" if curve else "x", "--", LEVEL if curve else CROSS),
    }
    names = [LEADING, NEXT, *sweep.user_theories, INFINITE, TUNED]
    lines = [
        (
            sweep.numbers("accuracy", name),
            (predictor_name(name), style.colour_of(name, names)),
            looks.get(name, ("P", "-", DOT)),
        )
        for name in names
    ]
    for accuracy, (label, colour), (marker, dashes, marks) in lines:
        if np.isfinite(accuracy).any():
            shape = {"marker": marker, "linestyle": dashes if curve else "none"}
            ax.plot(position, 100.0 * accuracy, color=colour, label=label, **shape, **marks)


def draw_samples(ax: Axes, position: np.ndarray, sweep: SweepResults) -> None:
    """Draw the samples of every space, hollow where their diagnostics failed.

    Errors are thin with caps by the finite test set, and thick by Monte Carlo.
    """
    accuracy, mcse, binomial = (
        100.0 * sweep.numbers("accuracy", SAMPLED, name)
        for name in ("value", "error", "test_error")
    )
    spaces = np.array([point.text("sampled_space") for point in sweep.rows])
    sound = np.array([point.trusted is not False for point in sweep.rows])
    for place, space in enumerate(dict.fromkeys(spaces[np.isfinite(accuracy)])):
        for passed in (True, False):
            shown = np.isfinite(accuracy) & (spaces == space) & (sound == passed)
            if not shown.any():
                continue
            points = position[shown], accuracy[shown]
            bars = {"fmt": "none", "ecolor": style.SAMPLED, "zorder": 4}
            ax.errorbar(*points, binomial[shown], elinewidth=1.0, **bars)
            ax.errorbar(*points, mcse[shown], elinewidth=3.0, capsize=0.0, **bars)
            label = style.SPACES.get(space, style.EXACT)
            label += "" if passed else "\n(diagnostics failed)"
            face = style.SAMPLED if passed else "white"
            marks = {"color": style.SAMPLED, "markersize": 6.0, "zorder": 5, "label": label}
            ax.plot(*points, "Dv^s"[place % 4], markerfacecolor=face, **marks)


ACCURACY_AGAINST_WIDTH = style.FigureEntry(
    draw_accuracy_against_width,
    "Accuracy on the test set along the sweep: theory, exact posterior, infinite width.",
    "Accuracy at every point of the sweep: theory, sampled exact posterior with error bars, "
    "and infinite width.",
    of=("sweep",),
)
