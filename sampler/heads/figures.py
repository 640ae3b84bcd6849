"""Removed heads as figures: costs against a number, maps of layers and heads, orders of removal."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.analysis.names import head_label
from sampler.analysis.predictors import NEXT, SAMPLED
from sampler.analysis.results import RunResults, temperature_text
from sampler.heads.cost_tables import IN_ORDER, ORDERS
from sampler.heads.costs import RANDOM, Measure
from sampler.heads.importance import UNITS
from sampler.heads.path_sum import Replacement
from sampler.presentation import style

# Colour and mark of the orders in which heads are removed.
CURVES = {"taylor": (style.ORANGE, "D"), "head_score": (style.PURPLE, "o")}
NUMBERS = {
    "head_score": ("head score\n(relative to the largest)", style.THEORY),
    "taylor": ("Taylor importance\nmean |∂loss/∂gate|, ±1σ", style.ORANGE),
    "magnitude": ("magnitude\nof the weights", style.GREEN),
}
IN_PLACE = {"mean": "its mean in its place", "zero": "zero in its place"}


def setting(found: xr.Dataset) -> str:
    """Width and temperature of the theory for a title; empty without a theory."""
    if "widths" not in found.attrs:
        return ""
    widths = found.attrs["widths"]
    width = widths[0] if len(set(widths)) == 1 else tuple(map(int, widths))
    return f"$N$ = {width}, {temperature_text(found.attrs['temperature'])}"


def shown_cost(found: xr.Dataset, measure: Measure) -> tuple[str, float]:
    """Name, unit and factor of a cost."""
    if measure == "accuracy":
        return "accuracy lost (points)", 100.0
    return f"loss gained ({UNITS[found.attrs['loss']]})", 1.0


def draw_heads(
    found: xr.Dataset,
    number: str = "taylor",
    replacement: Replacement = "mean",
    measure: Measure = "loss",
) -> Figure | None:
    """Draw a number of every head against the loss without it, the lowest number on top.

    Magnitude replaces Taylor importance where gradients are unknown, loss replaces accuracy where
    labels are not classes. None where heads have no such number.
    """
    number = "magnitude" if number == "taylor" and number not in found else number
    if number not in found:
        return None
    measure = measure if f"{replacement}_{measure}" in found else "loss"
    found = found.isel(head=np.argsort(found[number].values, kind="stable"))
    label, colour = NUMBERS[number]
    what = label.splitlines()[0].capitalize()
    title = f"{what} and ablation cost, {found.attrs['examples']} test examples"
    rows = np.arange(found.sizes["head"])
    figure = style.new_figure(style.WIDTH, 0.34 * len(rows) + 1.9, title, setting(found))
    left, right = figure.subplots(1, 2, sharey=True)
    errors = found[f"{number}_error"].values if f"{number}_error" in found else None
    left.barh(rows, found[number].values, xerr=errors, color=colour, height=0.6)
    left.set(xlabel=label, xlim=(0.0, None))
    left.set_yticks(rows, [head_label(*head) for head in places_of(found)])
    name = f"{replacement}_{measure}"
    what, scale = shown_cost(found, measure)
    values, errors = (scale * found[key].values for key in (name, f"{name}_error"))
    right.errorbar(values, rows, xerr=errors, fmt="o", color=style.BLACK)
    right.axvline(0.0, color=style.GREY, linewidth=0.8)
    right.set_xlabel(f"{what}\n{IN_PLACE[replacement]}, ±1σ")
    left.invert_yaxis()
    return figure


def places_of(found: xr.Dataset) -> list[tuple[int, int]]:
    """Layer, from 1, and number, from 0, of every head."""
    return list(zip(found["layer"].values.tolist(), found["number"].values.tolist(), strict=True))


def draw_map(found: xr.Dataset) -> Figure:
    """Draw layers against heads, each coloured by the loss gained with its mean in its place."""
    cost = found["mean_loss"].to_dataframe().set_index(["layer", "number"])["mean_loss"]
    values = cost.unstack("number")
    title = f"Ablation cost on {found.attrs['examples']} test examples"
    figure = style.new_figure(style.WIDTH, 0.36 * len(values) + 2.0, title)
    ax = figure.subplots()
    ax.set_facecolor(style.UNDEFINED_CELL)
    limit = style.colour_limit(values.to_numpy())
    image = style.draw_matrix(ax, values.to_numpy(), limit, aspect="auto")
    ax.set_xticks(range(values.shape[1]), map(str, values.columns))
    ax.set_yticks(range(len(values)), map(str, values.index))
    ax.set(xlabel="head", ylabel="layer")
    what, _ = shown_cost(found, "loss")
    style.colour_bar(figure, image, [ax], f"{what}, {IN_PLACE['mean']}")
    return figure


def draw_orders(found: xr.Dataset) -> Figure | None:
    """Draw the accuracy of trained model and theory after each removal, by order.

    None where no order was measured, or labels are not classes.
    """
    panels = [who for who in IN_ORDER if who in found]
    if not panels:
        return None
    title = "Accuracy while heads are removed"
    figure = style.new_figure(style.WIDTH, 4.6, title, setting(found))
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharex=True, sharey=True))
    names = {"model": "trained model", "theory": style.LEADING}
    for ax, who in zip(axes, panels, strict=True):
        draw_curves(ax, found, who)
        ax.set(title=names[IN_ORDER[who]], xlabel="heads removed")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.accuracy_axis(axes[0].yaxis)
    axes[0].set_ylabel("accuracy (%), bars ±1 error of the test set")
    style.legend_below(figure, axes[0].get_legend_handles_labels(), 3)
    return figure


def draw_curves(ax: Axes, found: xr.Dataset, who: str) -> None:
    """Draw accuracies by order of removal: random ones faint, the first with its errors."""
    values, errors = (100.0 * found[name].values for name in (who, f"{who}_error"))
    orders, removed = found["order"].values, np.arange(found.sizes["removed"])
    at_random = values[orders == RANDOM]
    if len(at_random):
        label = [f"{len(at_random)} random orders"] + [None] * (len(at_random) - 1)
        faint = {"color": style.GREY, "alpha": 0.35, "linewidth": 0.8}
        ax.plot(removed, at_random.T, label=label, **faint)
    for key, (colour, mark) in CURVES.items():
        for place in np.flatnonzero(orders == key):
            bars = errors[place] if place == 0 else None
            drawn = {"color": colour, "marker": mark, "markersize": 4, "label": ORDERS[key]}
            ax.errorbar(removed, values[place], bars, **drawn)


def draw_removable(found: xr.Dataset, measure: Measure) -> Figure:
    """Draw the cost against the number of heads removed, and the set that goes."""
    known = found.attrs
    figure = style.new_figure(
        style.WIDTH, 4.2, "Cost of heads removed in order of Taylor importance"
    )
    axes = figure.subplots()
    what, scale = shown_cost(found, measure)
    curves = {
        "validation": (f"{known['examples_validation']} validation examples", style.GREY, "o"),
        "test": (f"{known['examples']} test examples", style.ORANGE, "^"),
    }
    for split, (label, colour, mark) in curves.items():
        name = f"{split}_{measure}"
        values, errors = (scale * found[key].values for key in (name, f"{name}_error"))
        axes.errorbar(range(len(values)), values, errors, color=colour, marker=mark, markersize=4,
                      elinewidth=0.8, label=label)  # fmt: skip
    axes.axvline(known["count"], color=style.GREY, linewidth=0.8, linestyle=":")
    if measure == known["measure"]:
        axes.axhline(scale * known["limit"], color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set(xlabel="heads removed", ylabel=f"{what}, ±1σ over examples")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_below(figure, axes.get_legend_handles_labels(), 2)
    return figure


# --- head scores of a run


def draw_head_importance(run: RunResults) -> Figure | None:
    """Draw the score of every head of a run; None without draws, or with one head per layer."""
    table = None if run.comparison is None else run.comparison.elements("head_score")
    leading = run.predicted("head_score")
    if table is None or leading is None or leading.shape[1] < 2:
        return None
    names = run.comparison.element_names("head_score")
    figure = style.new_figure(style.WIDTH, 0.34 * len(names) + 1.9, "Head scores", run.setting)
    ax, rows = figure.subplots(), np.arange(len(names))

    def of_heads(values: np.ndarray) -> list[float]:
        return [float(values[at]) for at in names.values()]

    ax.barh(rows, of_heads(leading), color=style.THEORY, height=0.6, label=style.LEADING)
    next_order = run.predicted("head_score", NEXT)
    if next_order is not None:
        marks = {"color": style.NEXT_ORDER, "markeredgecolor": "white", "markersize": 7}
        ax.plot(of_heads(next_order), rows, "s", label=style.NEXT, **marks)
    sampled, errors = (of_heads(table[name].values) for name in ("sampled", "error"))
    bars = {"fmt": "D", "color": style.SAMPLED, "label": run.name_of(SAMPLED)}
    ax.errorbar(sampled, rows, xerr=errors, **bars)
    ax.set(xlim=(0.0, None), xlabel="head score\n(relative to the largest)")
    ax.set_yticks(rows, list(names))
    ax.invert_yaxis()
    style.legend_below(figure, columns=3)
    return figure


# --- figures of stored results


def draw_head_scores(found: xr.Dataset) -> Figure | None:
    """Draw the score of every head of the theory against the model's loss without it."""
    return draw_heads(found, "head_score", "zero", "accuracy")


# Figures that `prune` draws, by the names of their files.
DRAWN = {"head_scores": draw_head_scores, "pruning": draw_orders}


def of_run(draw: Callable[[xr.Dataset], Figure | None]) -> Callable[[RunResults], Figure | None]:
    """The drawing of the heads that were removed in a run; None where none were."""

    def draw_run(run: RunResults) -> Figure | None:
        if run.pruning is None:
            return None
        stored = xr.Dataset.from_dict(run.pruning)
        # JSON has null for non-finite numbers.
        return draw(stored.astype(float))

    return draw_run


HEAD_IMPORTANCE = style.FigureEntry(
    draw_head_importance,
    "Head scores: the share of |U₁| on paths through each head, theory and posterior mean ± MCSE.",
    "Bars of the head scores of the theory, with those of the posterior mean of U₁ as points.",
)
HEAD_SCORES = style.FigureEntry(
    of_run(draw_head_scores),
    "Head scores against what removing a head costs.",
    "Scores of the attention heads against the accuracy that removing each of them costs.",
)
PRUNING = style.FigureEntry(
    of_run(draw_orders),
    "Accuracy while heads are removed one after the other.",
    "Accuracy against the number of heads removed, by head score, Taylor importance and at random.",
)
