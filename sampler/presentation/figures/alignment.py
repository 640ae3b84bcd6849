"""Kernel–task alignment."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.presentation.results import ShownRun, ShownSweep
from sampler.presentation.style import (
    GAUSSIAN_PROCESS,
    LEADING,
    LIMIT,
    THEORY,
    WIDTH,
    FigureEntry,
    new_figure,
    title_of,
)

COMPONENTS = 50


def draw_alignment(theory: np.ndarray, gaussian_process: np.ndarray | None, setting: str) -> Figure:
    """Draw |e_i·y| / |y| for the first principal components i of the training kernel.

    theory, gaussian_process: [component], in descending order of eigenvalue.
    """
    figure = new_figure(WIDTH, 3.9)
    figure.suptitle(title_of("Kernel–task alignment", setting))
    ax = figure.subplots()
    _draw_components(ax, theory, "o-", THEORY, LEADING)
    if gaussian_process is not None:
        _draw_components(ax, gaussian_process, "s--", GAUSSIAN_PROCESS, LIMIT)
    ax.set_xlabel("principal component $i$ of the training kernel")
    ax.set_ylabel(r"alignment $|e_i \cdot y|\,/\,|y|$")
    ax.set_ylim(bottom=0.0)
    shown = min(len(theory), COMPONENTS)
    ax.set_xticks([1, *range(10, shown + 1, 10)] if shown >= 10 else range(1, shown + 1))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _draw_components(ax: Axes, values: np.ndarray, marks: str, colour: str, label: str) -> None:
    shown = values[:COMPONENTS]
    component = np.arange(1, len(shown) + 1)
    ax.plot(component, shown, marks, color=colour, markersize=4.0, linewidth=1.0, label=label)


def alignment_of(results: ShownRun | ShownSweep) -> Figure | None:
    """Of a run, or of the first run of a sweep that has a theory."""
    run = results.solved if isinstance(results, ShownSweep) else results
    theory = None if run is None else run.theory_values("kernel_alignment")
    if theory is None:
        return None
    return draw_alignment(theory, run.theory_values("gp_kernel_alignment"), run.setting)


KERNEL_ALIGNMENT = FigureEntry(
    alignment_of,
    "How much of the labels lies along each principal component of the training kernel: theory "
    "against infinite width.",
    "Alignment of the principal components of the training kernel with the labels, "
    "component by component: theory against infinite width.",
    of=("run", "sweep"),
)
