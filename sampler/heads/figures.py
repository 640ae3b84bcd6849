"""Figures of removed heads: what removal costs, what predicts it, and orders of removal."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.as_json import from_json
from sampler.analysis.results import RunResults
from sampler.heads.measures import PREDICTIONS, REMOVED, REMOVED_EXACT, REMOVED_NEXT
from sampler.heads.removal import MODEL, SOLVED_AGAIN, ZEROED, Numbers, RemovedHeads
from sampler.heads.tables import interval, two_digits
from sampler.presentation import style

PANELS = {
    REMOVED: style.THEORY,
    REMOVED_NEXT: style.NEXT_ORDER,
    REMOVED_EXACT: style.SAMPLED,
    "score": style.SKY_BLUE,
    "taylor": style.ORANGE,
    "patching": style.GREEN,
}
# Marks of the layers from 1 on, again from the first where there are more.
MARKS = {"circles": "o", "squares": "s", "triangles": "^", "diamonds": "D", "wedges": "v"}
ORDERS = {
    "magnitude": ("ascending magnitude", style.ORANGE, "s"),
    "taylor": ("ascending Taylor importance", style.SKY_BLUE, "D"),
    "score": ("ascending score", style.PURPLE, "o"),
}


def setting(found: RemovedHeads) -> str:
    """Return width and temperature for a title."""
    widths = found.widths
    shown = widths[0] if len(set(widths)) == 1 else list(widths)
    return rf"$N$ = {shown}, $\mathcal{{T}}$ = {found.temperature:g}"


def draw_costs(found: RemovedHeads) -> Figure:
    """Draw what removal costs against each prediction; a head is a mark, by its layer."""
    shown = [key for key in PANELS if key in found.predicted]
    rows = -(-len(shown) // 2)
    figure = style.new_figure(style.WIDTH, 2.5 * rows + 0.8)
    figure.suptitle(
        f"Loss gained without a head ({found.loss}), {found.examples_test} test examples"
    )
    grid = figure.subplots(rows, 2, squeeze=False, sharey=True)
    cost = found.measured["zero_loss"]
    measured, errors = np.array(cost.values), np.array(cost.errors)
    layers = np.array([head.layer for head in found.heads])
    marks = dict(zip(np.unique(layers), MARKS, strict=False))
    for ax, key in zip(grid.flat, shown, strict=False):
        one = found.predicted[key]
        values, deviations = np.array(one.values), np.array(one.errors)
        words = {"color": PANELS[key], "markeredgecolor": "white", "markersize": 7}
        ax.errorbar(
            values, measured, errors, deviations, fmt="none", ecolor=PANELS[key], elinewidth=1.0
        )
        for layer in np.unique(layers):
            of_layer = layers == layer
            mark = list(MARKS.values())[(layer - 1) % len(MARKS)]
            ax.plot(values[of_layer], measured[of_layer], linestyle="", marker=mark, **words)
        rho = one.spearman["zero_loss"]
        ax.set_title(
            f"ρ = {two_digits(rho.value)} ({interval(rho.interval_over_heads)})", fontsize=9
        )
        ax.set_xlabel(PREDICTIONS[key])
        ax.axhline(0.0, color=style.GREY, linewidth=0.8)
    for ax in list(grid.flat)[len(shown) :]:
        ax.set_visible(False)
    figure.supylabel("loss gained (model, ±1σ)", fontsize=10)
    named = ", ".join(f"{mark} layer {layer}" for layer, mark in marks.items())
    below = {"ha": "center", "va": "top", "fontsize": 9}
    figure.text(0.5, -0.01, f"{named}; ρ: Spearman, 95 % over heads", **below)
    return figure


def draw_head_scores(found: RemovedHeads) -> Figure:
    """Draw the score of every head beside the accuracy lost without it, ascending score."""
    scores = {key: np.array(one.values) for key, one in found.predicted.items()}
    order = np.argsort(scores["score"], kind="stable")
    figure = style.new_figure(style.WIDTH, 0.34 * len(order) + 2.3)
    rho = found.predicted["score"].spearman["zero_accuracy"]
    figure.suptitle(
        f"Head scores and what removal costs, {setting(found)}\n"
        f"Spearman ρ = {two_digits(rho.value)}, 95 % over heads {interval(rho.interval_over_heads)}"
    )
    left, right = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(order))
    left.barh(places, scores["score"][order], color=style.THEORY, height=0.6, label=style.LEADING)
    if "score_exact" in scores:
        sampled = scores["score_exact"][order]
        left.plot(sampled, places, "D", color=style.SAMPLED, label=style.EXACT)
    if "score_next_order" in scores:
        marks = {"color": style.NEXT_ORDER, "markeredgecolor": "white", "markersize": 7}
        left.plot(scores["score_next_order"][order], places, "s", label=style.NEXT, **marks)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    left.set_xlabel("head score")
    left.set_yticks(places, [found.heads[place].label for place in order])
    lost = found.measured["zero_accuracy"]
    values, errors = (100 * np.array(one)[order] for one in (lost.values, lost.errors))
    right.errorbar(values, places, xerr=errors, fmt="o", color=style.BLACK)
    right.axvline(0.0, color=style.GREY, linewidth=0.8)
    right.set_xlabel("accuracy lost without the head\n(trained model, points ± error)")
    return figure


def draw_orders(found: RemovedHeads) -> Figure:
    """Draw the accuracy of trained model and theory after each removal, by order."""
    figure = style.new_figure(style.WIDTH, 4.6)
    figure.suptitle(f"Accuracy while heads are removed, {setting(found)}")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, (who, title) in zip(
        axes, ((MODEL, "trained model"), (ZEROED, style.LEADING)), strict=True
    ):
        for place, order in enumerate(found.orders["random"]):
            _curve(ax, order.accuracy[who], color=style.GREY, alpha=0.35, linewidth=0.8,
                   marker="", label="random orders" if place == 0 else None)  # fmt: skip
        for key, (label, colour, mark) in ORDERS.items():
            for order in found.orders.get(key, ()):
                _curve(ax, order.accuracy[who], errors=key == "score", color=colour, marker=mark,
                       label=label)  # fmt: skip
        again = found.orders["score"][0].accuracy.get(SOLVED_AGAIN)
        if who == ZEROED and again is not None:
            _curve(ax, again, color=style.GREEN, marker="^", label="ascending score, solved again")
        ax.set(title=title, xlabel="heads removed")
    style.accuracy_axis(axes[0].yaxis)
    axes[0].set_ylabel("accuracy (%), bars ±1 error of the test set")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _curve(ax: Axes, accuracy: Numbers, errors: bool = False, **marks) -> None:
    values, bars = (100 * np.array(one) for one in (accuracy.values, accuracy.errors))
    if errors:
        ax.errorbar(range(len(values)), values, bars, markersize=4, **marks)
    else:
        ax.plot(range(len(values)), values, markersize=4, **marks)


# Figures that `prune` draws, by the names of their files.
DRAWN = {"head_scores": draw_head_scores, "pruning": draw_orders}


def of_run(draw: Callable[[RemovedHeads], Figure]) -> Callable[[RunResults], Figure | None]:
    """Return the drawing of the heads that were removed in a run; None where none were."""
    return lambda run: None if run.pruning is None else draw(from_json(RemovedHeads, run.pruning))


HEAD_SCORES = style.FigureEntry(
    of_run(draw_head_scores),
    "Head scores against what removing a head costs.",
    "Scores of the attention heads against the accuracy that removing each of them costs.",
)
PRUNING = style.FigureEntry(
    of_run(draw_orders),
    "Accuracy while heads are removed one after the other.",
    "Accuracy against the number of heads removed, by score, by magnitude and at random.",
)
