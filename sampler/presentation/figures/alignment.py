"""Kernel–task alignment."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.presentation.style import GAUSSIAN_PROCESS, THEORY, new_figure

COMPONENTS = 50


def draw_alignment(theory: np.ndarray, gaussian_process: np.ndarray | None, setting: str) -> Figure:
    """Draw |e_i·y| / |y| for the first principal components i of the training kernel.

    theory, gaussian_process: [component], in descending order of eigenvalue.
    """
    figure = new_figure(6.4, 3.8)
    figure.suptitle("Kernel–task alignment" + (f", {setting}" if setting else ""))
    ax = figure.subplots()
    _draw_components(ax, theory, "o-", THEORY, "theory")
    if gaussian_process is not None:
        _draw_components(ax, gaussian_process, "s--", GAUSSIAN_PROCESS, r"GP ($N \to \infty$)")
    ax.set_xlabel("principal component $i$ of the training kernel")
    ax.set_ylabel(r"alignment $|e_i \cdot y|\,/\,|y|$")
    ax.set_ylim(bottom=0.0)
    shown = min(len(theory), COMPONENTS)
    ax.set_xticks([1, *range(5, shown + 1, 5)])
    figure.legend(loc="outside right upper")
    return figure


def _draw_components(ax: Axes, values: np.ndarray, marks: str, colour: str, label: str) -> None:
    shown = values[:COMPONENTS]
    component = np.arange(1, len(shown) + 1)
    ax.plot(component, shown, marks, color=colour, markersize=4.0, linewidth=1.0, label=label)
