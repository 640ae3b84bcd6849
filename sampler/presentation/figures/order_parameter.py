"""Order parameters U_1 as coloured matrices over pairs of attention paths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.predictors import LEADING, SAMPLED, predictor_name
from sampler.analysis.quantities import off_diagonal_cosine
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_results import SweepResults
from sampler.analysis.text import Number
from sampler.presentation import style
from sampler.settings.point_labels import short_label

TITLE = "Order parameter $U_1$"
MOST_NUMBERED = 6  # paths; of more the numbers no longer fit their cells
MOST_TICKED = 24
SHOWN_WIDTHS = (100, 1000)  # that a sweep shows beside its smallest width
NARROWEST_NUMBERED = 0.5  # inches of a cell that a number with its error needs
LARGEST_CELL = 0.8  # inches
DIFFERENCES = "PuOr"


@dataclass(frozen=True)
class Matrix:
    """A matrix [path, path_] with its title, and its Monte Carlo errors where it has some."""

    title: str
    values: np.ndarray
    mcse: np.ndarray | None = None
    is_difference: bool = False

    def over(self, unit: float) -> "Matrix":
        """The matrix and its errors in another unit."""
        return Matrix(
            self.title, self.values / unit, None if self.mcse is None else self.mcse / unit
        )


# [row][column]; None leaves a place empty.
Grid = Sequence[Sequence[Matrix | None]]


def matrices_of(run: RunResults) -> tuple[list[Matrix], Matrix | None]:
    """U_1 of both orders and of the user's theories, and of the samples, if there are any."""
    predicted = run.predictions("order_parameter")
    theories = [Matrix(run.name_of(name), values) for name, values in predicted.items()]
    sampled = run.sampled("order_parameter")
    if sampled is None or not theories:
        return theories, None
    return theories, Matrix(run.name_of(SAMPLED), sampled.value, sampled.mcse)


def draw_order_parameter(run: RunResults) -> Figure | None:
    """Draw U_1 of the samples and of every theory, and how far each theory is from the samples.

    All matrices have one colour scale; so have the differences (exact − theory)/MCSE to the right
    of their theory, undefined where the MCSE is zero. Without samples the theories alone are drawn.
    """
    theories, sampled = matrices_of(run)
    if not theories:
        return None
    title = f"{TITLE}, {run.setting}"
    if sampled is None:
        rows = [theories[place : place + 2] for place in range(0, len(theories), 2)]
        return draw_on_one_scale(run.path_names, rows, title)
    errors = np.where(sampled.mcse > 0, sampled.mcse, np.nan)
    gaps = [
        Matrix(f"(exact − {theory.title})\nin MCSE", (sampled.values - theory.values) / errors,
               is_difference=True)
        for theory in theories
    ]  # fmt: skip
    limit = style.colour_limit(*(matrix.values for matrix in [*theories, sampled]))
    # The largest by chance is the least range: differences within the noise stay pale.
    by_chance = run.comparison.largest_by_chance("order_parameter")
    widest = max(by_chance, style.colour_limit(*(gap.values for gap in gaps)))
    rows = [[sampled, None], *zip(theories, gaps, strict=True)]
    figure, axes = draw_grid(run.path_names, rows, [[limit, widest]] * len(rows), title)
    style.colour_bar(figure, axes[0, 0].images[0], list(axes[:, 0]), "$U_1$")
    style.colour_bar(figure, axes[1, 1].images[0], list(axes[:, 1]), "difference in MCSE")
    return figure


def draw_on_one_scale(path_names: Sequence[str], rows: Grid, title: str) -> Figure:
    """Draw matrices [row][column] on one colour scale."""
    limit = style.colour_limit(*(matrix.values for row in rows for matrix in row if matrix))
    columns = max(map(len, rows))
    figure, axes = draw_grid(path_names, rows, [[limit] * columns] * len(rows), title)
    style.colour_bar(figure, axes[0, 0].images[0], list(axes.flat), "$U_1$")
    return figure


def draw_grid(
    path_names: Sequence[str], rows: Grid, limits: Sequence[Sequence[float]], title: str
) -> tuple[Figure, np.ndarray]:
    """Draw matrices, each with the end of its colour scale; return the figure and its axes."""
    columns, count = max(map(len, rows)), len(path_names)
    names = 0.075 * max(map(len, path_names)) + 0.4
    side = min((style.WIDTH - names) / columns - 0.2, LARGEST_CELL * max(2, count))
    width = names + columns * (side + 0.25)
    figure = style.new_figure(width, len(rows) * (side + 0.5) + 0.7 * names + 1.4, title)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    numbered = count <= MOST_NUMBERED and side / count >= NARROWEST_NUMBERED
    for place, ax in np.ndenumerate(axes):
        row, column = place
        matrix = rows[row][column] if column < len(rows[row]) else None
        if matrix is None:
            ax.set_axis_off()
            continue
        draw_matrix(ax, matrix, limits[row][column], numbered)
        below = [each[column] for each in rows[row + 1 :] if column < len(each)]
        tick_paths(ax, path_names, rows=column == 0, columns=not any(below))
    return figure, axes


def draw_matrix(ax: Axes, matrix: Matrix, limit: float, numbered: bool) -> None:
    """Draw a matrix with its title and, where they fit, its numbers."""
    colours = colormaps[DIFFERENCES if matrix.is_difference else style.VALUES]
    colours = colours.with_extremes(bad=style.UNDEFINED_CELL)
    image = style.draw_matrix(ax, matrix.values, limit, cmap=colours)
    # A warning in brackets on a line of its own: it is wider than the panel.
    ax.set_title(style.bracket_below(matrix.title))
    for (row, column), value in np.ndenumerate(matrix.values if numbered else np.empty((0, 0))):
        error = None if matrix.mcse is None else matrix.mcse[row, column]
        red, green, blue, _ = image.cmap(image.norm(value))
        # Relative luminance decides whether black or white is easier to read.
        is_dark = np.isfinite(value) and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45
        text = cell_text(value, error, limit, signed=matrix.is_difference)
        marks = {"fontsize": 9.5 if len(matrix.values) <= 3 else 7.5, "ha": "center"}
        ax.text(column, row, text, va="center", color="white" if is_dark else "black", **marks)


def cell_text(value: float, error: float | None, limit: float, *, signed: bool) -> str:
    """Write a number with its error below it, or with as many decimals as the largest needs."""
    if not np.isfinite(value):
        return "undefined"
    if error is not None:
        return str(Number(value, error)).replace(" ± ", "\n± ")
    decimals = max(3 - int(np.floor(np.log10(limit))), 0)
    form = "+z.1f" if signed else f"z.{decimals}f" if decimals <= 5 else ".2e"
    return style.minus_signs(f"{value:{form}}")


def tick_paths(ax: Axes, path_names: Sequence[str], *, rows: bool, columns: bool) -> None:
    """Name the paths along these axes, as many as there is room for."""
    step = -(-len(path_names) // MOST_TICKED)
    places, labels = range(0, len(path_names), step), list(path_names[::step])
    ax.tick_params(length=0, labelsize=9.0 if len(path_names) <= MOST_NUMBERED else 7.0)
    ax.set_xticks(places, labels if columns else [])
    ax.set_yticks(places, labels if rows else [])
    if columns and max(map(len, labels)) * len(labels) > 10:
        marks = {"rotation": 45.0, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(places, labels, **marks)


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
    matrices = [Matrix(style.LEADING, theory), matrices_of(run)[1]]
    matrices += [Matrix("gradient descent", trained)]
    shown = [matrix.over(np.diag(matrix.values).mean()) for matrix in matrices if matrix]
    texts = [f"{predictor_name(name)} {value}" for name, value in cosines.items() if value.defined]
    title = (
        f"$U_1$ / mean of its diagonal, {run.setting}\n"
        f"cosine off the diagonal with gradient descent:\n{', '.join(texts)}"
    )
    return draw_on_one_scale(run.path_names, [shown[:2], shown[2:]], title)


def draw_order_parameter_against_width(sweep: SweepResults) -> Figure | None:
    """Draw U_1 of all theories beside the samples, a row for each of several points of a sweep.

    Every row has a colour scale of its own: U_1 grows as the width shrinks.
    """
    runs, widths = sweep.runs, sweep.widths
    solved = [row for row, run in enumerate(runs) if run is not None and run.theory is not None]
    if not solved:
        return None
    if widths is None:
        solved = [row for row in solved if runs[row].order_parameter_draws is not None] or solved
        shown = sorted({solved[0], solved[len(solved) // 2], solved[-1]})
    else:
        shown = [row for row in solved if row == solved[0] or widths[row] in SHOWN_WIDTHS]
    names, rows = runs[shown[0]].path_names, []
    for row in shown:
        # A sweep may change the heads; only matrices over the same paths can share a grid.
        theories, sampled = matrices_of(runs[row]) if runs[row].path_names == names else ([], None)
        point = f"$N$ = {widths[row]:g}" if widths is not None else ""
        point = point or short_label(sweep.rows[row].settings).replace(",", "\n")
        if theories:
            matrices = [*theories, sampled] if sampled else theories
            rows.append(
                [
                    Matrix(f"{matrix.title}\n{point}", matrix.values, matrix.mcse)
                    for matrix in matrices
                ]
            )
    if not rows:
        return None
    scales = [style.colour_limit(*(matrix.values for matrix in row)) for row in rows]
    limits = [[scale] * max(map(len, rows)) for scale in scales]
    figure, axes = draw_grid(names, rows, limits, TITLE)
    for row in axes:
        where = {"location": "right", "shrink": 0.65, "aspect": 12.0}
        style.colour_bar(figure, row[0].images[0], list(row), "", **where)
    return figure


ORDER_PARAMETER = style.FigureEntry(
    draw_order_parameter,
    "Order parameter U₁ over pairs of attention paths (head·head, from layer 1 up): the exact "
    "posterior, below it every theory and, on the right, how far it is from the exact posterior in "
    "Monte Carlo standard errors (MCSE). At infinite width it is diagonal.",
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
