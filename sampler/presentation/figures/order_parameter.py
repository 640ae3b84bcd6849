"""Order parameters as matrices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sampler.analysis.compared import Cosine
from sampler.analysis.comparison import off_diagonal_cosine
from sampler.presentation.results import ShownRun, ShownSweep
from sampler.presentation.style import UNDEFINED_CELL, FigureEntry, new_figure, title_of

LARGEST_NUMBERED = 6  # paths; beyond this the numbers no longer fit their cells
LARGEST_TICKED = 24
SHOWN_WIDTHS = (100, 1000)  # that a sweep shows beside its smallest width


@dataclass(frozen=True)
class MatrixPanel:
    """One matrix [path, path_] with its title; `mcse` has the same shape and is optional."""

    title: str
    matrix: np.ndarray
    mcse: np.ndarray | None = None


def draw_order_parameter(
    path_names: Sequence[str],
    theory: np.ndarray,
    sampled: np.ndarray | None,
    mcse: np.ndarray | None,
    sampled_label: str,
    setting: str,
    next_order: np.ndarray | None = None,
) -> Figure:
    """Draw U_1 of the theory, of the samples (one colour scale for both), and their difference.

    theory, sampled, mcse, next_order: [path, path_]. Without samples only the theory is drawn. The
    last panel shows (sampled − theory) / MCSE, entry by entry; an MCSE of zero leaves it undefined.
    With the next order the differences of both orders stand below them.
    """
    panels = [MatrixPanel("theory", theory)]
    if next_order is not None:
        panels.append(MatrixPanel("theory, next order", next_order))
    if sampled is not None and mcse is not None:
        panels.append(MatrixPanel(sampled_label, sampled, mcse))
    if next_order is not None:
        return _draw_both_orders(path_names, panels, setting)
    count = len(panels) + (len(panels) == 2)
    side = _panel_side(len(path_names))
    figure = new_figure(count * side + 1.8 if count > 1 else side + 2.2, side + 1.5, "compressed")
    figure.suptitle(title_of("Order parameter $U_1$", setting))
    axes = figure.subplots(1, count, squeeze=False)[0]
    limit = _colour_limit(*[panel.matrix for panel in panels])
    image = None
    for ax, panel in zip(axes, panels, strict=False):
        image = _draw_matrix(ax, panel, path_names, limit, "RdBu_r")
        _tick_paths(ax, path_names, rows=ax is axes[0])
    _add_colour_bar(figure, image, list(axes[: len(panels)]))
    if count == 3:
        difference = in_mcse(sampled, theory, mcse)
        panel = MatrixPanel("(sampled − theory) / MCSE", difference)
        # Three MCSE is the least range: differences within the noise stay pale.
        image = _draw_matrix(
            axes[2], panel, path_names, max(3.0, _colour_limit(difference)), "PuOr"
        )
        _tick_paths(axes[2], path_names, rows=False)
        _add_colour_bar(figure, image, [axes[2]])
    return figure


def _draw_both_orders(
    path_names: Sequence[str], panels: Sequence[MatrixPanel], setting: str
) -> Figure:
    """Leading order, next order and samples; below each order its difference from the samples."""
    *orders, last = panels
    rows = 1 if last.mcse is None else 2
    side = _panel_side(len(path_names))
    figure = new_figure(len(panels) * side + 1.8, rows * side + 1.5 + 0.3 * rows, "compressed")
    figure.suptitle(title_of("Order parameter $U_1$", setting))
    axes = figure.subplots(rows, len(panels), squeeze=False)
    limit = _colour_limit(*[panel.matrix for panel in panels])
    for ax, panel in zip(axes[0], panels, strict=True):
        image = _draw_matrix(ax, panel, path_names, limit)
        # A warning in brackets on a line of its own: it is wider than the panel.
        ax.set_title(panel.title.replace(" (", "\n("))
        _tick_paths(ax, path_names, rows=ax is axes[0, 0], columns=rows == 1 or panel is last)
    _add_colour_bar(figure, image, list(axes[0]))
    if rows == 1:
        return figure
    differences = [in_mcse(last.matrix, order.matrix, last.mcse) for order in orders]
    limit = max(3.0, _colour_limit(*differences))
    axes[1, -1].set_axis_off()
    for ax, name, values in zip(axes[1], ("theory", "next order"), differences, strict=False):
        panel = MatrixPanel(f"(sampled − {name}) / MCSE", values)
        image = _draw_matrix(ax, panel, path_names, limit, "PuOr")
        _tick_paths(ax, path_names, rows=ax is axes[1, 0])
    _add_colour_bar(figure, image, list(axes[1]))
    return figure


def in_mcse(sampled: np.ndarray, theory: np.ndarray, mcse: np.ndarray) -> np.ndarray:
    """(sampled − theory)/MCSE, NaN where the MCSE is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mcse > 0, (sampled - theory) / mcse, np.nan)


def draw_order_parameter_grid(
    path_names: Sequence[str],
    columns: Sequence[Sequence[MatrixPanel | None]],
    title: str = "Order parameter $U_1$",
) -> Figure:
    """Draw a grid of U_1 matrices, each on its own colour scale.

    columns: [column][row]; None leaves a place empty.
    """
    row_count = max(len(column) for column in columns)
    side = _panel_side(len(path_names))
    figure = new_figure(
        len(columns) * (side + 0.6) + 1.2, row_count * (side + 0.7) + 1.1, "compressed"
    )
    figure.suptitle(title)
    axes = figure.subplots(row_count, len(columns), squeeze=False)
    for place, column in enumerate(columns):
        drawn = [row for row, panel in enumerate(column) if panel is not None]
        for row in range(row_count):
            ax = axes[row, place]
            if row not in drawn:
                ax.set_axis_off()
                continue
            image = _draw_matrix(ax, column[row], path_names, _colour_limit(column[row].matrix))
            _tick_paths(ax, path_names, rows=place == 0, columns=row == drawn[-1])
            _add_colour_bar(figure, image, [ax])
    return figure


def _add_colour_bar(figure: Figure, image: AxesImage, axes: list[Axes]) -> None:
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)


def _draw_matrix(
    ax: Axes, panel: MatrixPanel, path_names: Sequence[str], limit: float, colours: str = "RdBu_r"
) -> AxesImage:
    colour_map = colormaps[colours].with_extremes(bad=UNDEFINED_CELL)
    image = ax.imshow(panel.matrix, cmap=colour_map, vmin=-limit, vmax=limit)
    ax.set_title(panel.title)
    ax.spines[:].set_visible(False)
    if len(path_names) <= LARGEST_NUMBERED:
        signed = colours == "PuOr"
        for row, column in np.ndindex(panel.matrix.shape):
            value = panel.matrix[row, column]
            error = None if panel.mcse is None else panel.mcse[row, column]
            red, green, blue, _ = image.cmap(image.norm(value))
            # Relative luminance decides whether black or white is easier to read.
            dark = np.isfinite(value) and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45
            text, colour = _cell_text(value, error, limit, signed), "white" if dark else "black"
            ax.text(column, row, text, ha="center", va="center", fontsize=8.5, color=colour)
    return image


def _cell_text(value: float, error: float | None, limit: float, signed: bool) -> str:
    if not np.isfinite(value):
        return "undefined"
    if signed:
        return f"{value:+z.1f}".replace("-", "−")
    if error is not None and not (np.isfinite(error) and error > 0):
        return f"{value:.3g}\n±undefined".replace("-", "−")
    if error is not None:
        # Two digits of the error decide how many digits of the value mean anything.
        decimals = 1 - int(np.floor(np.log10(error)))
        if decimals > 5:
            return f"{value:.3e}\n±{error:.1e}".replace("-", "−")
        decimals = max(decimals, 0)
        return f"{value:z.{decimals}f}\n±{error:.{decimals}f}".replace("-", "−")
    decimals = 3 - int(np.floor(np.log10(limit)))
    shown = f"{value:z.{max(decimals, 0)}f}" if decimals <= 5 else f"{value:.2e}"
    return shown.replace("-", "−")


def _tick_paths(ax: Axes, path_names: Sequence[str], *, rows: bool, columns: bool = True) -> None:
    step = -(-len(path_names) // LARGEST_TICKED)
    places = np.arange(0, len(path_names), step)
    labels = [path_names[place] for place in places]
    small = 9.0 if len(path_names) <= LARGEST_NUMBERED else 7.0
    ax.tick_params(length=0, labelsize=small)
    ax.set_xticks(places, labels if columns else [])
    ax.set_yticks(places, labels if rows else [])
    if columns and max(len(label) for label in labels) * len(labels) > 14:
        ax.tick_params(axis="x", labelrotation=45)
        for label in ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    if rows:
        ax.set_ylabel(r"path $\pi$")
    if columns:
        ax.set_xlabel(r"path $\pi'$")


def _colour_limit(*matrices: np.ndarray) -> float:
    largest = max(np.max(np.abs(m), where=np.isfinite(m), initial=0.0) for m in matrices)
    return float(largest) if largest > 0 else 1.0


def _panel_side(paths: int) -> float:
    """Inches: room for the numbers where they are printed, and for the ticks where not."""
    return 2.6 if paths <= 2 else 3.1 if paths <= 4 else 4.2


def sampled_panel(run: ShownRun, name: str = "") -> MatrixPanel | None:
    """The posterior mean of U_1 with its errors; None without samples or without a theory."""
    compared = run.compared_as("order_parameter")
    if compared is None or compared.theory is None:
        return None
    return MatrixPanel(f"{run.sampled_label}{name}", compared.sampled.value, compared.sampled.mcse)


def order_parameter_of_run(run: ShownRun) -> Figure | None:
    """U_1 of both orders of the theory, and of the samples where there are any."""
    theory, panel = run.theory_values("order_parameter"), sampled_panel(run)
    if theory is None:
        return None
    sampled, mcse = (None, None) if panel is None else (panel.matrix, panel.mcse)
    next_order = run.theory_values("order_parameter_next_order")
    return draw_order_parameter(
        run.path_names, theory, sampled, mcse, run.sampled_label, run.setting, next_order
    )


def beside_trained(run: ShownRun) -> Figure | None:
    """U_1 of theory, samples and the network that gradient descent trained."""
    theory, trained = map(run.theory_values, ("order_parameter", "order_parameter_trained"))
    if theory is None or trained is None:
        return None
    alone = {"theory_trained": Cosine(float(off_diagonal_cosine(theory, trained)))}
    cosines = run.compared_as("off_diagonal_cosine") or alone
    panels = [
        MatrixPanel("theory", theory), sampled_panel(run), MatrixPanel("gradient descent", trained)
    ]  # fmt: skip
    shown = [[panel] for panel in panels if panel is not None]
    title = f"Order parameter $U_1$, {run.setting}\n{cosine_text(cosines)}"
    return draw_order_parameter_grid(run.path_names, shown, title)


def cosine_text(cosines: Mapping[str, Cosine]) -> str:
    """Cosines between elements off the diagonal, in words."""
    said = {"theory": "theory", "trained": "gradient descent", "sampled": "samples"}
    parts = []
    for pair, found in cosines.items():
        if np.isfinite(found.value):
            one, other = (said[name] for name in pair.split("_"))
            error = "" if found.mcse is None else f" ± {found.mcse:.3f}"
            parts.append(f"{one} · {other} {found.value:.3f}{error}".replace("-", "−"))
    return "cosine off the diagonal: " + ", ".join(parts)


def order_parameters_of_sweep(sweep: ShownSweep) -> Figure | None:
    """Both orders of the theory above samples, for several points of a sweep."""
    runs, widths = sweep.runs, sweep.table.widths
    solved = [row for row, run in enumerate(runs) if run is not None and run.theory is not None]
    if not solved:
        return None
    if widths is None:
        shown = sorted({solved[0], solved[len(solved) // 2], solved[-1]})
    else:
        shown = [r for r in solved if r == solved[0] or widths[r] in SHOWN_WIDTHS]
    names = runs[shown[0]].path_names
    # A sweep may change the heads; only matrices over the same paths can share a grid.
    shown = [row for row in shown if runs[row].path_names == names]
    sampled = any(sampled_panel(runs[row]) is not None for row in shown)
    beyond = any(runs[row].theory_values("order_parameter_next_order") is not None for row in shown)
    kept = (True, beyond, sampled)
    columns = [list(compress(_matrix_column(sweep, row), kept)) for row in shown]
    if not any(panel is not None for column in columns for panel in column):
        return None
    return draw_order_parameter_grid(names, columns)


def _matrix_column(sweep: ShownSweep, row: int) -> list[MatrixPanel | None]:
    run, table = sweep.runs[row], sweep.table
    name = table.points[row] if table.widths is None else f"$N$ = {table.widths[row]:g}"
    orders = {"theory": "order_parameter", "next order": "order_parameter_next_order"}
    found = {label: run.theory_values(variable) for label, variable in orders.items()}
    above = [m if m is None else MatrixPanel(f"{label}, {name}", m) for label, m in found.items()]
    return [*above, sampled_panel(run, f", {name}")]


ORDER_PARAMETER = FigureEntry(
    order_parameter_of_run,
    "Order parameter U₁ over pairs of attention paths: theory, to next order in 1/N where that is "
    "known, samples, and their differences. "
    "At infinite width it is diagonal.",
    "Coloured matrices over pairs of attention paths: order parameter U₁ of the theory, its "
    "sampled posterior mean, and their difference.",
)
ORDER_PARAMETER_TRAINED = FigureEntry(
    beside_trained,
    "U₁ of theory, samples and the network trained by gradient descent, each on its own scale.",
    "Coloured matrices over pairs of attention paths: U₁ of the theory, of the samples and of "
    "the network trained by gradient descent.",
)
ORDER_PARAMETER_AGAINST_WIDTH = FigureEntry(
    order_parameters_of_sweep,
    "Order parameter U₁ along the sweep: theory above, samples below.",
    "Coloured matrices over pairs of attention paths: U₁ of the theory above the samples, for "
    "several points of the sweep.",
    of=("sweep",),
)
