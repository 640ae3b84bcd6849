"""Mean and variance of the predictor: samples against theory."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.presentation.style import GREY, SAMPLED, new_figure

LARGEST_VECTOR_DRAWING = 5000  # points; beyond this the SVG holds them as one picture


@dataclass(frozen=True)
class ComparedPredictor:
    """One quantity of the predictor over the test set; theory, sampled, mcse: [test_example]."""

    symbol: str
    theory: np.ndarray
    sampled: np.ndarray
    mcse: np.ndarray


def draw_predictor(quantities: list[ComparedPredictor], sampled_label: str, setting: str) -> Figure:
    """Draw each quantity sampled against theory, one panel each, with the line of equality."""
    figure = new_figure(4.4 * len(quantities) + 0.4, 4.4)
    figure.suptitle("Predictor on the test set" + (f", {setting}" if setting else ""))
    for ax, quantity in zip(
        figure.subplots(1, len(quantities), squeeze=False)[0], quantities, strict=True
    ):
        _draw_scatter(ax, quantity, sampled_label)
    return figure


def _draw_scatter(ax: Axes, quantity: ComparedPredictor, sampled_label: str) -> None:
    theory, sampled, mcse = (
        np.ravel(values) for values in (quantity.theory, quantity.sampled, quantity.mcse)
    )
    container = ax.errorbar(
        theory,
        sampled,
        yerr=np.nan_to_num(mcse),
        fmt="o",
        markersize=2.5,
        color=SAMPLED,
        alpha=0.45,
        elinewidth=0.8,
        capsize=0.0,
        markeredgewidth=0.0,
        label=f"{theory.size} test values, bars ±1 MCSE",
    )
    if theory.size > LARGEST_VECTOR_DRAWING:
        for artist in container.get_children():
            artist.set_rasterized(True)
    ax.axline((0.0, 0.0), slope=1.0, color=GREY, linewidth=1.0, zorder=0, label="sampled = theory")
    ax.set_xlabel(f"theory, {quantity.symbol}")
    # A warning in brackets on a line of its own: both do not fit beside one axis.
    ax.set_ylabel(f"{sampled_label}, {quantity.symbol}".replace(" (", "\n("))
    both = np.concatenate([theory, sampled])
    both = both[np.isfinite(both)]
    if both.size:
        margin = 0.05 * np.ptp(both) or 0.5
        # One range for both axes makes the line of equality the diagonal.
        ax.set(xlim=(both.min() - margin, both.max() + margin))
        ax.set(ylim=ax.get_xlim())
    ax.set_aspect("equal")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1.0)
