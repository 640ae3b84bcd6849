"""Kernel–task alignment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sampler.analysis.results import RunResults
from sampler.analysis.sweeps import SweepResults
from sampler.presentation.style import (
    GAUSSIAN_PROCESS,
    LEADING,
    LIMIT,
    NEXT,
    NEXT_ORDER,
    SAMPLED,
    THEORY,
    WIDTH,
    FigureEntry,
    new_figure,
    title_of,
)

COMPONENTS = 50
# Where all agree, all are still seen: a cross on a diamond in a ring.
RING = {"fmt": "o-", "markersize": 8.0, "markerfacecolor": "none", "zorder": 3}
DIAMOND = {"fmt": "D", "markersize": 4.5, "zorder": 3.5}
CROSS = {"fmt": "x", "markersize": 5.0, "zorder": 4}
SQUARE = {"fmt": "s--", "markersize": 3.5}


@dataclass(frozen=True)
class AlignmentCurve:
    """Alignment [component], largest eigenvalue first; `mcse` of the same shape where sampled."""

    label: str
    colour: str
    marks: Mapping[str, Any]
    values: np.ndarray
    mcse: np.ndarray | None = None


def draw_alignment(curves: Sequence[AlignmentCurve], setting: str) -> Figure:
    """Draw |e_i·y| / |y| for the first principal components i of each kernel."""
    figure = new_figure(WIDTH, 3.9)
    figure.suptitle(title_of("Kernel–task alignment", setting))
    ax = figure.subplots()
    for curve in curves:
        shown = slice(min(len(curve.values), COMPONENTS))
        values = curve.values[shown]
        ax.errorbar(
            np.arange(1, len(values) + 1), values,
            yerr=None if curve.mcse is None else curve.mcse[shown], color=curve.colour,
            linewidth=1.0, capsize=2.0, label=curve.label, **curve.marks,
        )  # fmt: skip
    ax.set_xlabel("principal component $i$ of the training kernel")
    ax.set_ylabel(r"alignment $|e_i \cdot y|\,/\,|y|$")
    ax.set_ylim(bottom=0.0)
    count = min(len(curves[0].values), COMPONENTS)
    ax.set_xticks([1, *range(10, count + 1, 10)] if count >= 10 else range(1, count + 1))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def alignment_of(results: RunResults | SweepResults) -> Figure | None:
    """Of a run, or of the first run of a sweep that has a theory."""
    run = results.solved if isinstance(results, SweepResults) else results
    if run is None or run.theory_values("kernel_alignment") is None:
        return None
    curves = [
        AlignmentCurve(label, colour, marks, values)
        for label, colour, marks, values in (
            (LIMIT, GAUSSIAN_PROCESS, SQUARE, run.theory_values("gp_kernel_alignment")),
            (LEADING, THEORY, RING, run.theory_values("kernel_alignment")),
            (NEXT, NEXT_ORDER, CROSS, run.theory_values("kernel_alignment_next_order")),
        )
        if values is not None
    ]
    found = run.compared("kernel_alignment")
    if found is not None:
        sampled = found.sampled
        curves.append(
            AlignmentCurve(run.sampled_label, SAMPLED, DIAMOND, sampled.value, sampled.mcse)
        )
    return draw_alignment(curves, run.setting)


KERNEL_ALIGNMENT = FigureEntry(
    alignment_of,
    "How much of the labels lies along each of the first 50 principal components of the training "
    "kernel: infinite width, both orders of the theory, and the exact posterior ± MCSE.",
    "Alignment of the principal components of the training kernel with the labels, component by "
    "component: infinite width, both orders of the theory, and the exact posterior.",
    of=("run", "sweep"),
)
