"""The choice of a temperature."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sampler.analysis.sweeps import SweepResults
from sampler.presentation import style

WIDTH, TEMPERATURE = "network.widths", "posterior.temperature"
CRITERION = "accuracy"
VALIDATED = f"validation_{CRITERION}_theory"


def draw_temperature_choice(sweep: SweepResults) -> Figure | None:
    """Draw a sweep over widths and temperatures; None if the sweep is another one.

    Above: accuracy on the test set at the temperature chosen for each width. Below: accuracy of the
    theory on the validation split over the grid, the choice marked. Accuracies that do not depend
    on the posterior are those of the first point that has a theory.
    """
    if not is_temperature_choice(sweep):
        return None
    selection, grid = chosen_by_width(sweep), sweep.dataset
    figure = style.new_figure(style.WIDTH, 9.2)
    figure.suptitle("Temperatures chosen on the validation split for each width")
    above, below = figure.subplots(2, 1)
    _accuracies(above, selection, grid, None if sweep.solved is None else sweep.solved.theory)
    _choices(below, grid[VALIDATED].transpose(TEMPERATURE, WIDTH), selection)
    bar = figure.colorbar(below.images[0], ax=below, label="accuracy (%)")
    bar.outline.set_visible(False)
    figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def is_temperature_choice(sweep: SweepResults) -> bool:
    """Whether temperatures were chosen, for each width, on a grid of both."""
    grid = sweep.dataset
    if chosen_by_width(sweep) is None or grid is None or VALIDATED not in grid:
        return False
    return set(grid[VALIDATED].dims) == {WIDTH, TEMPERATURE}


def chosen_by_width(sweep: SweepResults) -> list[dict] | None:
    """The choices of temperature, one for each width; None if something else was swept."""
    groups = (sweep.selection or {}).get("by_temperature", [])
    alone = all(set(group["settings"]) == {WIDTH} for group in groups)
    if not groups or not alone:
        return None
    # Widths layer by layer have no place on an axis.
    return groups if all(isinstance(g["settings"][WIDTH], int) for g in groups) else None


def _chosen(group: dict, who: str) -> dict | None:
    """The choice of one predictor; None also in a file that knows nothing of it."""
    return group.get(who, {}).get(CRITERION)


def _accuracies(ax: Axes, groups: list[dict], grid: xr.Dataset, theory: xr.Dataset | None) -> None:
    widths = np.array([group["settings"][WIDTH] for group in groups], dtype=float)

    def curve(who: str) -> np.ndarray:
        chosen = [_chosen(group, who) for group in groups]
        return np.array([np.nan if c is None else c["test_accuracy"]["value"] for c in chosen])

    ax.plot(
        widths, 100 * curve("theory"), "o-", color=style.THEORY, label=style.LEADING, markersize=5
    )
    beyond = curve("next_order")
    if np.isfinite(beyond).any():
        marks = {"color": style.NEXT_ORDER, "markersize": 7, "fillstyle": "none"}
        ax.plot(widths, 100 * beyond, "o--", label=style.NEXT, **marks)
    ax.plot(widths, 100 * curve("gp"), "--", color=style.GAUSSIAN_PROCESS, label=style.LIMIT)
    labelled = _sampled(ax, groups, grid)
    others = {
        "trained": ("trained network", style.GREEN),
        "nearest_neighbour": ("pixels alone", style.GREY),
    }
    for name, (label, colour) in others.items():
        if theory is not None and f"accuracy_{name}" in theory:
            value = 100 * float(theory[f"accuracy_{name}"])
            ax.axhline(value, color=colour, linestyle=":", label=label)
    ax.set(xscale="log", xlabel="width $N$", ylabel="accuracy on the test set (%)")
    if labelled:
        ax.set_xlabel(f"width $N$\n{style.ERRORS}")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:g}"))
    style.accuracy_axis(ax.yaxis)


def _sampled(ax: Axes, groups: list[dict], grid: xr.Dataset) -> set[str]:
    """Samples at the temperature that the theory chose; hollow where their diagnostics failed."""
    labelled: set[str] = set()
    for group in groups:
        chosen = _chosen(group, "theory")
        if chosen is None or "accuracy_sampled" not in grid:
            continue
        found = grid.sel({key: chosen["settings"][key] for key in (WIDTH, TEMPERATURE)})
        if not np.isfinite(found["accuracy_sampled"]):
            continue
        passed = _chosen(group, "sampled") is not None
        label = style.EXACT + ("" if passed else " (diagnostics failed)")
        point = (group["settings"][WIDTH], 100 * float(found["accuracy_sampled"]))
        fill = {"fillstyle": "full" if passed else "none", "color": style.SAMPLED, "markersize": 6}
        new = None if label in labelled else label
        for of, thick, mark, name in (("mcse", 3.0, "none", None), ("binomial", 1.0, "D", new)):
            error = 100 * float(found[f"accuracy_sampled_{of}"])
            ax.errorbar(*point, error, fmt=mark, elinewidth=thick, label=name, **fill)
        labelled.add(label)
    return labelled


def _choices(ax: Axes, accuracy: xr.DataArray, groups: list[dict]) -> None:
    temperatures, widths = accuracy[TEMPERATURE].values, list(accuracy[WIDTH].values)
    ax.imshow(100 * accuracy.values, cmap="viridis", origin="lower", aspect="auto")
    ax.set_xticks(range(len(widths)), [f"{width:g}" for width in widths], rotation=45)
    ax.set_yticks(range(len(temperatures)), [f"{value:g}" for value in temperatures])
    said = "○ chosen"
    both = any(_chosen(group, "next_order") for group in groups)
    for who, marks in (
        ("theory", {"color": "white", "markeredgecolor": "black", "markersize": 11 if both else 6}),
        ("next_order", {"color": style.NEXT_ORDER, "markeredgecolor": "white", "marker": "X"}),
    ):
        places = []
        for group in groups:
            chosen = _chosen(group, who)
            if chosen is not None:
                row = int(np.flatnonzero(temperatures == chosen["settings"][TEMPERATURE])[0])
                places.append((widths.index(group["settings"][WIDTH]), row))
        if places:
            ax.plot(*zip(*places, strict=True), linestyle="none", **({"marker": "o"} | marks))
            said += ", × to next order" if who == "next_order" else ""
    ax.set(xlabel="width $N$", ylabel=r"temperature $\mathcal{T}$")
    ax.set_title(f"{style.LEADING} on the validation split ({said})")


ACCURACY_AT_CHOSEN_TEMPERATURES = style.FigureEntry(
    draw_temperature_choice,
    "Accuracy at the temperatures chosen on the validation split, and the grid of choices.",
    "Accuracy against width at the temperature chosen on the validation split: theory, "
    "samples, infinite width; beside it the validation accuracy over the grid.",
    of=("sweep",),
)
