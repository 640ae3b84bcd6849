"""Head scores, and accuracy when heads are removed."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampler.analysis.pruning_table import PrunedAccuracy, PruningTable
from sampler.presentation import style
from sampler.presentation.summary import interval, two_digits


def setting(table: PruningTable) -> str:
    """Width and temperature for a title."""
    widths = table.settings.widths
    shown = widths[0] if len(set(widths)) == 1 else list(widths)
    return rf"$N$ = {shown}, $\mathcal{{T}}$ = {table.settings.temperature:g}"


def draw_head_scores(table: PruningTable) -> Figure:
    """Score of every head beside the drop of the trained network without it, ascending score."""
    scores = np.array(table.scores["theory"])
    order = np.argsort(scores, kind="stable")
    figure = style.new_figure(style.WIDTH, 0.34 * len(order) + 2.3)
    rho = table.spearman["trained"]["theory"]
    figure.suptitle(
        f"Head scores and what removal costs, {setting(table)}\n"
        f"Spearman ρ = {two_digits(rho.value)}, 95 % over heads {interval(rho.interval_over_heads)}"
    )
    left, right = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(order))
    left.barh(places, scores[order], color=style.THEORY, height=0.6, label=style.LEADING)
    if "sampled" in table.scores:
        sampled = np.array(table.scores["sampled"])
        left.plot(sampled[order], places, "D", color=style.SAMPLED, label=style.EXACT)
    if "next_order" in table.scores:
        beyond = np.array(table.scores["next_order"])[order]
        marks = {"color": style.NEXT_ORDER, "markeredgecolor": "white", "markersize": 7}
        left.plot(beyond, places, "s", label=style.NEXT, **marks)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    left.set_xlabel("head score")
    left.set_yticks(places, [table.heads[place].label for place in order])
    drops = [table.alone["trained"][place] for place in order]
    values, errors = zip(*((100 * one.drop, 100 * one.drop_error) for one in drops), strict=True)
    right.errorbar(values, places, xerr=errors, fmt="o", color=style.BLACK)
    right.axvline(0.0, color=style.GREY, linewidth=0.8)
    right.set_xlabel("accuracy lost without the head\n(trained network, points ± error)")
    return figure


def draw_pruning(table: PruningTable) -> Figure:
    """Accuracy of trained network and theory after each removal, by order."""
    figure = style.new_figure(style.WIDTH, 4.6)
    figure.suptitle(f"Accuracy while heads are removed, {setting(table)}")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    orders, panels = (
        table.orders,
        (("trained", "trained network"), ("theory_zeroed", style.LEADING)),
    )
    for ax, (which, title) in zip(axes, panels, strict=True):
        start = table.unpruned["trained" if which == "trained" else "theory"]
        for place, order in enumerate(orders.random):
            _curve(ax, start, getattr(order, which), color=style.GREY, alpha=0.35, linewidth=0.8,
                   marker="", label="random orders" if place == 0 else None)  # fmt: skip
        _curve(ax, start, getattr(orders.magnitude, which), color=style.ORANGE, marker="s",
               label="ascending magnitude")  # fmt: skip
        _curve(ax, start, getattr(orders.score, which), color=style.PURPLE, marker="o",
               label="ascending score", errors=True)  # fmt: skip
        if which == "theory_zeroed" and orders.score.theory_refitted is not None:
            _curve(ax, start, orders.score.theory_refitted, color=style.GREEN, marker="^",
                   label="ascending score, solved again")  # fmt: skip
        ax.set(title=title, xlabel="heads removed")
    style.accuracy_axis(axes[0].yaxis)
    axes[0].set_ylabel("accuracy (%), bars ±1 error of the test set")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _curve(
    ax: Axes, start: PrunedAccuracy, steps: tuple[PrunedAccuracy, ...], errors=False, **marks
) -> None:
    points = [start, *steps]
    values = [100 * point.accuracy for point in points]
    if errors:
        bars = [100 * point.error for point in points]
        ax.errorbar(range(len(points)), values, bars, markersize=4, **marks)
    else:
        ax.plot(range(len(points)), values, markersize=4, **marks)


HEAD_SCORES = style.FigureEntry(
    draw_head_scores,
    "Head scores against what removing a head costs.",
    "Scores of the attention heads against the accuracy that removing each of them costs.",
    of=("pruning",),
)
PRUNING = style.FigureEntry(
    draw_pruning,
    "Accuracy while heads are removed one after the other.",
    "Accuracy against the number of heads removed, by score, by magnitude and at random.",
    of=("pruning",),
)
