"""What removing heads costs, against predictions of it."""

import numpy as np
from matplotlib.figure import Figure

from sampler.analysis.head_ablation import (
    PREDICTIONS,
    REMOVED,
    REMOVED_EXACT,
    REMOVED_NEXT,
    HeadAblation,
)
from sampler.presentation import style
from sampler.presentation.summary import interval, two_digits

PANELS = (REMOVED, REMOVED_NEXT, REMOVED_EXACT, "score", "taylor", "patching")
COLOURS = {
    REMOVED: style.THEORY,
    REMOVED_NEXT: style.NEXT_ORDER,
    REMOVED_EXACT: style.SAMPLED,
    "score": style.SKY_BLUE,
    "taylor": style.ORANGE,
    "patching": style.GREEN,
}


def draw_ablation(found: HeadAblation) -> Figure:
    """One panel for each prediction: every head is a mark, numbered by its layer."""
    shown = [key for key in PANELS if key in found.predicted]
    rows = -(-len(shown) // 2)
    figure = style.new_figure(style.WIDTH, 2.5 * rows + 0.8)
    figure.suptitle(
        f"Loss gained without a head ({found.loss}), {found.examples_test} test examples"
    )
    grid = figure.subplots(rows, 2, squeeze=False, sharey=True)
    measured, errors = map(np.array, found.measured["zero_loss"])
    layers = np.array([head.layer for head in found.heads])
    for ax, key in zip(grid.flat, shown, strict=False):
        one = found.predicted[key]
        values, deviations = np.array(one.values), np.array(one.errors)
        ax.errorbar(
            values, measured, errors, deviations, fmt="none", ecolor=COLOURS[key], elinewidth=1.0
        )
        for layer in np.unique(layers):
            of_layer = layers == layer
            ax.plot(
                values[of_layer], measured[of_layer], "os^Dv"[(layer - 1) % 5],
                color=COLOURS[key], markeredgecolor="white", markersize=7,
            )  # fmt: skip
        rho = one.spearman["zero_loss"]
        ax.set_title(
            f"ρ = {two_digits(rho.value)} ({interval(rho.interval_over_heads)})", fontsize=9
        )
        ax.set_xlabel(PREDICTIONS[key])
        ax.axhline(0.0, color=style.GREY, linewidth=0.8)
    for ax in list(grid.flat)[len(shown) :]:
        ax.set_visible(False)
    figure.supylabel("loss gained (model, ±1σ)", fontsize=10)
    marks = ", ".join(
        f"{name} layer {layer}"
        for layer, name in zip(
            np.unique(layers), ("circles", "squares", "triangles", "diamonds", "wedges"),
            strict=False,
        )
    )  # fmt: skip
    figure.text(0.5, -0.01, f"{marks}; ρ: Spearman, 95 % over heads", ha="center", va="top",
                fontsize=9)  # fmt: skip
    return figure
