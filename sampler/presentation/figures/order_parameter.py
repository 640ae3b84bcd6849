"""Order parameters as matrices."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sampler.analysis.compared import Cosine
from sampler.analysis.comparison import off_diagonal_cosine
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.presentation.style import (
    EXACT,
    LEADING,
    UNDEFINED_CELL,
    VALUES,
    WIDTH,
    FigureEntry,
    colour_bar,
    colour_limit,
    new_figure,
    title_of,
)

LARGEST_NUMBERED = 6  # paths; beyond this the numbers no longer fit their cells
LARGEST_TICKED = 24
SHOWN_WIDTHS = (100, 1000)  # that a sweep shows beside its smallest width
NARROWEST_NUMBERED = 0.5  # inches of a cell that a number with its error needs
LARGEST_CELL = 0.85  # inches
DIFFERENCES = "PuOr"


@dataclass(frozen=True)
class MatrixPanel:
    """One matrix [path, path_] with its title; `mcse` has the same shape and is optional."""

    title: str
    matrix: np.ndarray
    mcse: np.ndarray | None = None


def draw_order_parameter(
    path_names: Sequence[str],
    theories: Sequence[MatrixPanel],
    sampled: MatrixPanel | None,
    setting: str,
) -> Figure:
    """Draw U_1 of the samples and of every theory, and how far each theory is from the samples.

    All matrices [path, path_] have one colour scale; so have the differences (sampled − theory) /
    MCSE to the right of their theory, undefined where the MCSE is zero. Without samples the
    theories alone are drawn.
    """
    limit = colour_limit(*[panel.matrix for panel in [*theories, *filter(None, [sampled])]])
    if sampled is None:
        rows: list[list[MatrixPanel | None]] = [
            list(theories[place : place + 2]) for place in range(0, len(theories), 2)
        ]
        figure, axes = _grid(
            path_names, rows, [limit] * len(rows), title_of("Order parameter $U_1$", setting)
        )
        colour_bar(figure, axes[0][0].images[0], [ax for row in axes for ax in row], "$U_1$")
        return figure
    rows = [[sampled, None], *([panel, None] for panel in theories)]
    figure, axes = _grid(
        path_names, rows, [limit] * len(rows), title_of("Order parameter $U_1$", setting)
    )
    gaps = [in_mcse(sampled.matrix, panel.matrix, sampled.mcse) for panel in theories]
    # Three MCSE is the least range: differences within the noise stay pale.
    widest = max(3.0, colour_limit(*gaps))
    for row, (panel, gap) in enumerate(zip(theories, gaps, strict=True), start=1):
        beside = MatrixPanel(f"(exact − {panel.title})\nin MCSE", gap)
        axes[row][1].set_axis_on()
        image = _draw_matrix(axes[row][1], beside, path_names, widest, DIFFERENCES)
        _tick_paths(axes[row][1], path_names, rows=False, columns=row == len(theories))
    columns = ([row[0] for row in axes], [row[1] for row in axes])
    colour_bar(figure, axes[0][0].images[0], columns[0], "$U_1$")
    colour_bar(figure, image, columns[1], "difference in MCSE")
    return figure


def _grid(
    path_names: Sequence[str],
    rows: Sequence[Sequence[MatrixPanel | None]],
    limits: Sequence[float],
    title: str,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of matrices [row][column], a colour scale for each row; None: an empty place."""
    columns = max(len(row) for row in rows)
    names = 0.075 * max(map(len, path_names)) + 0.4
    side = (WIDTH - names - 0.2 * (columns - 1)) / columns
    width = WIDTH if columns > 1 else side * 0.7 + names
    side = min(side, (width - names) / columns, LARGEST_CELL * max(2, len(path_names)))
    figure = new_figure(width, len(rows) * (side + 0.5) + 0.7 * names + 1.4)
    figure.suptitle(title)
    # `0·1` is head 0 of the first layer, then head 1 of the second one.
    layered = any("·" in name for name in path_names)
    figure.supylabel("path (head·head, from layer 1)" if layered else "path", fontsize=10.0)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    numbered = side / len(path_names) >= NARROWEST_NUMBERED
    for place, row in enumerate(rows):
        for column in range(columns):
            ax, panel = axes[place, column], row[column] if column < len(row) else None
            if panel is None:
                ax.set_axis_off()
                continue
            _draw_matrix(ax, panel, path_names, limits[place], numbered=numbered)
            below = [other[column] for other in rows[place + 1 :] if column < len(other)]
            last = not any(one is not None for one in below)
            _tick_paths(ax, path_names, rows=column == 0, columns=last)
    return figure, [list(row) for row in axes]


def in_mcse(sampled: np.ndarray, theory: np.ndarray, mcse: np.ndarray) -> np.ndarray:
    """(sampled − theory)/MCSE, NaN where the MCSE is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mcse > 0, (sampled - theory) / mcse, np.nan)


def draw_order_parameter_grid(
    path_names: Sequence[str],
    rows: Sequence[Sequence[MatrixPanel | None]],
    title: str = "Order parameter $U_1$",
) -> Figure:
    """Draw a grid of U_1 matrices [row][column] on one colour scale; None leaves a place empty."""
    panels = [panel for row in rows for panel in row if panel is not None]
    limit = colour_limit(*[panel.matrix for panel in panels])
    figure, axes = _grid(path_names, rows, [limit] * len(rows), title)
    drawn = [ax for row in axes for ax in row]
    image = next(ax.images[0] for ax in drawn if ax.images)
    colour_bar(figure, image, drawn, "$U_1$")
    return figure


def draw_order_parameter_rows(
    path_names: Sequence[str], rows: Sequence[Sequence[MatrixPanel | None]]
) -> Figure:
    """Draw a grid of U_1 matrices [row][column], every row on a colour scale of its own.

    U_1 grows as the width shrinks: on one scale for all widths those of wide networks are pale.
    """
    limits = [colour_limit(*[one.matrix for one in row if one is not None]) for row in rows]
    figure, axes = _grid(path_names, rows, limits, "Order parameter $U_1$")
    for row in axes:
        image = next(ax.images[0] for ax in row if ax.images)
        colour_bar(figure, image, row, "", location="right", shrink=0.65, aspect=12.0)
    return figure


def _draw_matrix(
    ax: Axes,
    panel: MatrixPanel,
    path_names: Sequence[str],
    limit: float,
    colours: str = VALUES,
    *,
    numbered: bool = True,
) -> AxesImage:
    colour_map = colormaps[colours].with_extremes(bad=UNDEFINED_CELL)
    image = ax.imshow(panel.matrix, cmap=colour_map, vmin=-limit, vmax=limit)
    # A warning in brackets on a line of its own: it is wider than the panel.
    ax.set_title(panel.title.replace(" (", "\n("))
    ax.spines[:].set_visible(False)
    if numbered and len(path_names) <= LARGEST_NUMBERED:
        signed = colours == DIFFERENCES
        for row, column in np.ndindex(panel.matrix.shape):
            value = panel.matrix[row, column]
            error = None if panel.mcse is None else panel.mcse[row, column]
            red, green, blue, _ = image.cmap(image.norm(value))
            # Relative luminance decides whether black or white is easier to read.
            dark = np.isfinite(value) and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45
            text, colour = _cell_text(value, error, limit, signed), "white" if dark else "black"
            size = 8.5 if len(path_names) <= 3 else 7.5
            ax.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
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
    if columns and max(len(label) for label in labels) * len(labels) > 10:
        ax.tick_params(axis="x", labelrotation=45)
        for label in ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def sampled_panel(run: RunResults) -> MatrixPanel | None:
    """The posterior mean of U_1 with its errors; None without samples or without a theory."""
    compared = run.compared("order_parameter")
    if compared is None or compared.theory is None:
        return None
    return MatrixPanel(run.sampled_label, compared.sampled.value, compared.sampled.mcse)


def theory_panels(run: RunResults) -> list[MatrixPanel]:
    """U_1 of both orders of the theory and of the user's own theories, as far as they are known."""
    return [MatrixPanel(*one) for one in run.order_parameters_of_theories.items()]


def order_parameter_of_run(run: RunResults) -> Figure | None:
    """U_1 of all theories, and of the samples where there are any."""
    if run.theory_values("order_parameter") is None:
        return None
    return draw_order_parameter(run.path_names, theory_panels(run), sampled_panel(run), run.setting)


def beside_trained(run: RunResults) -> Figure | None:
    """U_1 of theory, samples and the network that gradient descent trained.

    Each is divided by the mean of its diagonal: training does not know the scale of a posterior.
    """
    theory, trained = map(run.theory_values, ("order_parameter", "order_parameter_trained"))
    if theory is None or trained is None:
        return None
    alone = {"theory_trained": Cosine(float(off_diagonal_cosine(theory, trained)))}
    cosines = run.compared("off_diagonal_cosine") or alone
    panels = [
        MatrixPanel(LEADING, theory), sampled_panel(run), MatrixPanel("gradient descent", trained)
    ]  # fmt: skip
    shown = [relative_to_diagonal(panel) for panel in panels if panel is not None]
    title = f"$U_1$ / mean of its diagonal, {run.setting}\n{cosine_text(cosines)}"
    return draw_order_parameter_grid(run.path_names, [shown[:2], shown[2:]], title)


def relative_to_diagonal(panel: MatrixPanel) -> MatrixPanel:
    """A matrix in units of the mean of its diagonal, with its errors."""
    unit = float(np.mean(np.diag(panel.matrix)))
    mcse = None if panel.mcse is None else panel.mcse / unit
    return replace(panel, matrix=panel.matrix / unit, mcse=mcse)


def cosine_text(cosines: Mapping[str, Cosine]) -> str:
    """Cosines between elements off the diagonal, in words."""
    said = {"theory": LEADING, "trained": "gradient descent", "sampled": EXACT}
    parts = ["cosine off the diagonal:"]
    for pair, found in cosines.items():
        if np.isfinite(found.value):
            one, other = (said[name] for name in pair.split("_"))
            error = "" if found.mcse is None else f" ± {found.mcse:.3f}"
            parts.append(f"{one} with {other} {found.value:.3f}{error}".replace("-", "−"))
    return "\n".join(parts)


def order_parameters_of_sweep(sweep: SweepResults) -> Figure | None:
    """All theories beside samples, a row for each of several points of a sweep."""
    runs, widths = sweep.runs, sweep.table.widths
    solved = [row for row, run in enumerate(runs) if run is not None and run.theory is not None]
    if not solved:
        return None
    if widths is None:
        sampled = [row for row in solved if runs[row].order_parameter_draws is not None]
        known = sampled or solved
        shown = sorted({known[0], known[len(known) // 2], known[-1]})
    else:
        shown = [r for r in solved if r == solved[0] or widths[r] in SHOWN_WIDTHS]
    names = runs[shown[0]].path_names
    # A sweep may change the heads; only matrices over the same paths can share a grid.
    shown = [row for row in shown if runs[row].path_names == names]
    panels = [_matrix_row(sweep, row) for row in shown]
    titles = list(dict.fromkeys(who for row in panels for who in row))
    if not titles:
        return None
    # The samples beside the theories, in the last column.
    titles.sort(key=lambda who: who.startswith(EXACT))
    rows = [[row.get(who) for who in titles] for row in panels]
    return draw_order_parameter_rows(names, rows)


def _matrix_row(sweep: SweepResults, row: int) -> dict[str, MatrixPanel]:
    """What the matrices of a point are called in every point → the matrix."""
    run, table = sweep.runs[row], sweep.table
    # Without the sections of the keys, a line for each.
    label = re.sub(r"(^|,)[a-z_.]+\.(?=[a-z_]+=)", r"\1", table.points[row]).replace(",", "\n")
    name = label if table.widths is None else f"$N$ = {table.widths[row]:g}"
    panels = {panel.title: panel for panel in theory_panels(run)}
    sampled = sampled_panel(run)
    if sampled is not None:
        panels[EXACT] = sampled
    return {who: replace(one, title=f"{one.title}\n{name}") for who, one in panels.items()}


ORDER_PARAMETER = FigureEntry(
    order_parameter_of_run,
    "Order parameter U₁ over pairs of attention paths: the exact posterior, below it every theory "
    "and, on the right, how far it is from the exact posterior. At infinite width it is diagonal.",
    "Coloured matrices over pairs of attention paths: order parameter U₁ of the theory, its "
    "sampled posterior mean, and their difference.",
)
ORDER_PARAMETER_TRAINED = FigureEntry(
    beside_trained,
    "U₁ of theory, samples and the network trained by gradient descent, each divided by the mean "
    "of its diagonal, on one colour scale.",
    "Coloured matrices over pairs of attention paths: U₁ of the theory, of the samples and of "
    "the network trained by gradient descent.",
)
ORDER_PARAMETER_AGAINST_WIDTH = FigureEntry(
    order_parameters_of_sweep,
    "Order parameter U₁ along the sweep, a row for each point: theories, and on the right the "
    "exact posterior. Every row has a colour scale of its own.",
    "Coloured matrices over pairs of attention paths: U₁ of the theory beside the samples, for "
    "several points of the sweep.",
    of=("sweep",),
)
