"""Figure of a sweep over widths: theory and exact posterior approach each other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sampler.analysis.estimates import RESOLVED_MCSE
from sampler.analysis.finite_size import FiniteSize, SampledByWidth
from sampler.analysis.power_law import PowerLaw
from sampler.analysis.predictors import LEADING, NEXT, is_users, predictor_name
from sampler.analysis.results import temperature_text
from sampler.analysis.sweeps import SweepResults
from sampler.posterior.spaces import ORDER_PARAMETERS
from sampler.presentation import style

# The space whose draws theories are compared with.
MOST_PATHS = 4
COLUMNS = 2
# Where matplotlib keeps the titles of a panel apart; all begin on the left.
SIDES = ("left", "center", "right")


@dataclass(frozen=True)
class TheoryByWidth:
    """A theory in the figure of finite size.

    colour      and marker of its differences, dashes of its values
    values      its U_1 [width, path, path_] at `widths`
    difference  from the exact posterior, [width, path, path_] at the widths of the samples
    laws        power laws of the differences, one for each path; none where nothing was fitted
    """

    name: str
    colour: str
    marker: str
    dashes: Any
    widths: np.ndarray
    values: np.ndarray
    difference: np.ndarray | None
    laws: list[PowerLaw]


LOOKS = {LEADING: ("o", "-"), NEXT: ("s", (0, (4, 1)))}


def theories_by_width(table: FiniteSize) -> list[TheoryByWidth]:
    """Both orders and the user's theories."""
    names = [name for name in table.predicted if name in LOOKS or is_users(name)]
    sampled = ORDER_PARAMETERS in table.sampled
    return [
        TheoryByWidth(
            predictor_name(name),
            style.colour_of(name, names),
            *LOOKS.get(name, ("D", (0, (1, 1)))),
            table.widths,
            table.predicted[name],
            table.difference(name) if sampled else None,
            table.power_laws(name),
        )
        for name in names
    ]


def draw_finite_size(sweep: SweepResults) -> Figure | None:
    """Draw the diagonal of U_1 against width, and below it |theory − exact| with its power law.

    Both with the next order and with the user's theories, where they are known. None unless widths
    were swept.
    """
    table, solved = sweep.finite_size, sweep.solved
    if table is None:
        return None
    setting = temperature_text(None if solved is None else solved.temperature)
    names = table.paths[:MOST_PATHS]
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    title = "Order parameter $U_1$: theory against exact posterior"
    width = style.WIDTH if columns > 1 else 3.8
    figure = style.new_figure(width, 5.4 * rows + 1.0, title, setting)
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    theories = theories_by_width(table)
    for path, name in enumerate(names):
        row, column = divmod(path, columns)
        above, below = axes[2 * row, column], axes[2 * row + 1, column]
        above.set_title(name)
        _draw_values(above, theories, table.sampled, path)
        exact = table.sampled.get(ORDER_PARAMETERS)
        if exact is not None:
            _draw_differences(below, theories, exact, path)
        below.set_xlabel("width $N$")
        for ax in (above, below):
            ax.set(xscale="log", yscale="log")
            # Without error bars: matplotlib 3.10 counts their logarithms among the data.
            ax.relim()
            ax.autoscale_view()
        # A decade or less has one power of ten or none: widened, or with ticks in between.
        low, high = np.log10(below.get_ylim())
        below.set_ylim(10.0 ** np.floor(low), 10.0 ** np.ceil(high))
        above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        above.yaxis.set_minor_formatter(NullFormatter())
        above.set_xlim(below.get_xlim())
        for ax in (above, below):
            ax.xaxis.set_major_locator(LogLocator(numticks=12))
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.grid(color=style.GRID, linewidth=0.8)
        if column == 0:
            above.set_ylabel("diagonal of $U_1$")
            below.set_ylabel("|theory − exact|")
    for ax in axes.flat:
        if not ax.has_data():
            ax.set_axis_off()
    entries = [ax.get_legend_handles_labels() for ax in axes[:2, 0]]
    style.legend_below(figure, tuple(one + other for one, other in zip(*entries, strict=True)))
    return figure


def _of_path(values: np.ndarray | None, path: int) -> np.ndarray | None:
    """Return a diagonal element at every width; None where it is not known at any."""
    found = None if values is None else values[:, path, path]
    return None if found is None or not np.isfinite(found).any() else found


def _draw_values(
    ax: Axes, theories: list[TheoryByWidth], sampled: dict[str, SampledByWidth], path: int
) -> None:
    """Draw U_1 of theories as lines, and of the samples of every space as points."""
    for one in theories:
        values = _of_path(one.values, path)
        if values is not None:
            ax.plot(one.widths, values, color=one.colour, linestyle=one.dashes, label=one.name)
    for (space, label), marker in zip(style.SPACES.items(), "osD", strict=True):
        found = sampled.get(space)
        if found is not None:
            mean, mcse = (of[:, path, path] for of in (found.values, found.errors))
            marks = {"color": style.SAMPLED, "marker": marker, "linestyle": "none", "markersize": 5}
            fill = "full" if space == ORDER_PARAMETERS else "none"
            label = f"{label} (± MCSE)"
            ax.errorbar(found.widths, mean, mcse, label=label, fillstyle=fill, **marks)


def _draw_differences(
    ax: Axes, theories: list[TheoryByWidth], exact: SampledByWidth, path: int
) -> None:
    """Draw |theory − exact| of every theory, and the power laws that were fitted."""
    laws = []
    for one in theories:
        difference = _of_path(one.difference, path)
        if difference is None:
            continue
        _draw_difference(ax, one, exact, difference, path)
        if one.laws and np.isfinite(one.laws[path].slope):
            laws.append((one, one.laws[path]))
    for place, (one, law) in enumerate(laws):
        fitted = np.array(law.widths, dtype=float)
        line = {"color": one.colour, "linestyle": "--", "label": f"fitted power law, {one.name}"}
        ax.plot(fitted, abs(law.prefactor) * fitted**law.slope, **line)
        ax.axvspan(fitted[0], fitted[-1], color=one.colour, alpha=0.06, linewidth=0.0, zorder=0)
        text = style.minus_signs(f"slope {law.slope:.2f} ± {law.slope_error:.2f}")
        text += f", $N$ = {_width_text(fitted[0])} to {_width_text(fitted[-1])}"
        # The first one on a line of its own above the last one.
        text += "\n " * (len(laws) - 1 - place)
        title = ax.set_title(text, fontsize=8.0, color=one.colour, loc=SIDES[place])
        title.set(x=0.0, horizontalalignment="left")


def _width_text(width: float) -> str:
    """Write a width, from ten thousand on as a power of ten where it is one."""
    power = np.log10(width)
    return f"10$^{{{power:.0f}}}$" if power >= 4 and power == round(power) else f"{width:,.0f}"


def _draw_difference(
    ax: Axes, theory: TheoryByWidth, exact: SampledByWidth, difference: np.ndarray, path: int
) -> None:
    """Draw |theory − exact| with errors where it is resolved, elsewhere what it is below."""
    known = np.isfinite(difference)
    widths, mcse = exact.widths[known].astype(float), exact.errors[:, path, path][known]
    trusted = exact.trusted[known]
    size = np.abs(difference[known])
    resolved = (size > RESOLVED_MCSE * mcse) & trusted
    hidden = (size <= RESOLVED_MCSE * mcse) & trusted
    leading = theory.name == style.LEADING
    marks = {"color": theory.colour, "linestyle": "none"}
    fill = {"fillstyle": "full" if leading else "none"}
    ax.errorbar(
        widths[resolved], size[resolved], mcse[resolved], marker=theory.marker, markersize=4,
        label=f"|{theory.name} − exact| (± MCSE)", **fill, **marks,
    )  # fmt: skip
    limit = size[hidden] + RESOLVED_MCSE * mcse[hidden]
    label = f"{theory.name}: unresolved, below"
    ax.plot(widths[hidden], limit, marker="v", markersize=5, label=label, **fill, **marks)
    failed = "diagnostics failed" if leading and not trusted.all() else None
    ax.plot(widths[~trusted], size[~trusted], marker="x", markersize=5, label=failed, **marks)


FINITE_SIZE = style.FigureEntry(
    draw_finite_size,
    "Theory and exact posterior approach each other as the width grows: above the diagonal of "
    "U₁, below the difference with a fitted power law, of the leading and, where it is known, of "
    "the next order in 1/N, and of further theories.",
    "Diagonal of U₁ against width for theory and samples, and below their difference with its "
    "power law.",
    of=("sweep",),
)
