"""Figures of sweeps: theory and exact posterior by width, chosen temperatures, and variants."""

from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from sampler.analysis.estimate import RESOLVED_MCSE
from sampler.analysis.results import temperature_text
from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style
from sampler.recipes.settings import FORM, variant_name

# The space whose draws theories are compared with.
EXACT_SPACE = "order_parameters"
MOST_PATHS = 4
COLUMNS = 2
# Where matplotlib keeps the titles of a panel apart; all begin on the left.
SIDES = ("left", "center", "right")
# Of a line of the name of a variant.
LETTERS_OF_NAME = 24
WIDTH, TEMPERATURE = "network.widths", "posterior.temperature"
CRITERION = "accuracy"
VALIDATED = f"validation_{CRITERION}_theory"
# Column of the table, label, colour and marker of what a panel shows.
PANELS = {
    "off-diagonal\nshare of $U_1$": [("off_diagonal_share", None, style.GREY, "o")],
    "accuracy": [
        ("accuracy_theory", style.LEADING, style.THEORY, "o"),
        ("accuracy_sampled", style.EXACT, style.SAMPLED, "D"),
        ("accuracy_gp_own", style.OWN_LIMIT, style.GAUSSIAN_PROCESS, "P"),
        ("accuracy_gp", style.LIMIT, style.GAUSSIAN_PROCESS, "s"),
    ],
}


@dataclass(frozen=True)
class TheoryByWidth:
    """A theory in the figure of finite size.

    colour      and marker of its differences, dashes of its values
    values      its U_1 [width, path, path_] at `widths`
    difference  from the exact posterior, [width, path, path_] at the widths of the samples
    laws        power laws of the differences, one for each path
    """

    name: str
    colour: str
    marker: str
    dashes: Any
    widths: list
    values: Any
    difference: Any
    laws: list | None = None


def theories_by_width(table: dict) -> list[TheoryByWidth]:
    """List both orders and the user's theories as `finite_size.json` has them."""
    theory, exact = table["theory"], table["sampled"].get(EXACT_SPACE) or {}
    found = [
        TheoryByWidth(
            name, colour, marker, dashes, theory["widths"],
            theory.get(f"order_parameter{suffix}"), exact.get(f"difference{suffix}"),
            table.get(f"power_laws{suffix}"),
        )
        for suffix, name, colour, marker, dashes in (
            ("", style.LEADING, style.THEORY, "o", "-"),
            ("_next_order", style.NEXT, style.NEXT_ORDER, "s", (0, (4, 1))),
        )
    ]  # fmt: skip
    for place, (name, values) in enumerate(exact.get("own", {}).items()):
        gap = np.array(values, dtype=float) - np.array(exact["order_parameter"], dtype=float)
        looks = (style.own_colour(place), "D", (0, (1, 1)))
        found.append(TheoryByWidth(name, *looks, exact["widths"], values, gap))
    return found


def draw_finite_size(sweep: SweepResults) -> Figure | None:
    """Draw the diagonal of U_1 against width, and below it |theory − exact| with its power law.

    Both with the next order and with the user's theories, where they are known. None unless widths
    were swept.
    """
    table, solved = sweep.finite_size, sweep.solved
    if table is None:
        return None
    setting = temperature_text(None if solved is None else solved.temperature)
    names = table["paths"][:MOST_PATHS]
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
        _draw_values(above, theories, table["sampled"], path)
        exact = table["sampled"].get(EXACT_SPACE)
        if exact:
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


def _of_path(values: Any, path: int) -> np.ndarray | None:
    """Return a diagonal element at every width; None where it is not known at any."""
    found = None if values is None else np.array(values, dtype=float)[:, path, path]
    return None if found is None or not np.isfinite(found).any() else found


def _draw_values(ax: Axes, theories: list[TheoryByWidth], sampled: dict, path: int) -> None:
    """Draw U_1 of theories as lines, and of the samples of every space as points."""
    for one in theories:
        values = _of_path(one.values, path)
        if values is not None:
            ax.plot(one.widths, values, color=one.colour, linestyle=one.dashes, label=one.name)
    for (space, label), marker in zip(style.SPACES.items(), "osvD", strict=True):
        found = sampled.get(space)
        if found:
            mean, mcse = (
                np.array(found[key], dtype=float)[:, path, path]
                for key in ("order_parameter", "mcse")
            )
            marks = {"color": style.SAMPLED, "marker": marker, "linestyle": "none", "markersize": 5}
            fill = "full" if space == EXACT_SPACE else "none"
            label = f"{label} (± MCSE)"
            ax.errorbar(found["widths"], mean, mcse, label=label, fillstyle=fill, **marks)


def _draw_differences(ax: Axes, theories: list[TheoryByWidth], exact: dict, path: int) -> None:
    """Draw |theory − exact| of every theory, and the power laws that were fitted."""
    laws = []
    for one in theories:
        difference = _of_path(one.difference, path)
        if difference is None:
            continue
        _draw_difference(ax, one, exact, difference, path)
        law = (one.laws or [{}] * (path + 1))[path]
        if law.get("slope") is not None:
            laws.append((one, law))
    for place, (one, law) in enumerate(laws):
        fitted = np.array(law["widths"], dtype=float)
        line = {"color": one.colour, "linestyle": "--", "label": f"fitted power law, {one.name}"}
        ax.plot(fitted, abs(law["prefactor"]) * fitted ** law["slope"], **line)
        ax.axvspan(fitted[0], fitted[-1], color=one.colour, alpha=0.06, linewidth=0.0, zorder=0)
        text = style.minus_signs(f"slope {law['slope']:.2f} ± {law['slope_error']:.2f}")
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
    ax: Axes, theory: TheoryByWidth, exact: dict, difference: np.ndarray, path: int
) -> None:
    """Draw |theory − exact| with errors where it is resolved, elsewhere what it is below."""
    known = np.isfinite(difference)
    widths, mcse = np.array(exact["widths"], float)[known], _of_path(exact["mcse"], path)[known]
    trusted = np.array(exact.get("trusted", [True] * len(known)))[known]
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


def draw_temperature_choice(sweep: SweepResults) -> Figure | None:
    """Draw a sweep over widths and temperatures; None if the sweep is another one.

    Above: accuracy on the test set at the temperature chosen for each width. Below: accuracy of the
    theory on the validation split over the grid, the choice marked. Accuracies that do not depend
    on the posterior are those of the first point that has a theory.
    """
    if not is_temperature_choice(sweep):
        return None
    selection, grid = chosen_by_width(sweep), sweep.dataset
    title = "Temperatures chosen on the validation split for each width"
    figure = style.new_figure(style.WIDTH, 9.2, title)
    above, below = figure.subplots(2, 1)
    _draw_chosen(above, selection, grid, None if sweep.solved is None else sweep.solved.theory)
    _draw_choices(below, grid[VALIDATED].transpose(TEMPERATURE, WIDTH), selection)
    bar = figure.colorbar(below.images[0], ax=below, label="accuracy (%)")
    bar.outline.set_visible(False)
    style.legend_below(figure, above.get_legend_handles_labels())
    return figure


def is_temperature_choice(sweep: SweepResults) -> bool:
    """Tell whether temperatures were chosen, for each width, on a grid of both."""
    grid = sweep.dataset
    if chosen_by_width(sweep) is None or grid is None or VALIDATED not in grid:
        return False
    return set(grid[VALIDATED].dims) == {WIDTH, TEMPERATURE}


def chosen_by_width(sweep: SweepResults) -> list[dict] | None:
    """Return the choices of temperature, one for each width; None if something else was swept."""
    groups = (sweep.selection or {}).get("by_temperature", [])
    # Widths layer by layer have no place on an axis.
    by_width = all(
        set(group["settings"]) == {WIDTH} and isinstance(group["settings"][WIDTH], int)
        for group in groups
    )
    return groups if groups and by_width else None


def _chosen(group: dict, who: str) -> dict | None:
    """Return the choice of one predictor; None where the file knows nothing of it."""
    return group.get(who, {}).get(CRITERION)


def _draw_chosen(ax: Axes, groups: list[dict], grid: xr.Dataset, theory: xr.Dataset | None) -> None:
    """Draw accuracies on the test set at the temperature chosen for each width."""
    widths = [group["settings"][WIDTH] for group in groups]
    for who, label, colour, shape, marks in (
        ("theory", style.LEADING, style.THEORY, "o-", {"markersize": 5}),
        ("next_order", style.NEXT, style.NEXT_ORDER, "o--", {"markersize": 7, "fillstyle": "none"}),
        ("gp_own", style.OWN_LIMIT, style.GAUSSIAN_PROCESS, "-", {}),
        ("gp", style.LIMIT, style.GAUSSIAN_PROCESS, "--", {}),
    ):
        chosen = [_chosen(group, who) for group in groups]
        values = [np.nan if c is None else 100 * c["test_accuracy"]["value"] for c in chosen]
        if np.isfinite(values).any():
            ax.plot(widths, values, shape, color=colour, label=label, **marks)
    sampled = _draw_sampled(ax, groups, grid)
    for name, label, colour in (
        ("accuracy_trained", "trained network", style.GREEN),
        ("accuracy_nearest_neighbour", "pixels alone", style.GREY),
    ):
        if theory is not None and name in theory:
            ax.axhline(100 * float(theory[name]), color=colour, linestyle=":", label=label)
    ax.set(xscale="log", ylabel="accuracy on the test set (%)")
    ax.set_xlabel(f"width $N$\n{style.ERRORS}" if sampled else "width $N$")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:g}"))
    style.accuracy_axis(ax.yaxis)


def _draw_sampled(ax: Axes, groups: list[dict], grid: xr.Dataset) -> bool:
    """Draw samples where the theory chose, hollow where their diagnostics failed; tell if any."""
    labels: set[str] = set()
    for group in groups:
        chosen = _chosen(group, "theory")
        if chosen is None or "accuracy_sampled" not in grid:
            continue
        found = grid.sel({key: chosen["settings"][key] for key in (WIDTH, TEMPERATURE)})
        width = group["settings"][WIDTH]
        accuracy, mcse, binomial = (
            100 * float(found[f"accuracy_sampled{of}"]) for of in ("", "_mcse", "_binomial")
        )
        if not np.isfinite(accuracy):
            continue
        passed = _chosen(group, "sampled") is not None
        label = style.EXACT + ("" if passed else " (diagnostics failed)")
        style.accuracy_errors(ax, width, accuracy, mcse, binomial, style.SAMPLED)
        marks = {"fillstyle": "full" if passed else "none", "color": style.SAMPLED}
        shown = None if label in labels else label
        ax.plot(width, accuracy, "D", markersize=6, label=shown, **marks)
        labels.add(label)
    return bool(labels)


def _draw_choices(ax: Axes, accuracy: xr.DataArray, groups: list[dict]) -> None:
    """Draw accuracies of the theory on the validation split over the grid, and the choices."""
    temperatures, widths = list(accuracy[TEMPERATURE].values), list(accuracy[WIDTH].values)
    ax.imshow(100 * accuracy.values, cmap="viridis", origin="lower", aspect="auto")
    ax.set_xticks(range(len(widths)), [f"{width:g}" for width in widths], rotation=45)
    ax.set_yticks(range(len(temperatures)), [f"{value:g}" for value in temperatures])
    said = "○ chosen"
    both = any(_chosen(group, "next_order") for group in groups)
    for who, shape, marks in (
        ("theory", "o", {"color": "white", "mec": "black", "markersize": 11 if both else 6}),
        ("next_order", "X", {"color": style.NEXT_ORDER, "mec": "white"}),
    ):
        places = [
            (
                widths.index(group["settings"][WIDTH]),
                temperatures.index(chosen["settings"][TEMPERATURE]),
            )
            for group in groups
            if (chosen := _chosen(group, who)) is not None
        ]
        if places:
            ax.plot(*zip(*places, strict=True), shape, **marks)
            said += ", × to next order" if who == "next_order" else ""
    ax.set(xlabel="width $N$", ylabel=r"temperature $\mathcal{T}$")
    ax.set_title(f"{style.LEADING} on the validation split ({said})")


def draw_variant_comparison(sweep: SweepResults) -> Figure | None:
    """Draw the averages over seeds of attention variants, bars ±1 standard error.

    None unless a sweep over seeds leaves several attention variants and nothing else.
    """
    rows, key = sweep.seed_averages, f"{FORM}="
    if rows is None or len(rows) < 2 or not rows["settings"].str.startswith(key).all():
        return None
    names = [variant_name(text.removeprefix(key)) for text in rows["settings"]]
    if None in names:
        return None
    seeds = "/".join(map(str, sorted({*rows["points"]})))
    title = f"Attention variants: mean ± standard error over {seeds} seeds"
    names = [_in_lines(name) for name in names]
    figure = style.new_figure(style.WIDTH, 1.9 + 0.34 * len(rows), title)
    panels = figure.subplots(1, len(PANELS), sharey=True)
    places = np.arange(len(rows))
    for ax, (title, shown) in zip(panels, PANELS.items(), strict=True):
        for column, label, colour, marker in shown:
            mean, error = (
                np.array(rows.get(name, [np.nan] * len(rows)))
                for name in (column, f"{column}_error")
            )
            if np.isfinite(mean).any():
                marks = {"fmt": marker, "color": colour, "markersize": 5.0, "capsize": 2.5}
                marks["clip_on"] = False  # shares of 0 and 1 lie on the edge
                # Hollow, and first: what finite width leaves as it is stays to be seen.
                if marker == "s":
                    marks |= {"markersize": 8.0, "markerfacecolor": "none", "zorder": 1.5}
                ax.errorbar(mean, places, xerr=np.nan_to_num(error), label=label, **marks)
        ax.set_title(title)
        ax.grid(axis="both", color=style.GRID, linewidth=0.8)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        # Shares of 1: a tenth of a point must not look like all.
        ax.set_xlim(style.span_at_least(ax.get_xlim(), 0.01 * style.LEAST_POINTS, 1.0))
        ax.tick_params(axis="y", length=0)
        ax.set_yticks(places, names, linespacing=0.95)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    style.legend_below(figure, panels[-1].get_legend_handles_labels(), 3)
    return figure


def _in_lines(name: str) -> str:
    """Break the name of a variant where one of its settings ends."""
    bound = name.replace(" ", "\N{NO-BREAK SPACE}").replace(";\N{NO-BREAK SPACE}", "; ")
    lines = wrap(bound, LETTERS_OF_NAME, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


FINITE_SIZE = style.FigureEntry(
    draw_finite_size,
    "Theory and exact posterior approach each other as the width grows: above the diagonal of "
    "U₁, below the difference with a fitted power law, of the leading and, where it is known, of "
    "the next order in 1/N, and of further theories.",
    "Diagonal of U₁ against width for theory and samples, and below their difference with its "
    "power law.",
    of=("sweep",),
)
ACCURACY_AT_CHOSEN_TEMPERATURES = style.FigureEntry(
    draw_temperature_choice,
    "Accuracy at the temperatures chosen on the validation split, and the grid of choices.",
    "Accuracy against width at the temperature chosen on the validation split: theory, "
    "samples, infinite width; beside it the validation accuracy over the grid.",
    of=("sweep",),
)
VARIANT_COMPARISON = style.FigureEntry(
    draw_variant_comparison,
    "Attention variants, means over seeds with their standard errors. Above how alike "
    "their paths are (smaller: less redundant), below how well they predict.",
    "Attention variants, one per row: alignment of their path kernels, off-diagonal share of "
    "U₁, and accuracy of theory, exact posterior and infinite width, with error bars.",
    of=("sweep",),
)
