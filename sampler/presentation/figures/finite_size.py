"""Differences of theory and exact posterior against width."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sampler.analysis.estimate import RESOLVED_MCSE
from sampler.presentation import style
from sampler.presentation.results import ShownSweep, temperature_text

SPACES = {
    "order_parameters": ("exact posterior", style.VERMILLION, "o"),
    "upper_weights": ("weight samples, $V_0$ integrated out", style.GREEN, "s"),
    "weights": ("weight samples, all weights", style.ORANGE, "D"),
}
MOST_PATHS = 4


@dataclass(frozen=True)
class Order:
    """One order of the theory: its keys in `finite_size.json`, and how its difference is drawn."""

    suffix: str
    name: str
    colour: str
    marker: str
    points: str
    hidden: str


ORDERS = (
    Order("", "theory", style.THEORY, "o", style.BLACK, style.GREY),
    Order("_next_order", "next order", style.NEXT_ORDER, "s", style.NEXT_ORDER, style.NEXT_ORDER),
)


def draw_finite_size(table: dict, setting: str) -> Figure:
    """Upper row: diagonal of U_1 against width. Lower row: |theory − exact| with its power law.

    Both with the next order, too, where it is known. `table` is the content of `finite_size.json`.
    """
    names = table["paths"][:MOST_PATHS]
    figure = style.new_figure(3.1 * len(names) + 0.8, 6.2)
    title = "Order parameter $U_1$: theory against exact posterior"
    figure.suptitle(style.title_of(title, setting))
    axes = figure.subplots(2, len(names), sharex=True, squeeze=False)
    for path, name in enumerate(names):
        _values(axes[0, path], table, path, name)
        _differences(axes[1, path], table, path)
        for ax in axes[:, path]:
            ax.set(xscale="log", yscale="log")
            # Without error bars: matplotlib 3.10 counts their logarithms among the data.
            ax.relim()
            ax.autoscale_view()
        # A decade or less has one power of ten or none.
        axes[0, path].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes[0, path].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes[0, path].yaxis.set_minor_formatter(NullFormatter())
    axes[0, 0].set_ylabel("posterior mean of $U_1$, diagonal")
    axes[1, 0].set_ylabel("|theory − exact|")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    more, more_labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(
        handles + more, labels + more_labels, loc="outside lower center", ncols=3, fontsize=9.0
    )
    return figure


def _of_path(values: list | None, path: int) -> np.ndarray | None:
    """A diagonal element at every width; None where it is not known at any."""
    found = None if values is None else np.array(values, dtype=float)[:, path, path]
    return None if found is None or not np.isfinite(found).any() else found


def _values(ax: Axes, table: dict, path: int, name: str) -> None:
    theory = np.array(table["theory"]["order_parameter"], dtype=float)[:, path, path]
    ax.plot(table["theory"]["widths"], theory, color=style.THEORY, label="theory (saddle point)")
    beyond = _of_path(table["theory"].get("order_parameter_next_order"), path)
    if beyond is not None:
        marks = {"color": style.NEXT_ORDER, "linestyle": (0, (4, 1))}
        ax.plot(table["theory"]["widths"], beyond, label="theory, next order", **marks)
    for space, (label, colour, marker) in SPACES.items():
        found = table["sampled"].get(space)
        if found:
            mean, mcse = (
                np.array(found[key], dtype=float)[:, path, path]
                for key in ("order_parameter", "mcse")
            )
            ax.errorbar(
                found["widths"], mean, mcse, label=f"{label} (± MCSE)", color=colour,
                marker=marker, linestyle="none", markersize=5,
                fillstyle="none" if space != "order_parameters" else "full",
            )  # fmt: skip
    ax.set_title(name)


def _differences(ax: Axes, table: dict, path: int) -> None:
    ax.set_xlabel("width $N$")
    exact = table["sampled"].get("order_parameters")
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
        alone = order.name == "theory"
        ax.plot(
            fitted, abs(law["prefactor"]) * fitted ** law["slope"], color=order.colour,
            linestyle="--", label="fitted power law" + ("" if alone else f", {order.name}"),
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
    leading = order.name == "theory"
    named = "" if leading else f"|{order.name} − exact|, "
    fill = {"fillstyle": "full" if leading else "none", "linestyle": "none"}
    ax.errorbar(
        widths[resolved], size[resolved], mcse[resolved], color=order.points, marker=order.marker,
        markersize=4, label=f"|{order.name} − exact| (± MCSE)", **fill,
    )  # fmt: skip
    ax.plot(
        widths[hidden], size[hidden] + RESOLVED_MCSE * mcse[hidden], color=order.hidden, marker="v",
        markersize=5, label=f"{named}below 3 MCSE (upper bound)", **fill,
    )  # fmt: skip
    ax.plot(
        widths[~trusted], size[~trusted], color=order.hidden, marker="x", markersize=5,
        linestyle="none", label="diagnostics failed" if leading and not trusted.all() else None,
    )  # fmt: skip


def finite_size_of(sweep: ShownSweep) -> Figure | None:
    """Of a sweep over widths."""
    if sweep.finite_size is None:
        return None
    temperature = None if sweep.solved is None else sweep.solved.temperature
    return draw_finite_size(sweep.finite_size, temperature_text(temperature))


FINITE_SIZE = style.FigureEntry(
    finite_size_of,
    "Theory and exact posterior approach each other as the width grows: above the diagonal of "
    "U₁, below the difference with a fitted power law, of the leading and, where it is known, of "
    "the next order in 1/N.",
    "Diagonal of U₁ against width for theory and samples, and below their difference with its "
    "power law.",
    of=("sweep",),
)
