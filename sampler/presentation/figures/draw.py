"""The table of figures, and drawing those that apply to stored results."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sampler.analysis.pruning_table import PruningTable
from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.errors import InputError
from sampler.presentation.figures import (
    accuracy,
    alignment,
    chains,
    finite_size,
    heads,
    kernels,
    network,
    order_parameter,
    predictor,
    pruning,
    reliability,
    task,
    temperature_choice,
    traces,
    variant_comparison,
)
from sampler.presentation.style import FigureEntry, figure_style, save_figure
from sampler.registry import Registry
from sampler.storage.run_directory import FIGURE_FOLDER

# Names of files, in the order of the report.
FIGURES: Registry[FigureEntry] = Registry(
    "figure",
    {
        "accuracy_against_width": accuracy.ACCURACY_AGAINST_WIDTH,
        "accuracy_at_chosen_temperatures": temperature_choice.ACCURACY_AT_CHOSEN_TEMPERATURES,
        "order_parameter_against_width": order_parameter.ORDER_PARAMETER_AGAINST_WIDTH,
        "finite_size": finite_size.FINITE_SIZE,
        "variant_comparison": variant_comparison.VARIANT_COMPARISON,
        "accuracy": accuracy.ACCURACY,
        "order_parameter": order_parameter.ORDER_PARAMETER,
        "order_parameter_trained": order_parameter.ORDER_PARAMETER_TRAINED,
        "predictor_mean": predictor.PREDICTOR,
        "predictor_sampled": predictor.PREDICTOR_SAMPLED,
        "reliability": reliability.RELIABILITY,
        "kernels": kernels.KERNELS,
        "path_kernels": kernels.PATH_KERNELS,
        "kernel_alignment": alignment.KERNEL_ALIGNMENT,
        "head_importance": heads.HEAD_IMPORTANCE,
        "head_scores": pruning.HEAD_SCORES,
        "pruning": pruning.PRUNING,
        "task": task.TASK,
        "network": network.NETWORK,
        "traces": traces.TRACES,
        "pairs": traces.PAIRS,
        "function_space_ranks": chains.FUNCTION_SPACE_RANKS,
        "order_parameter_ranks": chains.ORDER_PARAMETER_RANKS,
        "predictor_ranks": chains.PREDICTOR_RANKS,
        "ess_evolution": chains.ESS_EVOLUTION,
        "autocorrelation": chains.AUTOCORRELATION,
        "energy": chains.ENERGY,
    },
)


def register_figure(
    name: str,
    draw: Callable[[Any], Figure | None],
    *,
    caption: str,
    alternative: str,
    of: str = "run",
    section: str = "comparison",
) -> None:
    """Add a figure to `figures DIR`, the folder of figures and the report.

    name: of its files. draw: from `RunResults` (of="run"), `SweepResults` ("sweep") or
    `PruningTable` ("pruning") to a figure, None where it does not apply. Raises ValueError if the
    name is taken.
    """
    FIGURES.register(name, FigureEntry(draw, caption, alternative, (of,), section))


def figures_of(results: RunResults | SweepResults | PruningTable) -> Iterator[tuple[str, Figure]]:
    """Name and drawing of every figure that applies; those of pruning belong to their run."""
    for name in FIGURES:
        figure = figure_of(results, name)
        if figure is not None:
            yield name, figure


def figure_of(results: RunResults | SweepResults | PruningTable, name: str) -> Figure | None:
    """One figure of the table; None where it does not apply."""
    of = {RunResults: "run", SweepResults: "sweep", PruningTable: "pruning"}
    given = {of[type(results)]: results}
    if isinstance(results, RunResults) and results.pruning is not None:
        given["pruning"] = results.pruning
    entry = FIGURES[name]
    kind = next((kind for kind in entry.of if kind in given), None)
    return None if kind is None else entry.draw(given[kind])


def draw_figure(results: RunResults | SweepResults, name: str) -> Figure:
    """One figure, to be shown; InputError, with the names of those that apply, for another."""
    with figure_style():
        figure = figure_of(results, name) if name in FIGURES else None
        if figure is None:
            known = ", ".join(name for name, _ in figures_of(results))
            raise InputError("figure", name, f"there is none of these results; use {known}")
        return figure


def draw_figures(directory: Path, results: RunResults | SweepResults | PruningTable) -> list[Path]:
    """Draw into `directory/figures` what the results allow; return the files written.

    Raises InputError if a file is damaged; nothing is written then.
    """
    with figure_style():
        drawn = list(figures_of(results))
        return [
            path
            for name, figure in drawn
            for path in save_figure(figure, directory / FIGURE_FOLDER, name)
        ]
