"""Accuracy of one run, and accuracy against width."""

from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sampler.analysis.results import RunResults, temperature_text
from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style
from sampler.presentation.figures.temperature_choice import is_temperature_choice
from sampler.presentation.figures.variant_comparison import short_label

MOST_LABELS = 24
DIAGONAL_ONLY = f"{style.LEADING}, $U_1$ diagonal only"
EQUAL_DIAGONAL = f"{style.LEADING}, $U_1$ equal diagonal"


@dataclass(frozen=True)
class AccuracyRow:
    """One predictor of a run; accuracy is NaN where it is undefined, errors None where unknown."""

    label: str
    accuracy: float
    colour: str
    mcse: float | None = None
    binomial_error: float | None = None


@dataclass(frozen=True)
class SampledAccuracy:
    """Sampled accuracies of a sweep that share one label; all fields but the label are [row]."""

    label: str
    accuracy: np.ndarray
    mcse: np.ndarray
    binomial_error: np.ndarray
    diagnostics_passed: np.ndarray


@dataclass(frozen=True)
class AccuracyCurves:
    """Accuracies of a sweep, each [row]; NaN where undefined, None where it is so everywhere.

    own    of the user's own theories, by name
    tests  examples of the test set, where all points have the same
    """

    theory: np.ndarray
    gaussian_process: np.ndarray
    subnetworks: dict[str, np.ndarray]
    diagonal_only: np.ndarray
    equal_diagonal: np.ndarray
    sampled: list[SampledAccuracy]
    next_order: np.ndarray | None = None
    own: dict[str, np.ndarray] = field(default_factory=dict)
    tests: int | None = None


def subnetwork_colour(place: int) -> str:
    """Colour of the sub-network at a place of the list, the same in every figure."""
    return style.SUBNETWORKS[place % len(style.SUBNETWORKS)]


def draw_accuracy(rows: list[AccuracyRow], setting: str) -> Figure:
    """Draw the accuracies of one run as labelled points with their errors."""
    figure = style.new_figure(style.WIDTH, 0.34 * len(rows) + 1.5)
    figure.suptitle(style.title_of("Accuracy on the test set", setting))
    ax = figure.subplots()
    beside = {"xycoords": ax.get_yaxis_transform(), "va": "center", "fontsize": 9.0}
    for place, row in enumerate(rows):
        if not np.isfinite(row.accuracy):
            note = "undefined ($U_1$ not positive definite)"
            marks = {"color": style.GREY, "backgroundcolor": "white"}
            ax.annotate(note, (0.02, place), **marks, **beside)
            continue
        number = f"{100 * row.accuracy:.1f}"
        for error, thickness, cap in ((row.mcse, 3.0, 0.0), (row.binomial_error, 1.0, 3.0)):
            if error is not None and np.isfinite(error):
                bars = {"fmt": "none", "ecolor": row.colour, "capsize": cap}
                x, half = 100 * row.accuracy, 100 * error
                ax.errorbar(x, place, xerr=half, elinewidth=thickness, **bars)
        if row.mcse is not None and np.isfinite(row.mcse):
            number = f"{100 * row.accuracy:.2f}\n± {100 * row.mcse:.2f}"
        ax.plot(100 * row.accuracy, place, "o", color=row.colour, markersize=6.0)
        ax.annotate(number, (1.01, place), **beside)
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.08)
    style.accuracy_axis(ax.xaxis)
    errors = any(row.mcse is not None or row.binomial_error is not None for row in rows)
    ax.set_xlabel("accuracy (%)" + (f"\n{style.ERRORS}" if errors else ""))
    return figure


def draw_accuracy_against_width(
    curves: AccuracyCurves, widths: np.ndarray | None, points: tuple[str, ...], setting: str
) -> Figure:
    """Draw every accuracy of a sweep against the width N (logarithmic axis).

    widths: [row] ascending, or None if something else was swept: then the rows stand side by
    side under their names `points`.
    """
    figure = style.new_figure(style.WIDTH, 5.2 if widths is not None else 6.2)
    figure.suptitle(style.title_of("Accuracy on the test set", setting))
    ax = figure.subplots()
    position = np.arange(len(points), dtype=float) if widths is None else widths
    _draw_lines(ax, position, curves, connected=widths is not None)
    for place, sampled in enumerate(curves.sampled):
        _draw_sampled(ax, position, sampled, "Dv^s"[place % 4])
    if widths is None:
        # As many names as there is room for beside each other.
        every = -(-len(points) // MOST_LABELS)
        names = points[::every]
        ax.set_xticks(position[::every], names, rotation=30, ha="right", rotation_mode="anchor")
    else:
        ax.set_xscale("log")
        # Tick the widths that were computed, as long as their labels do not touch.
        gaps = np.diff(np.log10(position), prepend=-np.inf)
        if (gaps[1:] > 0.06 * np.ptp(np.log10(position))).all() and len(position) <= 12:
            ax.xaxis.set_major_locator(FixedLocator(list(position)))
            ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:g}"))
        ax.set_xlabel("width $N$")
    ax.set_ylabel("accuracy (%)")
    style.accuracy_axis(ax.yaxis)
    notes = [style.ERRORS] if curves.sampled else []
    notes += [style.BAND] if curves.tests and widths is not None else []
    ax.set_xlabel("\n".join(filter(None, [ax.get_xlabel(), *notes])))
    handles, labels = ax.get_legend_handles_labels()
    # Samples directly under the theory they are compared with.
    order = sorted(range(len(labels)), key=lambda place: not _compared(labels[place]))
    figure.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=2
    )
    return figure


def _compared(label: str) -> bool:
    return label in (style.LEADING, style.NEXT) or label.startswith(style.EXACT)


def _draw_lines(ax: Axes, position: np.ndarray, curves: AccuracyCurves, *, connected: bool) -> None:
    def line(
        accuracy: np.ndarray, marker: str, dashes: str | tuple, colour: str, label: str, **marks
    ):
        if not np.isfinite(accuracy).any():
            return
        # Neighbours in a list of settings are no curve: they get marks and no line.
        shape = {"marker": marker, "linestyle": dashes if connected else "none"}
        ax.plot(position, 100 * accuracy, color=colour, label=label, **(marks | shape))
        if curves.tests and connected and label == style.LEADING:
            half = 100 * np.sqrt(accuracy * (1.0 - accuracy) / curves.tests)
            edges = (100 * accuracy - half, 100 * accuracy + half)
            ax.fill_between(position, *edges, color=colour, alpha=0.12, linewidth=0.0, zorder=0)

    level = "" if connected else "_"
    wide = {"markersize": 16.0, "markeredgewidth": 2.0}
    thin = {"linewidth": 0.8, "markersize": 4.0}
    line(curves.theory, "o", "-", style.THEORY, style.LEADING, markersize=5.0, zorder=3)
    if curves.next_order is not None:
        marks = {"markersize": 7.0, "markerfacecolor": "none", "zorder": 3.5}
        line(curves.next_order, "o", (0, (4, 1)), style.NEXT_ORDER, style.NEXT, **marks)
    for place, (label, accuracy) in enumerate(curves.own.items()):
        line(accuracy, "P", "-", style.own_colour(place), label, markersize=5.0, zorder=3)
    line(curves.gaussian_process, level, "--", style.GAUSSIAN_PROCESS, style.LIMIT, **wide)
    for place, (label, accuracy) in enumerate(curves.subnetworks.items()):
        line(
            accuracy, level, "-.", subnetwork_colour(place), f"{style.LIMIT}, only {label}", **wide
        )
    line(curves.diagonal_only, "x", "-", style.GREY, DIAGONAL_ONLY, **thin)
    line(curves.equal_diagonal, "+", ":", style.PURPLE, EQUAL_DIAGONAL, **thin)


def _draw_sampled(ax: Axes, position: np.ndarray, sampled: SampledAccuracy, marker: str) -> None:
    for passed in (True, False):
        shown = np.isfinite(sampled.accuracy) & (sampled.diagnostics_passed == passed)
        if not shown.any():
            continue
        centre = 100 * sampled.accuracy[shown]
        bars = {"fmt": "none", "ecolor": style.SAMPLED, "zorder": 4}
        x = position[shown]
        thin, thick = (
            100 * np.nan_to_num(e[shown]) for e in (sampled.binomial_error, sampled.mcse)
        )
        ax.errorbar(x, centre, thin, elinewidth=1.0, **bars)
        ax.errorbar(x, centre, thick, elinewidth=3.0, capsize=0.0, **bars)
        label = sampled.label if passed else f"{sampled.label}\n(diagnostics failed)"
        marks = {"color": style.SAMPLED, "markersize": 6.0, "zorder": 5}
        face = style.SAMPLED if passed else "white"
        ax.plot(x, centre, marker, markerfacecolor=face, label=label, **marks)


def accuracy_of_run(run: RunResults) -> Figure | None:
    """Both orders, samples, GP limit, sub-networks and restricted theories of one run."""
    theory = run.theory_values("accuracy_theory")
    if run.theory is not None and theory is None:
        return None

    def row(label: str, value: float, colour: str) -> AccuracyRow:
        return AccuracyRow(label, value, colour, binomial_error=run.test_set_error(value))

    rows = [] if theory is None else [row(style.LEADING, float(theory), style.THEORY)]
    next_order = run.theory_values("accuracy_next_order")
    if next_order is not None:
        rows.append(row(style.NEXT, float(next_order), style.NEXT_ORDER))
    accuracies = run.compared("accuracy")
    own = {} if accuracies is None else accuracies.own or {}
    for place, (name, value) in enumerate(own.items()):
        rows.append(row(name, value, style.own_colour(place)))
    if accuracies is not None and accuracies.sampled is not None:
        sampled = accuracies.sampled
        errors = (sampled.mcse, sampled.binomial_error)
        rows.append(AccuracyRow(run.sampled_label, sampled.value, style.SAMPLED, *errors))
    gaussian_process = run.theory_values("accuracy_gp")
    if gaussian_process is not None:
        rows.append(row(style.LIMIT, float(gaussian_process), style.GAUSSIAN_PROCESS))
    if run.theory is None:
        return draw_accuracy(rows, run.setting) if rows else None
    if "accuracy_gp_subnetwork" in run.theory:
        limits = run.theory["accuracy_gp_subnetwork"]
        for place, label in enumerate(limits["subnetwork"].values):
            value, colour = float(limits.values[place]), subnetwork_colour(place)
            rows.append(row(f"{style.LIMIT}, only {label}", value, colour))
    variants = {
        "accuracy_diagonal_only": (DIAGONAL_ONLY, style.GREY),
        "accuracy_equal_diagonal": (EQUAL_DIAGONAL, style.PURPLE),
    }
    for name, (label, colour) in variants.items():
        if name in run.theory:
            rows.append(row(label, float(run.theory[name]), colour))
    return draw_accuracy(rows, run.setting)


def accuracy_of_sweep(sweep: SweepResults) -> Figure | None:
    """Accuracies along a sweep; None where temperatures were chosen, which has its own figure."""
    table = sweep.table
    theory = table.values("accuracy_theory")
    known = (theory, table.values("accuracy_sampled"))
    if is_temperature_choice(sweep) or not any(np.isfinite(a).any() for a in known):
        return None
    curves = AccuracyCurves(
        theory=theory,
        gaussian_process=table.values("accuracy_gp"),
        subnetworks={label: table.subnetwork_accuracy(label) for label in table.subnetworks},
        diagonal_only=table.values("accuracy_diagonal_only"),
        equal_diagonal=table.values("accuracy_equal_diagonal"),
        sampled=_sampled_accuracies(sweep),
        next_order=table.values("accuracy_next_order"),
        own=_own_accuracies(sweep),
        tests=_tests(sweep),
    )
    temperatures = {run.temperature for run in sweep.runs if run is not None}
    setting = temperature_text(temperatures.pop() if len(temperatures) == 1 else None)
    names = tuple(
        short_label(sweep.settings[point]) if point in sweep.settings else point
        for point in table.points
    )
    return draw_accuracy_against_width(curves, table.widths, names, setting)


def _own_accuracies(sweep: SweepResults) -> dict[str, np.ndarray]:
    """Name of a theory of the user's own → its accuracy [row], where it was compared."""
    found = [
        {} if run is None or (one := run.compared("accuracy")) is None else one.own or {}
        for run in sweep.runs
    ]
    names = dict.fromkeys(name for own in found for name in own)
    return {name: np.array([own.get(name, np.nan) for own in found]) for name in names}


def _tests(sweep: SweepResults) -> int | None:
    """The number of test examples, where it is the same at all points."""
    tables = [run.theory for run in sweep.runs if run is not None and run.theory is not None]
    sizes = {table.sizes.get("test_example") for table in tables}
    return sizes.pop() if len(sizes) == 1 else None


SPACES = {"order_parameters": "", "upper_weights": ", upper weights", "weights": ", all weights"}


def _sampled_accuracies(sweep: SweepResults) -> list[SampledAccuracy]:
    table, runs = sweep.table, sweep.runs
    accuracy = table.values("accuracy_sampled")
    spaces = np.array(table.columns.get("sampled_space", ("",) * len(runs)))
    passed = np.array([run is None or run.diagnostics_passed for run in runs])
    return [
        SampledAccuracy(
            label=f"{style.EXACT}{SPACES.get(space, '')}",
            accuracy=np.where(spaces == space, accuracy, np.nan),
            mcse=table.values("accuracy_sampled_mcse"),
            binomial_error=table.values("accuracy_sampled_binomial"),
            diagnostics_passed=passed,
        )
        for space in dict.fromkeys(spaces[np.isfinite(accuracy)])
    ]


ACCURACY = style.FigureEntry(
    accuracy_of_run,
    "Accuracy on the test set. Theory and exact posterior should agree; their distance from "
    "infinite width is what finite width changes. The error of the test set is common to all.",
    "Points with error bars: accuracy of the theory, of the sampled exact posterior and of the "
    "network of infinite width, one per row.",
)
ACCURACY_AGAINST_WIDTH = style.FigureEntry(
    accuracy_of_sweep,
    "Accuracy on the test set along the sweep: theory, exact posterior, infinite width.",
    "Accuracy at every point of the sweep: theory, sampled exact posterior with error bars, "
    "and infinite width.",
    of=("sweep",),
)
