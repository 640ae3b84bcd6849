"""Accuracy on the test set: predictors of one run, and every point of a sweep."""

from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sampler.analysis.results import RunResults, temperature_text
from sampler.analysis.sweeps import GAUSSIAN_PROCESS_PREFIX, SweepResults
from sampler.presentation import style
from sampler.presentation.figures.studies import short_label
from sampler.presentation.figures.sweeps import is_temperature_choice

TITLE = "Accuracy on the test set"
MOST_LABELS = 24
# Name of a restricted theory's accuracy → its label, colour and marks.
RESTRICTED = {
    "accuracy_diagonal_only": (f"{style.LEADING}, $U_1$ diagonal only", style.GREY, "x", "-"),
    "accuracy_equal_diagonal": (f"{style.LEADING}, $U_1$ equal diagonal", style.PURPLE, "+", ":"),
}


@dataclass(frozen=True)
class AccuracyRow:
    """One predictor of a run; accuracy is NaN where it is undefined, errors None where unknown."""

    label: str
    accuracy: float
    colour: str
    mcse: float | None = None
    binomial_error: float | None = None


def of_subnetwork(place: int, name: str) -> tuple[str, str]:
    """Return label and colour of the infinitely wide sub-network at a place of the list."""
    return f"{style.LIMIT}, only {name}", style.SUBNETWORKS[place % len(style.SUBNETWORKS)]


def accuracies_of_run(run: RunResults) -> list[AccuracyRow]:
    """List both orders, own theories, samples, GP limit, sub-networks and restricted theories."""

    def row(label: str, accuracy: SupportsFloat, colour: str) -> AccuracyRow:
        error = run.test_set_error(float(accuracy))
        return AccuracyRow(label, float(accuracy), colour, binomial_error=error)

    compared = run.compared("accuracy")
    orders = map(run.theory_values, ("accuracy_theory", "accuracy_next_order"))
    rows = [row(*one) for one in style.coloured_theories(*orders, compared and compared.own)]
    sampled = compared and compared.sampled
    if sampled is not None:
        errors = (sampled.mcse, sampled.binomial_error)
        rows.append(AccuracyRow(run.sampled_label, sampled.value, style.SAMPLED, *errors))
    limit = run.theory_values("accuracy_gp")
    if limit is not None:
        rows.append(row(style.LIMIT, limit, style.GAUSSIAN_PROCESS))
    found = {} if run.theory is None else run.theory
    if "accuracy_gp_subnetwork" in found:
        limits = found["accuracy_gp_subnetwork"]
        for place, name in enumerate(limits["subnetwork"].values):
            label, colour = of_subnetwork(place, name)
            rows.append(row(label, limits.values[place], colour))
    restricted = ((found[name], of) for name, of in RESTRICTED.items() if name in found)
    return rows + [row(label, value, colour) for value, (label, colour, *_) in restricted]


def draw_accuracy(run: RunResults) -> Figure | None:
    """Draw the accuracies of one run as labelled points with their errors."""
    undefined = run.theory is not None and run.theory_values("accuracy_theory") is None
    rows = [] if undefined else accuracies_of_run(run)
    if not rows:
        return None
    figure = style.new_figure(style.WIDTH, 0.34 * len(rows) + 1.5, TITLE, run.setting)
    ax = figure.subplots()
    beside = {"xycoords": ax.get_yaxis_transform(), "va": "center", "fontsize": 9.0}
    for place, row in enumerate(rows):
        if not np.isfinite(row.accuracy):
            note = "undefined ($U_1$ not positive definite)"
            marks = {"color": style.GREY, "backgroundcolor": "white"}
            ax.annotate(note, (0.02, place), **marks, **beside)
            continue
        accuracy, mcse, binomial = (
            100 * (np.nan if number is None else number)
            for number in (row.accuracy, row.mcse, row.binomial_error)
        )
        style.accuracy_errors(ax, accuracy, place, mcse, binomial, row.colour, "x")
        number = f"{accuracy:.2f}\n± {mcse:.2f}" if np.isfinite(mcse) else f"{accuracy:.1f}"
        ax.plot(accuracy, place, "o", color=row.colour, markersize=6.0)
        ax.annotate(number, (1.01, place), **beside)
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.08)
    style.accuracy_axis(ax.xaxis)
    errors = any(row.mcse is not None or row.binomial_error is not None for row in rows)
    ax.set_xlabel("accuracy (%)" + (f"\n{style.ERRORS}" if errors else ""))
    return figure


def draw_accuracy_against_width(sweep: SweepResults) -> Figure | None:
    """Draw every accuracy of a sweep against the width, on a logarithmic axis.

    Where something else was swept the points stand side by side under their names. None where
    temperatures were chosen, which has its own figure.
    """
    widths = sweep.widths
    known = (sweep.numbers("accuracy_theory"), sweep.numbers("accuracy_sampled"))
    if is_temperature_choice(sweep) or not np.isfinite(known).any():
        return None
    temperatures = {run.temperature for run in sweep.runs if run is not None}
    setting = temperature_text(temperatures.pop() if len(temperatures) == 1 else None)
    figure = style.new_figure(style.WIDTH, 6.2 if widths is None else 5.2, TITLE, setting)
    ax = figure.subplots()
    position = np.arange(len(sweep.rows), dtype=float) if widths is None else widths
    _draw_lines(ax, position, sweep)
    notes = []
    if np.isfinite(sweep.numbers("accuracy_sampled")).any():
        _draw_sampled(ax, position, sweep)
        notes.append(style.ERRORS)
    tests = _examples_test(sweep)
    if widths is None:
        # As many names as there is room for beside each other.
        every = -(-len(sweep.rows) // MOST_LABELS)
        names = [short_label(point.settings) for point in sweep.rows[::every]]
        ax.set_xticks(position[::every], names, rotation=30, ha="right", rotation_mode="anchor")
    else:
        ax.set_xscale("log")
        # Tick the widths that were computed, as long as their labels do not touch.
        gaps = np.diff(np.log10(widths), prepend=-np.inf)
        if (gaps[1:] > 0.06 * np.ptp(np.log10(widths))).all() and len(widths) <= 12:
            ax.xaxis.set_major_locator(FixedLocator(list(widths)))
            ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:g}"))
        notes.insert(0, "width $N$")
        if tests:
            notes.append(style.BAND)
            accuracy = sweep.numbers("accuracy_theory")
            half = np.sqrt(accuracy * (1.0 - accuracy) / tests)
            band = {"color": style.THEORY, "alpha": 0.12, "linewidth": 0.0, "zorder": 0}
            ax.fill_between(widths, 100 * (accuracy - half), 100 * (accuracy + half), **band)
    ax.set(xlabel="\n".join(notes), ylabel="accuracy (%)")
    style.accuracy_axis(ax.yaxis)
    # Samples directly under the theory they are compared with.
    entries = sorted(
        zip(*ax.get_legend_handles_labels(), strict=True), key=lambda entry: not _compared(entry[1])
    )
    style.legend_below(figure, tuple(map(list, zip(*entries, strict=True))))
    return figure


def _compared(label: str) -> bool:
    return label in (style.LEADING, style.NEXT) or label.startswith(style.EXACT)


def _draw_lines(ax: Axes, position: np.ndarray, sweep: SweepResults) -> None:
    """Draw what is not sampled; marks without lines where neighbours are no curve."""
    curve = sweep.widths is not None
    own = [(run and run.compared("accuracy")) or None for run in sweep.runs]
    own = [(one and one.own) or {} for one in own]
    names = dict.fromkeys(name for one in own for name in one)
    theories = style.coloured_theories(
        sweep.numbers("accuracy_theory"),
        sweep.numbers("accuracy_next_order"),
        {name: np.array([one.get(name, np.nan) for one in own]) for name in names},
    )
    first, wide = {"markersize": 5.0, "zorder": 3}, {"markersize": 16.0, "markeredgewidth": 2.0}
    second = {"markersize": 7.0, "markerfacecolor": "none", "zorder": 3.5}
    of_order = {style.LEADING: ("o", "-", first), style.NEXT: ("o", (0, (4, 1)), second)}
    lines = [(*one, *of_order.get(one[0], ("P", "-", first))) for one in theories]
    level, black = "" if curve else "_", style.GAUSSIAN_PROCESS
    lines.append((style.LIMIT, sweep.numbers("accuracy_gp"), black, level, "--", wide))
    for place, name in enumerate(sweep.subnetworks):
        label, colour = of_subnetwork(place, name)
        lines.append(
            (label, sweep.numbers(GAUSSIAN_PROCESS_PREFIX + name), colour, level, "-.", wide)
        )
    for name, (label, *shape) in RESTRICTED.items():
        lines.append((label, sweep.numbers(name), *shape, {"linewidth": 0.8, "markersize": 4.0}))
    for label, accuracy, colour, marker, dashes, marks in lines:
        if np.isfinite(accuracy).any():
            shape = {"marker": marker, "linestyle": dashes if curve else "none"}
            ax.plot(position, 100 * accuracy, color=colour, label=label, **shape, **marks)


def _examples_test(sweep: SweepResults) -> int | None:
    """Return the number of test examples where it is the same at all points."""
    tables = [run.theory for run in sweep.runs if run is not None and run.theory is not None]
    sizes = {table.sizes.get("test_example") for table in tables}
    return sizes.pop() if len(sizes) == 1 else None


def _draw_sampled(ax: Axes, position: np.ndarray, sweep: SweepResults) -> None:
    """Draw the samples of every space, hollow where their diagnostics failed."""
    accuracy, mcse, binomial = (
        100 * sweep.numbers(f"accuracy_sampled{of}") for of in ("", "_mcse", "_binomial")
    )
    spaces = np.array([point.columns.get("sampled_space", "") for point in sweep.rows])
    sound = np.array([point.trusted is not False for point in sweep.rows])
    marks = {"color": style.SAMPLED, "markersize": 6.0, "zorder": 5}
    for place, space in enumerate(dict.fromkeys(spaces[np.isfinite(accuracy)])):
        for passed in (True, False):
            shown = np.isfinite(accuracy) & (spaces == space) & (sound == passed)
            if not shown.any():
                continue
            label = style.SPACES.get(space, style.EXACT)
            label += "" if passed else "\n(diagnostics failed)"
            points = position[shown], accuracy[shown]
            errors = mcse[shown], binomial[shown]
            style.accuracy_errors(ax, *points, *errors, style.SAMPLED, zorder=4)
            face = style.SAMPLED if passed else "white"
            ax.plot(*points, "Dv^s"[place % 4], markerfacecolor=face, label=label, **marks)


ACCURACY = style.FigureEntry(
    draw_accuracy,
    "Accuracy on the test set. Theory and exact posterior should agree; their distance from "
    "infinite width is what finite width changes. The error of the test set is common to all.",
    "Points with error bars: accuracy of the theory, of the sampled exact posterior and of the "
    "network of infinite width, one per row.",
)
ACCURACY_AGAINST_WIDTH = style.FigureEntry(
    draw_accuracy_against_width,
    "Accuracy on the test set along the sweep: theory, exact posterior, infinite width.",
    "Accuracy at every point of the sweep: theory, sampled exact posterior with error bars, "
    "and infinite width.",
    of=("sweep",),
)
