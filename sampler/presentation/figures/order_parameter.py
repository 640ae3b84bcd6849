"""Order parameters U_1 as coloured matrices over pairs of attention paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
MOST_NUMBERED, MOST_TICKED = 6, 24  # paths; of more, numbers no longer fit their cells
SHOWN_WIDTHS = (100, 1000)  # that a sweep shows with its smallest width
NARROWEST_NUMBERED, LARGEST_CELL = 0.5, 0.8  # inches of a cell: with a number and its error; most


@dataclass(frozen=True)
class Matrix:
    """A matrix [path, path_] with its title, the end of its colour scale, and Monte Carlo errors.

    signed  of differences, which have colours of their own
    """

    title: str
    values: np.ndarray
    mcse: np.ndarray | None = None
    limit: float = 1.0
    signed: bool = False


# [row][column]; None leaves a place empty.
Grid = Sequence[Sequence[Matrix | None]]


def on_one_scale(titled: Mapping[str, tuple[np.ndarray, np.ndarray | None]]) -> list[Matrix]:
    """Title → values and errors, as matrices on one colour scale."""
    limit = style.colour_limit(*(values for values, _ in titled.values()))
    return [Matrix(title, values, mcse, limit) for title, (values, mcse) in titled.items()]


def matrices_of(run: RunResults) -> list[Matrix]:
    """U_1 of every theory and, last, of the samples, if there are any."""
    predicted = run.predictions("order_parameter")
    titled = {run.name_of(name): (values, None) for name, values in predicted.items()}
    sampled = run.sampled("order_parameter")
    if sampled is not None and titled:
        titled[run.name_of(SAMPLED)] = sampled.value, sampled.mcse
    return on_one_scale(titled)


def draw_order_parameter(run: RunResults) -> Figure | None:
    """Draw U_1 of the samples and of every theory, and how far each theory is from the samples.

    All matrices have one colour scale; so have the differences (exact − theory)/MCSE to the right
    of their theory, undefined where the MCSE is zero. Without samples the theories alone are drawn.
    """
    matrices = matrices_of(run)
    if not matrices:
        return None
    title, sampled = f"{TITLE}, {run.setting}", matrices[-1]
    if sampled.mcse is None:
        rows = [matrices[place : place + 2] for place in range(0, len(matrices), 2)]
        return draw_on_one_scale(run.path_names, rows, title)
    errors = np.where(sampled.mcse > 0, sampled.mcse, np.nan)
    gaps = [(sampled.values - theory.values) / errors for theory in matrices[:-1]]
    # The largest by chance is the least range: differences within the noise stay pale.
    least = run.comparison.largest_by_chance("order_parameter")
    widest = max(least, style.colour_limit(*gaps))
    rows = [[sampled, None]]
    for theory, gap in zip(matrices[:-1], gaps, strict=True):
        words = f"(exact − {theory.title})\nin MCSE"
        rows.append([theory, Matrix(words, gap, limit=widest, signed=True)])
    figure, axes = draw_grid(run.path_names, rows, title)
    style.colour_bar(figure, axes[0, 0].images[0], list(axes[:, 0]), "$U_1$")
    style.colour_bar(figure, axes[1, 1].images[0], list(axes[:, 1]), "difference in MCSE")
    return figure


def draw_trained_order_parameter(run: RunResults) -> Figure | None:
    """Draw U_1 of theory, samples and the network that gradient descent trained.

    Each is divided by the mean of its diagonal: training does not determine the scale of a
    posterior.
    """
    theory, trained = run.predicted("order_parameter"), run.theory_values("order_parameter_trained")
    if theory is None or trained is None:
        return None
    cosines = {LEADING: Number(float(off_diagonal_cosine(theory, trained)), digits=3)}
    titled = {style.LEADING: (theory, None)}
    sampled = run.sampled("order_parameter")
    if sampled is not None:
        titled[run.name_of(SAMPLED)] = sampled.value, sampled.mcse
        told = run.comparison.rows.get(("cosine_to_trained", SAMPLED), {})
        cosines[SAMPLED] = Number(told.get("value", np.nan), told.get("error"))
    titled["gradient descent"] = trained, None
    for title, (values, mcse) in titled.items():
        unit = np.diag(values).mean()
        titled[title] = values / unit, None if mcse is None else mcse / unit
    matrices = on_one_scale(titled)
    texts = [f"{predictor_name(name)} {value}" for name, value in cosines.items() if value.defined]
    title = (
        f"$U_1$ / mean of its diagonal, {run.setting}\n"
        f"cosine off the diagonal with gradient descent:\n{', '.join(texts)}"
    )
    return draw_on_one_scale(run.path_names, [*filter(None, (matrices[:2], matrices[2:]))], title)


def draw_order_parameter_against_width(sweep: SweepResults) -> Figure | None:
    """Draw U_1 of all theories and of the samples, a row for each of several points of a sweep.

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
        point = short_label(sweep.rows[row].settings).replace(",", "\n")
        point = point if widths is None else f"$N$ = {widths[row]:g}"
        # A sweep may change the heads; only matrices over the same paths can share a grid.
        if runs[row].path_names == names:
            of_point = matrices_of(runs[row])
            rows.append([replace(one, title=f"{one.title}\n{point}") for one in of_point])
    rows = [row for row in rows if row]
    if not rows:
        return None
    figure, axes = draw_grid(names, rows, TITLE)
    for row in axes:
        where = {"location": "right", "shrink": 0.65, "aspect": 12.0}
        style.colour_bar(figure, row[0].images[0], list(row), "", **where)
    return figure


# --- grids of matrices


def draw_on_one_scale(path_names: Sequence[str], rows: Grid, title: str) -> Figure:
    figure, axes = draw_grid(path_names, rows, title)
    style.colour_bar(figure, axes[0, 0].images[0], list(axes.flat), "$U_1$")
    return figure


def draw_grid(path_names: Sequence[str], rows: Grid, title: str) -> tuple[Figure, np.ndarray]:
    """Draw matrices [row][column]; return the figure and its axes."""
    columns, count = max(map(len, rows)), len(path_names)
    names = 0.075 * max(map(len, path_names)) + 0.4
    side = min((style.WIDTH - names) / columns - 0.2, LARGEST_CELL * max(2, count))
    width = names + columns * (side + 0.25)
    figure = style.new_figure(width, len(rows) * (side + 0.5) + 0.7 * names + 1.4, title)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    numbered = count <= MOST_NUMBERED and side / count >= NARROWEST_NUMBERED
    full = [[*row, *[None] * (columns - len(row))] for row in rows]
    for (row, column), ax in np.ndenumerate(axes):
        matrix = full[row][column]
        if matrix is None:
            ax.set_axis_off()
            continue
        draw_matrix(ax, matrix, numbered)
        lowest = not any(below[column] for below in full[row + 1 :])
        tick_paths(ax, path_names, rows=column == 0, columns=lowest)
    return figure, axes


def draw_matrix(ax: Axes, matrix: Matrix, numbered: bool) -> None:
    """Draw a matrix with its title and, where they fit, its numbers."""
    colours = colormaps["PuOr" if matrix.signed else style.VALUES]
    colours = colours.with_extremes(bad=style.UNDEFINED_CELL)
    image = style.draw_matrix(ax, matrix.values, matrix.limit, cmap=colours)
    # A warning in brackets on a line of its own: it is wider than the panel.
    ax.set_title(style.bracket_below(matrix.title))
    for at, value in np.ndenumerate(matrix.values if numbered else np.empty((0, 0))):
        red, green, blue, _ = image.cmap(image.norm(value))
        # Relative luminance decides whether black or white is easier to read.
        is_dark = np.isfinite(value) and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45
        marks = {"fontsize": 9.5 if len(matrix.values) <= 3 else 7.5, "ha": "center"}
        marks["color"] = "white" if is_dark else "black"
        error = None if matrix.mcse is None else matrix.mcse[at]
        ax.text(*at[::-1], cell_text(value, error, matrix), va="center", **marks)


def cell_text(value: float, error: float | None, matrix: Matrix) -> str:
    """Write a number with its error below it, or with as many decimals as the largest needs."""
    if not np.isfinite(value):
        return "undefined"
    if error is not None:
        return str(Number(value, error)).replace(" ± ", "\n± ")
    decimals = max(3 - int(np.floor(np.log10(matrix.limit))), 0)
    form = "+z.1f" if matrix.signed else f"z.{decimals}f" if decimals <= 5 else ".2e"
    return style.minus_signs(f"{value:{form}}")


def tick_paths(ax: Axes, path_names: Sequence[str], *, rows: bool, columns: bool) -> None:
    """Name the paths along these axes, as many as there is room for."""
    step = -(-len(path_names) // MOST_TICKED)
    places, labels = range(0, len(path_names), step), list(path_names[::step])
    ax.tick_params(length=0, labelsize=9.0 if len(path_names) <= MOST_NUMBERED else 7.0)
    slanted = {"rotation": 45.0, "ha": "right", "rotation_mode": "anchor"}
    wide = columns and max(map(len, labels)) * len(labels) > 10
    ax.set_xticks(places, labels if columns else [], **slanted if wide else {})
    ax.set_yticks(places, labels if rows else [])


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
    "Order parameter U₁ at some points of the sweep, a row each: theories, and on the right the "
    "exact posterior. Every row has a colour scale of its own.",
    "Coloured matrices over pairs of attention paths: U₁ of the theory and of the samples, for "
    "several points of the sweep.",
    of=("sweep",),
)
