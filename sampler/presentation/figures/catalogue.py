"""The table of figures, and drawing those that apply to stored results."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sampler.analysis.results import RunResults
from sampler.analysis.sweep_results import SweepResults
from sampler.errors import InputError, one_line
from sampler.presentation.figures import (
    accuracy,
    against_width,
    attention,
    kernel_matrices,
    order_parameter,
    temperatures,
    theory_against_draws,
    traces,
)
from sampler.presentation.style import FigureEntry, figure_style, save_figure
from sampler.registry import Registry
from sampler.storage.directory import FIGURE_FOLDER, LOG

# Names of files, in the order of the report. A figure from outside the package is added by
# FIGURES.register(name, FigureEntry(…)); it is then in `figures DIR` and, with its caption, in the
# report. Raises ValueError if the name is taken.
FIGURES: Registry[FigureEntry] = Registry(
    "figure",
    {
        "accuracy_against_width": accuracy.ACCURACY_AGAINST_WIDTH,
        "against_temperature": temperatures.AGAINST_TEMPERATURE,
        "order_parameter_against_width": order_parameter.ORDER_PARAMETER_AGAINST_WIDTH,
        "finite_size": against_width.FINITE_SIZE,
        "theory_against_draws": theory_against_draws.THEORY_AGAINST_DRAWS,
        "order_parameter": order_parameter.ORDER_PARAMETER,
        "order_parameter_trained": order_parameter.ORDER_PARAMETER_TRAINED,
        "kernel_alignment": kernel_matrices.KERNEL_ALIGNMENT,
        "kernels": kernel_matrices.KERNELS,
        "predictor_sampled": theory_against_draws.PREDICTOR_SAMPLED,
        "head_importance": "sampler.heads.figures:HEAD_IMPORTANCE",
        "head_scores": "sampler.heads.figures:HEAD_SCORES",
        "pruning": "sampler.heads.figures:PRUNING",
        "attention": attention.ATTENTION,
        "chains": traces.CHAINS,
    },
)
Results = RunResults | SweepResults


def figure_of(results: Results, name: str, **options: Any) -> Figure | None:
    """Draw one figure of the table, with options of its function; None where it does not apply."""
    entry = FIGURES[name]
    kind = "sweep" if isinstance(results, SweepResults) else "run"
    return entry.draw(results, **options) if kind in entry.of else None


def draw_figure(results: Results, name: str, **options: Any) -> Figure:
    """Draw one figure, to be shown; InputError, with the known names, for another."""
    with figure_style():
        figure = figure_of(results, name, **options) if name in FIGURES else None
        if figure is None:
            names = [name for name in FIGURES if figure_of(results, name) is not None]
            remedy = f"there is none of these results; use {', '.join(names)}"
            raise InputError("figure", name, remedy)
        return figure


def draw_figures(
    directory: Path,
    results: Results,
    svg: bool = False,
    failed: dict[str, Exception] | None = None,
) -> list[Path]:
    """Draw into `directory/figures` the figures that the results allow; return the files written.

    svg     as SVG too
    failed  takes, by name, what single figures fail with, and the others are drawn; without it the
            first error is raised

    Raises InputError if a file is damaged; nothing is written then.
    """
    drawn, written = {}, []
    with figure_style():
        for name in FIGURES:
            with errors_collected(name, failed):
                drawn[name] = figure_of(results, name)
        for name, figure in drawn.items():
            if figure is not None:
                with errors_collected(name, failed):
                    written += save_figure(figure, directory / FIGURE_FOLDER, name, svg)
    return written


@contextmanager
def errors_collected(name: str, failed: dict[str, Exception] | None) -> Iterator[None]:
    """Collect and log errors of a figure; a damaged file fails all of them."""
    try:
        yield
    except InputError:
        raise
    except Exception as problem:
        if failed is None:
            raise
        failed[name] = problem
        LOG.warning(
            "figure %s failed: %s: %s", name, type(problem).__name__, one_line(str(problem))
        )
