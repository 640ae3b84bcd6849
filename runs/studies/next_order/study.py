"""How fast both orders of the theory approach the exact posterior.

The saddle point has an error of order 1/N, the theory at next order one of order 1/N². Both are
held against the exact posterior of U₁: two outputs while widths and examples grow together, where
the orders show, and a single example, where they need not; by chains several outputs as well.

    python -m runs.studies.next_order.study [--small]
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from scipy.special import chdtrc

from runs.studies.next_order.mathematics import (
    ORDERS,
    by_chains,
    by_weighted_draws,
    fit_power_law,
    summary,
    two_paths,
)
from runs.studies.numbers import of_kind
from runs.studies.study import Study
from runs.studies.tables import Table, table
from sampler.presentation import style

# Outputs and copies of the data, width and temperature. No outputs: a single example.
WEIGHTED = {
    "two outputs, P = N": [(2, copies, 8 * copies, 0.1) for copies in (1, 2, 3)],
    "one example": [(0, 1, width, 0.3) for width in (2, 4, 8, 16)],
}
CHAINS = {
    "two outputs, P = N": [(2, copies, 8 * copies, 0.1) for copies in (1, 2, 4, 8, 16)],
    "ten outputs, P = 3N/8": [(10, copies, 16 * copies, 0.1) for copies in (1, 2, 4)],
    "two outputs, P = 16": [(2, 2, width, 0.1) for width in (16, 32, 64)],
}
WIDTHS = (10, 30, 100, 300, 1000)
LOOKS = {
    "leading": (style.LEADING, style.THEORY, "o"),
    "next": (style.NEXT, style.NEXT_ORDER, "s"),
}


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Data and widths; of small size the first of each kind with few draws."""
    found = {}
    for kind, cases, measure, draws in (
        ("weighted", WEIGHTED, by_weighted_draws, 4000 if small else 3_000_000),
        ("chains", CHAINS, by_chains, 200 if small else 1500),
    ):
        for name, those in cases.items():
            for case in those[:1] if small else those:
                found[f"{kind}/{name}/{case[2]}"] = (measure, *case, draws)
    for width in WIDTHS[:1] if small else WIDTHS:
        found[f"two paths/{width}"] = (two_paths, width, 4000 if small else 300_000)
    return found


def numbers(rows: dict[str, dict]) -> dict[str, dict]:
    """Differences of all data, and one test of all widths of the two paths, whose draws differ."""
    weighted, chains = (
        {name: summary(of_kind(rows, f"{kind}/{name}")) for name in cases}
        for kind, cases in (("weighted", WEIGHTED), ("chains", CHAINS))
    )
    paths = of_kind(rows, "two paths")
    square, freedom = (sum(row[key] for row in paths.values()) for key in ("square", "freedom"))
    together = {"square": square, "freedom": freedom, "p": chdtrc(freedom, square)}
    return weighted | {"chains": chains, "two paths": paths, "all widths of them": together}


def tables(numbers: dict) -> dict[str, Table]:
    """U₁ of the two paths; differences of the leading order by chains, of all data."""
    columns = {
        "exact": ("exact", 4),
        "next order": ("next order", 4),
        "exact − next order": ("difference", 4),
    }
    found = {name: of["leading"]["difference"] for name, of in numbers["chains"].items()}
    widths = sorted({width for of in found.values() for width in of}, key=int)
    of_width = {N: {name: of.get(N) for name, of in found.items()} for N in widths}
    of_data = {name: (name, 4) for name in found}
    return {
        "two paths": table("N", numbers["two paths"], columns),
        "chains": table("N", of_width, of_data),
    }


def draw_order(ax: Axes, order: str, found: dict) -> None:
    """Draw the differences of an order against the width, with their power law.

    Hollow triangles are what a difference that is not seen is below.
    """
    label, colour, marker = LOOKS[order]
    widths = np.array([*map(float, found["difference"])])
    values, errors, bounds = (
        100 * np.array([one[key] for one in found["difference"].values()])
        for key in ("value", "error", "below")
    )
    clear = np.array([one["differs"] for one in found["difference"].values()])
    marks = {"color": colour, "markersize": 6, "linestyle": "none"}
    ax.errorbar(widths[clear], values[clear], errors[clear], marker=marker, label=label, **marks)
    if not clear.all():
        marks |= {"marker": "v", "fillstyle": "none", "label": f"{label}: unresolved, below"}
        ax.plot(widths[~clear], bounds[~clear], **marks)
    law = fit_power_law(widths, values, errors)
    if not np.isfinite(law.slope):
        return
    line = {"color": colour, "linewidth": 1.0, "label": f"{label}: power law"}
    ax.plot(widths, law.prefactor * widths**law.slope, "--", **line)
    # At the middle of the line: above it to the right, or below it to the left.
    place = np.exp(np.log(widths).mean())
    text = style.minus_signs(f"$N^{{{law.slope:.2f} ± {law.slope_error:.2f}}}$")
    above = {"xytext": (8, 4)} if order == "leading" else {"xytext": (-6, -14), "ha": "right"}
    there = (place, law.prefactor * place**law.slope)
    ax.annotate(text, there, textcoords="offset points", color=colour, **above)


def draw(numbers: dict) -> Figure:
    """Draw the error of both orders against the width, a panel for each kind of data."""
    title = "Error of the theory: relative difference of $U_1$"
    figure = style.new_figure(style.WIDTH, 4.4, title)
    panels = figure.subplots(1, len(WEIGHTED), sharey=True)
    for ax, name in zip(panels, WEIGHTED, strict=True):
        for order in ORDERS:
            draw_order(ax, order, numbers[name][order])
        widths = [*map(int, numbers[name]["leading"]["difference"])]
        ax.set(xscale="log", yscale="log", xlabel="width $N$", title=name)
        ax.set_xticks(widths, map(str, widths))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.margins(x=0.15)
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    panels[0].set_ylabel("difference from the exact posterior (%)")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    shown = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in panels]
    entries = {label: handle for panel in shown for handle, label in panel}
    style.legend_below(figure, ([*entries.values()], [*entries]))
    return figure


STUDY = Study(__file__, points, numbers, tables, lambda rows, numbers: {"figure": draw(numbers)})

if __name__ == "__main__":
    STUDY.run()
