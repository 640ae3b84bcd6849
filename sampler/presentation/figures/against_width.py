"""Figure of a sweep over widths: theory and exact posterior approach each other."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from sampler.analysis.difference import element_bound, largest_by_chance
from sampler.analysis.finite_size import FiniteSize
from sampler.analysis.predictors import LEADING, NEXT, is_users, predictor_name
from sampler.analysis.results import temperature_text
from sampler.analysis.sweep_results import SweepResults
from sampler.posterior.spaces import ORDER_PARAMETERS
from sampler.presentation import style

MOST_PATHS, COLUMNS = 4, 2
# Marker of the differences of a theory, and dashes of its values; of users' theories the last.
LOOKS = {LEADING: ("o", "-"), NEXT: ("s", (0, (4, 1)))}
OF_USERS = ("D", (0, (1, 1)))


def draw_finite_size(sweep: SweepResults) -> Figure | None:
    """Draw the diagonal of U_1 against width, and below it |theory − exact| with its power law.

    Both with the next order and with the user's theories, where they are known. None unless widths
    were swept.
    """
    table, solved = sweep.finite_size, sweep.solved
    if table is None:
        return None
    names = table.paths[:MOST_PATHS]
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    title = "$U_1$: theory against exact posterior"
    setting = temperature_text(None if solved is None else solved.temperature)
    width = style.WIDTH if columns > 1 else 3.8
    figure = style.new_figure(width, 5.4 * rows + 1.0, title, setting)
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    for path, name in enumerate(names):
        row, column = divmod(path, columns)
        above, below = axes[2 * row, column], axes[2 * row + 1, column]
        above.set_title(name)
        draw_values(above, table, path)
        if ORDER_PARAMETERS in table.sampled:
            draw_differences(below, table, path)
        set_scales(above, below)
        if column == 0:
            above.set_ylabel("diagonal of $U_1$")
            below.set_ylabel("|theory − exact|")
    for ax in axes.flat:
        if not ax.has_data():
            ax.set_axis_off()
    entries = [ax.get_legend_handles_labels() for ax in axes.flat]
    by_label = {label: handle for pair in entries for handle, label in zip(*pair, strict=True)}
    style.legend_below(figure, (list(by_label.values()), list(by_label)))
    return figure


def set_scales(above: Axes, below: Axes) -> None:
    """Make both axes of a path logarithmic, over the same widths and over whole decades."""
    for ax in (above, below):
        ax.set(xscale="log", yscale="log")
        # Without error bars: matplotlib 3.10 counts their logarithms among the data.
        ax.relim()
        ax.autoscale_view()
        ax.xaxis.set_major_locator(LogLocator(numticks=12))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(color=style.GRID, linewidth=0.8)
    low, high = np.log10(below.get_ylim())
    below.set_ylim(10.0 ** np.floor(low), 10.0 ** np.ceil(high))
    below.set_xlabel("width $N$")
    above.set_xlim(below.get_xlim())
    above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    above.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    above.yaxis.set_minor_formatter(NullFormatter())


def theories_of(table: FiniteSize) -> dict[str, tuple[str, str, object]]:
    """Both orders and the user's theories: name → colour, marker, dashes."""
    names = [name for name in table.predicted if name in LOOKS or is_users(name)]
    return {name: (style.colour_of(name, names), *LOOKS.get(name, OF_USERS)) for name in names}


def draw_values(ax: Axes, table: FiniteSize, path: int) -> None:
    """Draw U_1 of theories as lines, and of the samples of every space as points.

    Samples whose diagnostics failed are crosses, as below.
    """
    for name, (colour, _, dashes) in theories_of(table).items():
        values = table.predicted[name][:, path, path]
        if np.isfinite(values).any():
            ax.plot(
                table.widths, values, color=colour, linestyle=dashes, label=predictor_name(name)
            )
    for (space, label), marker in zip(style.SPACES.items(), "osD", strict=True):
        if space in table.sampled:
            sampled = table.sampled[space]
            mean, mcse = (of[:, path, path] for of in (sampled.values, sampled.errors))
            marks = {"color": style.SAMPLED, "linestyle": "none", "markersize": 5}
            marks["fillstyle"] = "full" if space == ORDER_PARAMETERS else "none"
            kinds = (
                (sampled.trusted, marker, "± MCSE"),
                (~sampled.trusted, "x", "diagnostics failed"),
            )
            for shown, of_kind, text in kinds:
                if shown.any():
                    points = sampled.widths[shown], mean[shown], mcse[shown]
                    ax.errorbar(*points, label=f"{label} ({text})", marker=of_kind, **marks)


def draw_differences(ax: Axes, table: FiniteSize, path: int) -> None:
    """Draw |theory − exact| with errors where theory and samples differ, elsewhere its bound.

    They differ by the limit of all elements of U_1 at once. Dashed lines are power laws, over a
    band of the widths that they are fitted to.
    """
    exact, slopes = table.sampled[ORDER_PARAMETERS], []
    elements = len(table.paths) * (len(table.paths) + 1) // 2
    limits = np.array([largest_by_chance(elements, one) for one in exact.degrees])
    for name, (colour, marker, _) in theories_of(table).items():
        difference = table.difference(name)[:, path, path]
        if not np.isfinite(difference).any():
            continue
        error = exact.errors[:, path, path]
        size, failed = np.abs(difference), np.isfinite(difference) & ~exact.trusted
        differs = (size > limits * error) & exact.trusted
        hidden = (size <= limits * error) & exact.trusted
        label = predictor_name(name)
        fill = "full" if name == LEADING else "none"
        marks = {"color": colour, "linestyle": "none", "fillstyle": fill}
        if differs.any():
            bars = {"marker": marker, "markersize": 4, "label": f"|{label} − exact| (± MCSE)"}
            ax.errorbar(exact.widths[differs], size[differs], error[differs], **bars, **marks)
        if hidden.any():
            bounds = {"marker": "v", "markersize": 5, "label": f"{label}: unresolved, below"}
            below = [*map(element_bound, size[hidden], error[hidden], exact.degrees[hidden])]
            ax.plot(exact.widths[hidden], below, **bounds, **marks)
        if failed.any():
            crosses = {"marker": "x", "markersize": 5, "label": f"{label}: diagnostics failed"}
            ax.plot(exact.widths[failed], size[failed], **crosses, **marks)
        laws = table.power_laws(name)
        if laws and np.isfinite(laws[path].slope):
            law = laws[path]
            widths = np.array(law.widths, dtype=float)
            line = {"color": colour, "linestyle": "--", "label": f"fitted power law, {label}"}
            ax.plot(widths, abs(law.prefactor) * widths**law.slope, **line)
            ax.axvspan(widths[0], widths[-1], color=colour, alpha=0.06, linewidth=0.0, zorder=0)
            range_text = " to ".join(width_text(end) for end in widths[[0, -1]])
            slope = style.minus_signs(f"slope {law.slope:.2f} ± {law.slope_error:.2f}")
            slopes.append((f"{slope}, $N$ = {range_text}", colour))
    for place, (text, colour) in enumerate(reversed(slopes)):
        marks = {"xytext": (0, 4 + 11 * place), "textcoords": "offset points", "fontsize": 8.0}
        ax.annotate(text, (0.0, 1.0), xycoords="axes fraction", color=colour, **marks)


def width_text(width: float) -> str:
    """Write a width, from ten thousand on as a power of ten where it is one."""
    power = np.log10(width)
    return f"10$^{{{power:.0f}}}$" if power >= 4 and power == round(power) else f"{width:,.0f}"


FINITE_SIZE = style.FigureEntry(
    draw_finite_size,
    "Theory and exact posterior approach each other as the width grows: above the diagonal of "
    "U₁, below the difference with a fitted power law, of the leading and, where it is known, of "
    "the next order in 1/N, and of further theories.",
    "Diagonal of U₁ against width for theory and samples, and below their difference with its "
    "power law.",
    of=("sweep",),
)
