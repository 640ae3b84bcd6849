"""Order parameters U_1 as coloured matrices over pairs of attention paths."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sampler.analysis.predictors import LEADING, SAMPLED, predictor_name
from sampler.analysis.quantities import off_diagonal_cosine
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.analysis.text import Number
from sampler.presentation import style

TITLE = "Order parameter $U_1$"
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


# Panels [row][column]; None leaves a place empty.
PanelRows = Sequence[Sequence[MatrixPanel | None]]


def draw_order_parameter(run: RunResults) -> Figure | None:
    """Draw U_1 of the samples and of every theory, and how far each theory is from the samples.

    All matrices [path, path_] have one colour scale; so have the differences (sampled − theory) /
    MCSE to the right of their theory, undefined where the MCSE is zero. Without samples the
    theories alone are drawn.
    """
    names, theories, sampled = run.path_names, theory_panels(run), sampled_panel(run)
    if not theories:
        return None
    title = style.title_of(TITLE, run.setting)
    if sampled is None:
        rows = [theories[place : place + 2] for place in range(0, len(theories), 2)]
        return draw_on_one_scale(names, rows, title)
    limit = style.colour_limit(*[panel.matrix for panel in [*theories, sampled]])
    rows = [[sampled, None], *([panel, None] for panel in theories)]
    figure, axes = _grid(names, rows, [limit] * len(rows), title)
    gaps = [in_mcse(sampled.matrix, panel.matrix, sampled.mcse) for panel in theories]
    # Three MCSE is the least range: differences within the noise stay pale.
    widest = max(3.0, style.colour_limit(*gaps))
    for panel, gap, ax in zip(theories, gaps, axes[1:, 1], strict=True):
        beside = MatrixPanel(f"(exact − {panel.title})\nin MCSE", gap)
        ax.set_axis_on()
        image = _draw_panel(ax, beside, names, widest, DIFFERENCES)
        _tick_paths(ax, names, rows=False, columns=ax is axes[-1, 1])
    style.colour_bar(figure, axes[0, 0].images[0], list(axes[:, 0]), "$U_1$")
    style.colour_bar(figure, image, list(axes[:, 1]), "difference in MCSE")
    return figure


def draw_on_one_scale(path_names: Sequence[str], rows: PanelRows, title: str) -> Figure:
    """Draw matrices [row][column] on one colour scale."""
    limit = style.colour_limit(*[panel.matrix for row in rows for panel in filter(None, row)])
    figure, axes = _grid(path_names, rows, [limit] * len(rows), title)
    style.colour_bar(figure, _first_image(axes.flat), list(axes.flat), "$U_1$")
    return figure


def draw_by_row(path_names: Sequence[str], rows: PanelRows) -> Figure:
    """Draw matrices [row][column], every row on a colour scale of its own.

    U_1 grows as the width shrinks: on one scale for all widths those of wide networks are pale.
    """
    limits = [style.colour_limit(*[one.matrix for one in filter(None, row)]) for row in rows]
    figure, axes = _grid(path_names, rows, limits, TITLE)
    where = {"location": "right", "shrink": 0.65, "aspect": 12.0}
    for row in axes:
        style.colour_bar(figure, _first_image(row), list(row), "", **where)
    return figure


def _first_image(axes: Iterable[Axes]) -> AxesImage:
    return next(ax.images[0] for ax in axes if ax.images)


def _grid(
    path_names: Sequence[str], rows: PanelRows, limits: Sequence[float], title: str
) -> tuple[Figure, np.ndarray]:
    """Draw matrices in a new figure, a colour scale for each row; return its axes [row, column]."""
    columns = max(len(row) for row in rows)
    names = 0.075 * max(map(len, path_names)) + 0.4
    side = (style.WIDTH - names - 0.2 * (columns - 1)) / columns
    width = style.WIDTH if columns > 1 else side * 0.7 + names
    side = min(side, (width - names) / columns, LARGEST_CELL * max(2, len(path_names)))
    figure = style.new_figure(width, len(rows) * (side + 0.5) + 0.7 * names + 1.4, title)
    # `0·1` is head 0 of the first layer, then head 1 of the second one.
    layered = any("·" in name for name in path_names)
    figure.supylabel("path (head·head, from layer 1)" if layered else "path", fontsize=10.0)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    numbered = side / len(path_names) >= NARROWEST_NUMBERED
    padded = [[*row, *[None] * (columns - len(row))] for row in rows]
    for place, row in enumerate(padded):
        for column, panel in enumerate(row):
            ax = axes[place, column]
            if panel is None:
                ax.set_axis_off()
                continue
            _draw_panel(ax, panel, path_names, limits[place], numbered=numbered)
            last = all(below[column] is None for below in padded[place + 1 :])
            _tick_paths(ax, path_names, rows=column == 0, columns=last)
    return figure, axes


def in_mcse(sampled: np.ndarray, theory: np.ndarray, mcse: np.ndarray) -> np.ndarray:
    """Return (sampled − theory)/MCSE, NaN where the MCSE is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mcse > 0, (sampled - theory) / mcse, np.nan)


def _draw_panel(
    ax: Axes,
    panel: MatrixPanel,
    path_names: Sequence[str],
    limit: float,
    colours: str = style.VALUES,
    *,
    numbered: bool = True,
) -> AxesImage:
    """Draw a matrix with its title and, where they fit, its numbers."""
    colour_map = colormaps[colours].with_extremes(bad=style.UNDEFINED_CELL)
    image = style.draw_matrix(ax, panel.matrix, limit, cmap=colour_map)
    # A warning in brackets on a line of its own: it is wider than the panel.
    ax.set_title(style.bracket_below(panel.title))
    if numbered and len(path_names) <= LARGEST_NUMBERED:
        for (row, column), value in np.ndenumerate(panel.matrix):
            error = None if panel.mcse is None else panel.mcse[row, column]
            red, green, blue, _ = image.cmap(image.norm(value))
            # Relative luminance decides whether black or white is easier to read.
            dark = np.isfinite(value) and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45
            text = _cell_text(value, error, limit, signed=colours == DIFFERENCES)
            marks = {"fontsize": 8.5 if len(path_names) <= 3 else 7.5, "ha": "center"}
            ax.text(column, row, text, va="center", color="white" if dark else "black", **marks)
    return image


def _cell_text(value: float, error: float | None, limit: float, *, signed: bool) -> str:
    """Write a number with its error below it, or with as many decimals as the largest needs."""
    if not np.isfinite(value):
        return "undefined"
    if error is not None:
        return style.bracket_below(str(Number(value, error)).replace(" ± ", "\n±"))
    decimals = max(3 - int(np.floor(np.log10(limit))), 0)
    form = "+z.1f" if signed else f"z.{decimals}f" if decimals <= 5 else ".2e"
    return style.minus_signs(f"{value:{form}}")


def _tick_paths(ax: Axes, path_names: Sequence[str], *, rows: bool, columns: bool) -> None:
    """Name the paths along the axes that are said, as many as there is room for."""
    step = -(-len(path_names) // LARGEST_TICKED)
    places, labels = range(0, len(path_names), step), list(path_names[::step])
    ax.tick_params(length=0, labelsize=9.0 if len(path_names) <= LARGEST_NUMBERED else 7.0)
    ax.set_xticks(places, labels if columns else [])
    ax.set_yticks(places, labels if rows else [])
    if columns and max(len(label) for label in labels) * len(labels) > 10:
        ax.tick_params(axis="x", labelrotation=45)
        for label in ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def sampled_panel(run: RunResults) -> MatrixPanel | None:
    """Return the posterior mean of U_1 with its errors; None without samples or a theory."""
    sampled = run.sampled("order_parameter")
    if sampled is None or not run.predictions("order_parameter"):
        return None
    return MatrixPanel(run.name_of(SAMPLED), sampled.value, sampled.mcse)


def theory_panels(run: RunResults) -> list[MatrixPanel]:
    """List U_1 of both orders of the theory and of the user's theories, where they are known."""
    every = run.predictions("order_parameter")
    return [MatrixPanel(run.name_of(name), matrix) for name, matrix in every.items()]


def draw_trained_order_parameter(run: RunResults) -> Figure | None:
    """Draw U_1 of theory, samples and the network that gradient descent trained.

    Each is divided by the mean of its diagonal: training does not know the scale of a posterior.
    """
    theory, trained = run.predicted("order_parameter"), run.theory_values("order_parameter_trained")
    if theory is None or trained is None:
        return None
    cosines = {LEADING: Number(float(off_diagonal_cosine(theory, trained)), digits=3)}
    sampled = run.comparison and run.comparison.estimate("cosine_to_trained")
    if sampled is not None:
        cosines[SAMPLED] = Number(sampled.value, sampled.mcse)
    panels = [
        MatrixPanel(style.LEADING, theory),
        sampled_panel(run),
        MatrixPanel("gradient descent", trained),
    ]
    shown = [relative_to_diagonal(panel) for panel in panels if panel is not None]
    title = f"$U_1$ / mean of its diagonal, {run.setting}\n{cosine_text(cosines)}"
    return draw_on_one_scale(run.path_names, [shown[:2], shown[2:]], title)


def relative_to_diagonal(panel: MatrixPanel) -> MatrixPanel:
    """Divide a matrix and its errors by the mean of its diagonal."""
    unit = float(np.mean(np.diag(panel.matrix)))
    mcse = None if panel.mcse is None else panel.mcse / unit
    return replace(panel, matrix=panel.matrix / unit, mcse=mcse)


def cosine_text(cosines: Mapping[str, Number]) -> str:
    """Write the cosines with the trained network between elements off the diagonal."""
    texts = [f"{predictor_name(name)} {value}" for name, value in cosines.items() if value.defined]
    return "cosine off the diagonal with gradient descent: " + ", ".join(texts)


def draw_order_parameter_against_width(sweep: SweepResults) -> Figure | None:
    """Draw U_1 of all theories beside the samples, a row for each of several points of a sweep."""
    runs, widths = sweep.runs, sweep.widths
    known = [row for row, run in enumerate(runs) if run is not None and run.theory is not None]
    if not known:
        return None
    if widths is None:
        known = [row for row in known if runs[row].order_parameter_draws is not None] or known
        shown = sorted({known[0], known[len(known) // 2], known[-1]})
    else:
        shown = [row for row in known if row == known[0] or widths[row] in SHOWN_WIDTHS]
    names = runs[shown[0]].path_names
    # A sweep may change the heads; only matrices over the same paths can share a grid.
    rows = [_panels_of_point(sweep, row) for row in shown if runs[row].path_names == names]
    titles = list(dict.fromkeys(who for row in rows for who in row))
    # The samples beside the theories, in the last column.
    titles.sort(key=lambda who: who.startswith(style.EXACT))
    return (
        draw_by_row(names, [[row.get(who) for who in titles] for row in rows]) if titles else None
    )


def _panels_of_point(sweep: SweepResults, row: int) -> dict[str, MatrixPanel]:
    run, widths = sweep.runs[row], sweep.widths
    # Without the sections of the keys, a line for each.
    label = re.sub(r"(^|,)[a-z_.]+\.(?=[a-z_]+=)", r"\1", sweep.rows[row].label).replace(",", "\n")
    name = label if widths is None else f"$N$ = {widths[row]:g}"
    panels = {panel.title: panel for panel in theory_panels(run)}
    sampled = sampled_panel(run)
    if sampled is not None:
        panels[style.EXACT] = sampled
    return {who: replace(one, title=f"{one.title}\n{name}") for who, one in panels.items()}


ORDER_PARAMETER = style.FigureEntry(
    draw_order_parameter,
    "Order parameter U₁ over pairs of attention paths: the exact posterior, below it every theory "
    "and, on the right, how far it is from the exact posterior. At infinite width it is diagonal.",
    "Coloured matrices over pairs of attention paths: order parameter U₁ of the theory, its "
    "sampled posterior mean, and their difference.",
)
ORDER_PARAMETER_TRAINED = style.FigureEntry(
    draw_trained_order_parameter,
    "U₁ of theory, samples and the network trained by gradient descent, each divided by the mean "
    "of its diagonal, on one colour scale.",
    "Coloured matrices over pairs of attention paths: U₁ of the theory, of the samples and of "
    "the network trained by gradient descent.",
)
ORDER_PARAMETER_AGAINST_WIDTH = style.FigureEntry(
    draw_order_parameter_against_width,
    "Order parameter U₁ along the sweep, a row for each point: theories, and on the right the "
    "exact posterior. Every row has a colour scale of its own.",
    "Coloured matrices over pairs of attention paths: U₁ of the theory beside the samples, for "
    "several points of the sweep.",
    of=("sweep",),
)
