"""Heads removed together: the table of scores, the set that can go in words, and the curves."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.analysis.text import Number, wrapped
from sampler.heads.joint import JointRemoval
from sampler.heads.measures import PREDICTIONS
from sampler.heads.notes import UNITS
from sampler.presentation import style
from sampler.presentation.table import Column, Table

SCORES = PREDICTIONS | {"random": "random"}
# Curves with a colour of their own; all others are grey.
CURVES = {
    "taylor": (style.ORANGE, "^"),
    "magnitude": (style.PURPLE, "v"),
    "solved_again": (style.SKY_BLUE, "o"),
}


def order_rows(found: JointRemoval) -> list[dict]:
    """A row of plain numbers for each score and number of heads removed."""
    rows = []
    for key, orders in found.orders.items():
        for place, order in enumerate(orders):
            for at, heads in enumerate(order.test.removed):
                row: dict = {"score": key, "order": place, "removed": len(heads), "heads": heads}
                for split, curve in (("validation", order.validation), ("test", order.test)):
                    for measure in ("loss", "accuracy"):
                        if getattr(curve, measure) is not None:
                            value, error = curve.at(at, measure)
                            row |= {f"{split}_{measure}": value, f"{split}_{measure}_error": error}
                rows.append(row)
    return rows


def limit_table(found: JointRemoval, measure: str, limit: float) -> Table:
    """Return how many heads go by each score at a limit, and what they cost, likeliest first."""
    share = measure == "accuracy"
    unit = "points" if share else UNITS[found.loss].removesuffix(" loss")
    columns = [
        Column("heads removed", "removed"),
        Column(f"cost ({unit})", "cost", scale=100.0 if share else 1.0),
        Column(f"mean cost over all sets ({unit})", "area", scale=100.0 if share else 1.0),
        Column("seconds to find", "seconds", digits=2),
    ]
    rows = []
    for key, orders in found.orders.items():
        counts = [one.validation.heads_within(limit, measure) for one in orders]
        costs = [one.test.at(one.validation.within(limit, measure), measure) for one in orders]
        areas = [one.test.area(measure) for one in orders]
        spread = np.std(areas, ddof=1) if len(orders) > 1 else None
        of_one = costs[0] if len(orders) == 1 else (np.mean([cost for cost, _ in costs]), None)
        name = SCORES[key] if len(orders) == 1 else f"{SCORES[key]}, {len(orders)} orders"
        rows.append(
            [name, float(np.mean(counts)), of_one, (np.mean(areas), spread),
             found.seconds.get(key)]
        )  # fmt: skip
    rows.sort(key=lambda row: row[3][0])
    title = (
        f"heads chosen on {found.examples_validation} validation examples, cost on "
        f"{found.examples_test} test examples ±1σ"
    )
    return Table(title, ("", *columns), rows)


def by_layer(heads: tuple[tuple[int, int], ...]) -> str:
    """Heads as "layer 1: 0, 3; layer 2: 1"."""
    layers: Mapping[int, list[int]] = {}
    for layer, head in sorted(heads):
        layers.setdefault(layer, []).append(head)
    return "; ".join(
        f"layer {layer}: {', '.join(map(str, some))}" for layer, some in layers.items()
    )


def removable_text(found: JointRemoval, score: str, measure: str, limit: float) -> str:
    """Return the heads that can go, what they cost on unseen examples, and all scores.

    score    by which they are chosen, on validation examples
    measure  "loss" or "accuracy", of which so much may be lost
    """
    order = found.orders[score][0]
    place = order.validation.within(limit, measure)
    heads = order.test.removed[place]
    unit = UNITS[found.loss].removesuffix(" loss")
    costs = [f"loss gained {Number(*order.test.at(place))} {unit}"]
    if order.test.accuracy is not None:
        lost = Number(*order.test.at(place, "accuracy"), scale=100.0)
        costs.append(f"accuracy lost {lost} points")
    at_most = (
        f"{Number(limit, scale=100.0)} points of accuracy"
        if measure == "accuracy"
        else f"{Number(limit)} {unit}"
    )
    whole = ", ".join(f"{key} {Number(*value)}" for key, value in found.unpruned.items())
    lines = [
        f"{len(heads)} of {len(found.heads)} heads can go by {SCORES[score]}, at a limit of "
        f"{at_most} on {found.examples_validation} validation examples",
        by_layer(heads) or "no head",
        f"without them, on {found.examples_test} test examples: {', '.join(costs)} (the whole "
        f"model: {whole})",
    ]
    text = "\n".join(map(wrapped, [*lines, *found.notes]))
    if len(found.orders) == 1:
        return text
    return f"{text}\n\n{limit_table(found, measure, limit).text(elsewhere='to_dataframe()')}"


def draw_together(found: JointRemoval, measure: str, limit: float | None = None) -> Figure:
    """Draw the cost on test examples against the number of heads removed, for every score."""
    title = f"Cost of heads removed together, {found.examples_test} test examples"
    figure = style.new_figure(style.WIDTH, 4.6, title)
    axes = figure.subplots()
    scale = 100.0 if measure == "accuracy" else 1.0
    for key, orders in found.orders.items():
        colour, mark = CURVES.get(key, (style.GREY, ""))
        for place, order in enumerate(orders):
            values = scale * np.array(getattr(order.test, measure).values)
            errors = scale * np.array(getattr(order.test, measure).errors)
            faint = {"alpha": 0.35, "linewidth": 0.8} if len(orders) > 1 else {"marker": mark}
            counts = [len(heads) for heads in order.test.removed]
            axes.errorbar(
                counts, values, errors if key in CURVES else None, color=colour,
                markersize=4, elinewidth=0.8, label=SCORES[key] if place == 0 else None, **faint,
            )  # fmt: skip
    if limit is not None:
        axes.axhline(scale * limit, color=style.GREY, linewidth=0.8, linestyle=":")
    unit = "points" if measure == "accuracy" else UNITS[found.loss].removesuffix(" loss")
    what = "accuracy lost" if measure == "accuracy" else "loss gained"
    axes.set(xlabel="heads removed", ylabel=f"{what} ({unit}, ±1σ over examples)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_below(figure, axes.get_legend_handles_labels(), 2)
    return figure
