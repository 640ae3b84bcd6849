"""Predictions on the test set: accuracy of sweeps, theory against draws, calibration."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from sampler.analysis.compared import Compared
from sampler.analysis.predictive_quality import PredictiveQuality, Quality, ReliabilityBin
from sampler.analysis.results import RunResults, temperature_text
from sampler.analysis.sweeps import GAUSSIAN_PROCESS_PREFIX, SweepResults
from sampler.presentation import style
from sampler.recipes.settings import short_label
from theory.observables import labels_are_classes

ACCURACY_TITLE = "Accuracy on the test set"
MOST_LABELS = 24
# Name of a restricted theory's accuracy → its label, colour and marks.
RESTRICTED = {
    "accuracy_diagonal_only": (f"{style.LEADING}, $U_1$ diagonal only", style.GREY, "+", ":"),
    "accuracy_equal_diagonal": (f"{style.LEADING}, $U_1$ equal diagonal", style.PURPLE, "x", ":"),
}
PREDICTOR_TITLE = "Predictor on the test set"
MOMENTS = {"predictor_mean": "mean $m(x)$", "predictor_variance": "variance $v(x)$"}
MOST_IN_THREE_COLUMNS = 5  # entries of a legend
LARGEST_VECTOR_DRAWING = 5000  # points; beyond this the SVG holds them as one picture
POINTS = {"fmt": "o", "markersize": 2.5, "capsize": 0.0, "markeredgewidth": 0.0}


def of_subnetwork(place: int, name: str) -> tuple[str, str]:
    """Return label and colour of the infinitely wide sub-network at a place of the list."""
    return f"{style.LIMIT}, only {name}", style.SUBNETWORKS[place % len(style.SUBNETWORKS)]


def draw_accuracy_against_width(sweep: SweepResults) -> Figure | None:
    """Draw every accuracy of a sweep against the width, on a logarithmic axis.

    Where something else was swept the points stand side by side under their names.
    """
    widths = sweep.widths
    known = (sweep.numbers("accuracy_theory"), sweep.numbers("accuracy_sampled"))
    if not np.isfinite(known).any():
        return None
    temperatures = {run.temperature for run in sweep.runs if run is not None}
    setting = temperature_text(temperatures.pop() if len(temperatures) == 1 else None)
    figure = style.new_figure(style.WIDTH, 6.2 if widths is None else 5.2, ACCURACY_TITLE, setting)
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
    # Where both orders and the samples coincide all are seen: a dot on a diamond in a ring.
    first, wide = {"markersize": 3.5, "zorder": 6}, {"markersize": 16.0, "markeredgewidth": 2.0}
    second = {"markersize": 11.0, "markerfacecolor": "none", "zorder": 3.5}
    of_order = {style.LEADING: ("o", "-", first), style.NEXT: ("o", (0, (4, 1)), second)}
    lines = [(*one, *of_order.get(one[0], ("P", "-", first))) for one in theories]
    level, black = "" if curve else "_", style.GAUSSIAN_PROCESS
    lines.append((style.OWN_LIMIT, sweep.numbers("accuracy_gp_own"), black, level, "-", wide))
    lines.append((style.LIMIT, sweep.numbers("accuracy_gp"), black, level, "--", wide))
    for place, name in enumerate(sweep.subnetworks):
        label, colour = of_subnetwork(place, name)
        lines.append(
            (label, sweep.numbers(GAUSSIAN_PROCESS_PREFIX + name), colour, level, "-.", wide)
        )
    for name, (label, *shape) in RESTRICTED.items():
        thin = {"linewidth": 1.2, "markersize": 7.0, "markeredgewidth": 1.5, "zorder": 7}
        lines.append((label, sweep.numbers(name), *shape, thin))
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
            style.accuracy_errors(ax, *points, *errors, style.SAMPLED)
            face = style.SAMPLED if passed else "white"
            ax.plot(*points, "Dv^s"[place % 4], markerfacecolor=face, label=label, **marks)


# --- theory against draws, and calibration


def draw_predictor(run: RunResults) -> Figure | None:
    """Draw sampled mean and variance of f against those of every theory, a panel for each."""
    found = {symbol: run.compared(key) for key, symbol in MOMENTS.items()}
    found = {
        symbol: one for symbol, one in found.items() if one and (one.own or one.theory is not None)
    }
    if not found:
        return None
    width = style.WIDTH if len(found) > 1 else 3.6
    figure = style.new_figure(width, 3.7, PREDICTOR_TITLE, run.setting)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for ax, (symbol, compared) in zip(panels, found.items(), strict=True):
        _draw_scatter(ax, compared)
        ax.set_title(symbol)
        ax.set_xlabel("theory")
        # A warning in brackets on a line of its own: both do not fit beside one axis.
        ax.set_ylabel(style.bracket_below(run.sampled_label))
    handles, labels = panels[0].get_legend_handles_labels()
    marks = [
        Line2D([], [], color=one[0].get_color(), marker="o", linestyle="none")
        if isinstance(one, ErrorbarContainer)
        else one
        for one in handles
    ]
    values = next(iter(found.values())).sampled.value.size
    title = {"title": f"{values} values, bars ±1 MCSE", "title_fontsize": 9.0}
    columns = 3 if len(labels) <= MOST_IN_THREE_COLUMNS else 2
    style.legend_below(figure, (marks, labels), columns, **title)
    return figure


def _draw_scatter(ax: Axes, compared: Compared) -> None:
    """Draw the samples against every theory, and the line of equality."""
    sampled = np.ravel(compared.sampled.value)
    mcse = np.nan_to_num(np.ravel(compared.sampled.mcse))
    shown = [sampled]
    theories = style.coloured_theories(compared.theory, compared.next_order, compared.own)
    for place, (name, values, colour) in enumerate(theories):
        theory = np.ravel(values)
        # The first ones on top: of those that follow, a wrong one scatters over everything.
        marks = {"color": colour, "alpha": 0.4, "elinewidth": 0.8, "zorder": 3.0 - 0.1 * place}
        _draw_points(ax, theory, sampled, mcse, label=name, **marks)
        shown.append(theory)
    ax.axline((0.0, 0.0), slope=1.0, color=style.GREY, linewidth=1.0, zorder=0, label="equal")
    both = np.concatenate(shown)
    both = both[np.isfinite(both)]
    if both.size:
        margin = 0.05 * np.ptp(both) or 0.5
        # One range for both axes makes the line of equality the diagonal.
        limits = (both.min() - margin, both.max() + margin)
        ax.set(xlim=limits, ylim=limits)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(4))
    ax.set_aspect("equal")


def _draw_points(ax: Axes, x: np.ndarray, y: np.ndarray, error: np.ndarray, **marks) -> None:
    """Draw points with error bars, as one picture where there are very many."""
    container = ax.errorbar(x, y, error, **POINTS, **marks)
    if x.size > LARGEST_VECTOR_DRAWING:
        for artist in container.get_children():
            artist.set_rasterized(True)


def draw_sampled_predictor(run: RunResults) -> Figure | None:
    """Draw posterior mean and deviation of f, in ascending order of the mean, without a theory.

    Where labels are classes, those that the value speaks for are told from the others by colour.
    """
    tables = [run.compared(key) for key in MOMENTS]
    if run.theory is not None or None in tables:
        return None
    mean, variance = (table.sampled.value.ravel() for table in tables)
    figure = style.new_figure(style.WIDTH, 4.2, PREDICTOR_TITLE, run.setting)
    ax = figure.subplots()
    rank = np.argsort(np.argsort(mean, kind="stable"))
    for shown, colour, name in _groups(mean.size, run.labels_test):
        marks = {"color": colour, "alpha": 0.6, "elinewidth": 0.5, "label": name}
        _draw_points(ax, rank[shown], mean[shown], np.sqrt(variance[shown]), **marks)
    ax.axhline(0.0, color=style.GREY, linewidth=1.0, zorder=0)
    ax.set_xlabel("test values in ascending order")
    ax.set_ylabel(f"{run.sampled_label}\nmean of $f(x)$, bars ±1 posterior deviation")
    style.legend_below(figure)
    return figure


def _groups(size: int, labels: np.ndarray | None) -> list[tuple[np.ndarray, str, str]]:
    """List which values belong together, their colour and their name."""
    if labels is None or labels.size != size or not labels_are_classes(labels):
        return [(np.ones(size, bool), style.VERMILLION, f"{size} test values")]
    if labels.shape[1] == 1:
        positive, names = labels[:, 0] > 0, ("class +", "class −")
    else:
        positive = (labels == labels.max(axis=1, keepdims=True)).ravel()
        names = ("its class", "another class")
    return [(positive, style.VERMILLION, names[0]), (~positive, style.BLUE, names[1])]


def draw_reliability(run: RunResults) -> Figure | None:
    """Draw each predictor's reliability bins in a panel of its own, and how full the bins are.

    None if nothing of the quality is known. Bars are Wilson intervals of one standard deviation,
    by the finite number of test examples in each bin.
    """
    quality = run.compared("predictive_quality") or PredictiveQuality(None, None, None)
    panels = style.coloured_theories(quality.theory, quality.next_order, quality.own)
    panels += [
        (run.sampled_label, quality.sampled, style.SAMPLED),
        (style.OWN_LIMIT, quality.gp_own, style.GAUSSIAN_PROCESS),
        (style.LIMIT, quality.gp, style.GAUSSIAN_PROCESS),
    ]
    panels = [panel for panel in panels if panel[1] is not None]
    if not panels:
        return None
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    width = style.WIDTH if columns > 1 else 3.6
    figure = style.new_figure(width, 3.8 * rows + 0.6, "Calibration on the test set", run.setting)
    axes = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[3.0, 1.0] * rows)
    fullest = max(one.count for _, found, _ in panels for one in found.reliability)
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        above, below = axes[2 * row, column], axes[2 * row + 1, column]
        if place >= len(panels):
            above.set_axis_off()
            below.set_axis_off()
            continue
        name, found, colour = panels[place]
        _draw_bins(above, below, found.reliability, colour)
        above.set_title(f"{name}\n{_calibration_text(found)}")
        above.set_xticklabels([])
        below.set(xlim=above.get_xlim(), ylim=(0.0, 1.05 * fullest))
        if column == 0:
            above.set_ylabel("share of labels +1")
            below.set_ylabel("labels")
        if place + columns >= len(panels):
            below.set_xlabel("predicted probability of +1")
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels())
    return figure


def _draw_bins(above: Axes, below: Axes, bins: Sequence[ReliabilityBin], colour: str) -> None:
    """Draw the share of labels +1 in every bin, and below it the number of labels."""
    low, high, count, predicted, fraction = (
        np.array([getattr(row, key) for row in bins], dtype=float)
        for key in ("low", "high", "count", "mean_probability", "fraction")
    )
    ends = np.array([row.interval() for row in bins]).T
    # Rounding may put the end of an interval that reaches 0 or 1 on the wrong side of its share.
    bars = np.maximum([fraction - ends[0], ends[1] - fraction], 0.0)
    line = {"color": style.GREY, "linewidth": 1.0, "zorder": 0, "label": "calibrated"}
    above.plot([0.0, 1.0], [0.0, 1.0], **line)
    marks = {"fmt": "o-", "markersize": 4.0, "color": colour}
    above.errorbar(predicted, fraction, bars, label="bins, bars ±1 standard error", **marks)
    above.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    below.bar(low, count, width=high - low, align="edge", color=colour, alpha=0.4)


def _calibration_text(found: Quality) -> str:
    """Write the calibration error, and what chance makes of it in a calibrated predictor."""
    error = found.expected_calibration_error
    return (
        f"ECE {error.value:.3f} ± {error.error:.3f}\n"
        f"(if calibrated: {error.if_calibrated:.3f} ± {error.if_calibrated_deviation:.3f})"
    )


ACCURACY_AGAINST_WIDTH = style.FigureEntry(
    draw_accuracy_against_width,
    "Accuracy on the test set along the sweep: theory, exact posterior, infinite width.",
    "Accuracy at every point of the sweep: theory, sampled exact posterior with error bars, "
    "and infinite width.",
    of=("sweep",),
)
PREDICTOR = style.FigureEntry(
    draw_predictor,
    "The predictor, a point per test example: exact posterior against every theory. They agree "
    "on the line.",
    "Scatter plots over the test set: sampled mean and variance of the predictor against those "
    "of the theory, with the line of equality.",
)
PREDICTOR_SAMPLED = style.FigureEntry(
    draw_sampled_predictor,
    "The predictor over the test set, by the samples alone.",
    "Sampled mean and deviation of the predictor over the test set, without a theory beside.",
)
RELIABILITY = style.FigureEntry(
    draw_reliability,
    "Calibration on the test set: where a probability is predicted, that share of labels "
    "should be +1, as on the diagonal.",
    "Share of labels +1 against the predicted probability of +1, with error bars, for theory, "
    "samples and infinite width; below, how many labels each bin holds.",
)
