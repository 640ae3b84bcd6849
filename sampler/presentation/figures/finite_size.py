"""Differences of theory and exact posterior against width."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sampler.analysis.estimate import RESOLVED_MCSE
from sampler.analysis.results import temperature_text
from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style

# The space whose draws theories are held against.
EXACT_SPACE = "order_parameters"
SPACES = {
    EXACT_SPACE: (style.EXACT, "o"),
    "upper_weights": (f"{style.EXACT}, upper weights", "s"),
    "weights": (f"{style.EXACT}, all weights", "D"),
}
MOST_PATHS = 4
COLUMNS = 2


@dataclass(frozen=True)
class Order:
    """One order of the theory: its keys in `finite_size.json`, and how its difference is drawn."""

    suffix: str
    name: str
    colour: str
    marker: str


ORDERS = (
    Order("", style.LEADING, style.THEORY, "o"),
    Order("_next_order", style.NEXT, style.NEXT_ORDER, "s"),
)


def draw_finite_size(table: dict, setting: str) -> Figure:
    """Upper panels: diagonal of U_1 against width. Lower: |theory − exact| with its power law.

    Both with the next order and with theories of the user's own, where they are known. `table` is
    the content of `finite_size.json`.
    """
    names = table["paths"][:MOST_PATHS]
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = style.new_figure(style.WIDTH if columns > 1 else 3.8, 5.4 * rows + 1.0)
    title = "Order parameter $U_1$: theory against exact posterior"
    figure.suptitle(style.title_of(title, setting))
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    for path, name in enumerate(names):
        row, column = divmod(path, columns)
        above, below = axes[2 * row, column], axes[2 * row + 1, column]
        _values(above, table, path, name)
        _differences(below, table, path)
        for ax in (above, below):
            ax.set(xscale="log", yscale="log")
            # Without error bars: matplotlib 3.10 counts their logarithms among the data.
            ax.relim()
            ax.autoscale_view()
        # A decade or less has one power of ten or none.
        above.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        above.yaxis.set_minor_formatter(NullFormatter())
        above.set_xlim(below.get_xlim())
        if column == 0:
            above.set_ylabel("posterior mean of $U_1$, diagonal")
            below.set_ylabel("|theory − exact|")
    for ax in axes.flat:
        if not ax.has_data():
            ax.set_axis_off()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    more, more_labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(
        handles + more, labels + more_labels, loc="outside lower center", ncols=2, fontsize=9.0
    )
    return figure


def _of_path(values: list | None, path: int) -> np.ndarray | None:
    """A diagonal element at every width; None where it is not known at any."""
    found = None if values is None else np.array(values, dtype=float)[:, path, path]
    return None if found is None or not np.isfinite(found).any() else found


def _own(table: dict) -> dict:
    """Name of a theory of the user's own → its U_1 at every width that was sampled."""
    return (table["sampled"].get(EXACT_SPACE) or {}).get("own", {})


def _values(ax: Axes, table: dict, path: int, name: str) -> None:
    theory = np.array(table["theory"]["order_parameter"], dtype=float)[:, path, path]
    ax.plot(table["theory"]["widths"], theory, color=style.THEORY, label=style.LEADING)
    beyond = _of_path(table["theory"].get("order_parameter_next_order"), path)
    if beyond is not None:
        marks = {"color": style.NEXT_ORDER, "linestyle": (0, (4, 1))}
        ax.plot(table["theory"]["widths"], beyond, label=style.NEXT, **marks)
    for place, (own, matrices) in enumerate(_own(table).items()):
        widths = table["sampled"][EXACT_SPACE]["widths"]
        marks = {"color": style.own_colour(place), "linestyle": (0, (1, 1))}
        ax.plot(widths, np.array(matrices, dtype=float)[:, path, path], label=own, **marks)
    for space, (label, marker) in SPACES.items():
        found = table["sampled"].get(space)
        if found:
            mean, mcse = (
                np.array(found[key], dtype=float)[:, path, path]
                for key in ("order_parameter", "mcse")
            )
            ax.errorbar(
                found["widths"], mean, mcse, label=f"{label} (± MCSE)", color=style.SAMPLED,
                marker=marker, linestyle="none", markersize=5,
                fillstyle="none" if space != EXACT_SPACE else "full",
            )  # fmt: skip
    ax.set_title(name)


def _differences(ax: Axes, table: dict, path: int) -> None:
    ax.set_xlabel("width $N$")
    exact = table["sampled"].get(EXACT_SPACE)
    for place, (own, matrices) in enumerate(_own(table).items()):
        gap = np.array(matrices, dtype=float) - np.array(exact["order_parameter"], dtype=float)
        theory = Order("", own, style.own_colour(place), "D")
        _difference(ax, theory, exact, gap[:, path, path], path)
    laws = []
    for order in ORDERS:
        difference = exact and _of_path(exact.get(f"difference{order.suffix}"), path)
        if difference is not None:
            _difference(ax, order, exact, difference, path)
            law = (table.get(f"power_laws{order.suffix}") or [{}] * (path + 1))[path]
            if law.get("slope") is not None:
                laws.append((order, law))
    for (order, law), place in zip(laws, ("left", "right"), strict=False):
        fitted = np.array(law["widths"], dtype=float)
        ax.plot(
            fitted, abs(law["prefactor"]) * fitted ** law["slope"], color=order.colour,
            linestyle="--", label=f"fitted power law, {order.name}",
        )  # fmt: skip
        text = f"slope {law['slope']:.2f} ± {law['slope_error']:.2f}".replace("-", "−")
        if len(laws) == 1:
            ax.set_title(text, fontsize=10.0, color=order.colour)
        else:
            ax.set_title(f"{order.name}\n{text}", fontsize=8.5, color=order.colour, loc=place)


def _difference(ax: Axes, order: Order, exact: dict, difference: np.ndarray, path: int) -> None:
    """|order − exact|: with errors where it is resolved, elsewhere what it is below."""
    known = np.isfinite(difference)
    widths, mcse = np.array(exact["widths"], float)[known], _of_path(exact["mcse"], path)[known]
    trusted = np.array(exact.get("trusted", [True] * len(known)))[known]
    size = np.abs(difference[known])
    resolved = (size > RESOLVED_MCSE * mcse) & trusted
    hidden = (size <= RESOLVED_MCSE * mcse) & trusted
    leading = order.name == style.LEADING
    fill = {"fillstyle": "full" if leading else "none", "linestyle": "none"}
    ax.errorbar(
        widths[resolved], size[resolved], mcse[resolved], color=order.colour, marker=order.marker,
        markersize=4, label=f"|{order.name} − exact| (± MCSE)", **fill,
    )  # fmt: skip
    ax.plot(
        widths[hidden], size[hidden] + RESOLVED_MCSE * mcse[hidden], color=order.colour, marker="v",
        markersize=5, label=f"{order.name}: unresolved, below", **fill,
    )  # fmt: skip
    ax.plot(
        widths[~trusted], size[~trusted], color=order.colour, marker="x", markersize=5,
        linestyle="none", label="diagnostics failed" if leading and not trusted.all() else None,
    )  # fmt: skip


def finite_size_of(sweep: SweepResults) -> Figure | None:
    """Of a sweep over widths."""
    if sweep.finite_size is None:
        return None
    temperature = None if sweep.solved is None else sweep.solved.temperature
    return draw_finite_size(sweep.finite_size, temperature_text(temperature))


FINITE_SIZE = style.FigureEntry(
    finite_size_of,
    "Theory and exact posterior approach each other as the width grows: above the diagonal of "
    "U₁, below the difference with a fitted power law, of the leading and, where it is known, of "
    "the next order in 1/N, and of further theories.",
    "Diagonal of U₁ against width for theory and samples, and below their difference with its "
    "power law.",
    of=("sweep",),
)
