"""Removed heads as figures: costs beside numbers, maps of layers and heads, orders of removal."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.analysis.names import head_label
from sampler.analysis.predictors import LEADING, NEXT, SAMPLED
from sampler.analysis.results import RunResults, temperature_text
from sampler.heads.head_importance import SCORE, TAYLOR, Numbers
from sampler.heads.removal import MODEL, RANDOM, ZEROED, LargestSet, Measure, RemovedHeads
from sampler.heads.removal_tables import MEASURED, UNITS, unit_of
from sampler.presentation import style
from sampler.storage.files import from_json

CURVES = {
    TAYLOR: ("by Taylor importance", style.ORANGE, "D"),
    SCORE: ("by head score", style.PURPLE, "o"),
}


def setting(removed: RemovedHeads) -> str:
    """Width and temperature of the theory for a title; empty without a theory."""
    if removed.widths is None:
        return ""
    widths = removed.widths
    width = widths[0] if len(set(widths)) == 1 else list(widths)
    return f"$N$ = {width}, {temperature_text(removed.temperature)}"


def draw_map(removed: RemovedHeads) -> Figure:
    """Draw layers against heads, each coloured by what is lost without it."""
    way = next(key for key in MEASURED if key in removed.measured)
    layers = sorted({layer for layer, _ in removed.heads})
    heads = sorted({head for _, head in removed.heads})
    values = np.full((len(layers), len(heads)), np.nan)
    for (layer, head), value in zip(removed.heads, removed.measured[way].values, strict=True):
        values[layers.index(layer), heads.index(head)] = value
    title = f"Cost of each head, {removed.examples_test} test examples"
    figure = style.new_figure(style.WIDTH, 0.36 * len(layers) + 2.0, title)
    ax = figure.subplots()
    largest = np.nanmax(np.abs(values)) or 1.0
    ax.set_facecolor(style.UNDEFINED_CELL)
    image = ax.imshow(values, cmap=style.VALUES, vmin=-largest, vmax=largest, aspect="auto")
    ax.set_xticks(range(len(heads)), map(str, heads))
    ax.set_yticks(range(len(layers)), map(str, layers))
    ax.set(xlabel="head", ylabel="layer")
    figure.colorbar(image, ax=ax, label=f"{MEASURED[way]} ({UNITS[removed.loss]})")
    return figure


def draw_scores(
    ax: Axes,
    leading: Numbers,
    next_order: Numbers | None = None,
    sampled: Numbers | None = None,
    label: str = "",
) -> None:
    """Draw the scores of heads as bars, those of next order and the sampled ones as marks."""
    places = np.arange(len(leading.values))
    ax.barh(places, leading.values, color=style.THEORY, height=0.6, label=style.LEADING)
    if next_order is not None and np.isfinite(next_order.values).any():
        marks = {"color": style.NEXT_ORDER, "markeredgecolor": "white", "markersize": 7}
        ax.plot(next_order.values, places, "s", label=style.NEXT, **marks)
    if sampled is not None:
        bars = {"fmt": "D", "color": style.SAMPLED, "label": label}
        ax.errorbar(sampled.values, places, xerr=sampled.errors, **bars)
    ax.set_xlim(left=0.0)
    ax.set_xlabel("head score\n(relative to the largest)")


def draw_head_importance(run: RunResults) -> Figure | None:
    """Draw the score of every head of a run; None without draws, or with one head per layer."""
    table = None if run.comparison is None else run.comparison.elements("head_score")
    leading = run.predicted("head_score")
    if table is None or leading is None or leading.shape[1] < 2:
        return None
    names = run.comparison.element_names("head_score")
    figure = style.new_figure(style.WIDTH, 0.34 * len(names) + 1.9, "Head scores", run.setting)
    ax = figure.subplots()

    def of_heads(values: np.ndarray | None) -> tuple[float, ...]:
        return tuple(np.nan if values is None else float(values[at]) for at in names.values())

    sampled = Numbers(*(of_heads(table[name].values) for name in ("sampled", "error")))
    orders = [Numbers(of_heads(run.predicted("head_score", name)), sampled.errors)
              for name in (LEADING, NEXT)]  # fmt: skip
    draw_scores(ax, *orders, sampled, run.name_of(SAMPLED))
    ax.set_yticks(range(len(names)), list(names))
    ax.invert_yaxis()
    style.legend_below(figure, columns=3)
    return figure


def draw_head_scores(removed: RemovedHeads) -> Figure | None:
    """Draw the score of every head beside what is lost without it; None without a theory.

    Heads are in ascending order of their score. Lost is accuracy, where labels are classes.
    """
    if SCORE not in removed.predicted:
        return None
    accuracies = [key for key in removed.measured if key.endswith("accuracy")]
    way = (accuracies or list(removed.measured))[0]
    share = way.endswith("accuracy")
    score = removed.predicted[SCORE]
    order = np.argsort(score.values, kind="stable")

    def ordered(numbers: Numbers) -> Numbers:
        """The numbers of the heads from the lowest score on."""
        return Numbers(*(tuple(np.array(of)[order]) for of in (numbers.values, numbers.errors)))

    title = f"Head scores and what removal costs, {setting(removed)}"
    figure = style.new_figure(style.WIDTH, 0.34 * len(order) + 2.3, title)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_scores(left, ordered(score))
    style.legend_below(figure, left.get_legend_handles_labels(), 3)
    left.set_yticks(range(len(order)), [head_label(*removed.heads[place]) for place in order])
    lost = ordered(removed.measured[way])
    values, errors = ((100 if share else 1) * np.array(of) for of in (lost.values, lost.errors))
    right.errorbar(values, range(len(order)), xerr=errors, fmt="o", color=style.BLACK)
    right.axvline(0.0, color=style.GREY, linewidth=0.8)
    what = "accuracy lost" if share else "loss gained"
    unit = unit_of(way, removed.loss)
    right.set_xlabel(f"{what} without the head\n(trained model, {unit} ± error)")
    return figure


def draw_orders(removed: RemovedHeads) -> Figure | None:
    """Draw the accuracy of trained model and theory after each removal, by order.

    None where no order was measured, or labels are no classes.
    """
    curves = [curve for some in removed.curves.values() for curve in some]
    names = {MODEL: "trained model", ZEROED: style.LEADING}
    panels = {who: name for who, name in names.items() if curves and who in curves[0].accuracy}
    if not panels:
        return None
    title = "Accuracy while heads are removed"
    figure = style.new_figure(style.WIDTH, 4.6, title, setting(removed))
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharex=True, sharey=True))
    faint = {"color": style.GREY, "alpha": 0.35, "linewidth": 0.8}
    for ax, (who, name) in zip(axes, panels.items(), strict=True):
        for place, curve in enumerate(removed.curves.get(RANDOM, ())):
            label = "random orders" if place == 0 else None
            draw_curve(ax, curve.accuracy[who], label=label, **faint)
        for key, (label, colour, mark) in CURVES.items():
            words = {"label": label, "color": colour, "marker": mark}
            for curve in removed.curves.get(key, ()):
                draw_curve(ax, curve.accuracy[who], errors=key == SCORE, **words)
        ax.set(title=name, xlabel="heads removed")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.accuracy_axis(axes[0].yaxis)
    axes[0].set_ylabel("accuracy (%), bars ±1 error of the test set")
    style.legend_below(figure, axes[-1].get_legend_handles_labels())
    return figure


def draw_curve(ax: Axes, accuracy: Numbers, errors: bool = False, **marks) -> None:
    """Draw accuracies after 0, 1, 2 … removals, with their errors where these are asked for."""
    values, bars = (100 * np.array(of) for of in (accuracy.values, accuracy.errors))
    ax.errorbar(range(len(values)), values, bars if errors else None, markersize=4, **marks)


def draw_removable(largest: LargestSet, measure: Measure) -> Figure:
    """Draw the cost against the number of heads removed, and the set that goes."""
    title = "Cost of heads removed in order of Taylor importance"
    figure = style.new_figure(style.WIDTH, 4.2, title)
    axes = figure.subplots()
    scale = 100.0 if measure == "accuracy" else 1.0
    curves = {
        f"{largest.examples_validation} validation examples": (largest.validation, style.GREY, "o"),
        f"{largest.examples_test} test examples": (largest.test, style.ORANGE, "^"),
    }
    for label, (curve, colour, mark) in curves.items():
        values, errors = (scale * np.array(of) for of in (curve[measure].values,
                                                          curve[measure].errors))  # fmt: skip
        axes.errorbar(range(len(values)), values, errors, color=colour, marker=mark, markersize=4,
                      elinewidth=0.8, label=label)  # fmt: skip
    axes.axvline(largest.count, color=style.GREY, linewidth=0.8, linestyle=":")
    if measure == largest.measure:
        axes.axhline(scale * largest.limit, color=style.GREY, linewidth=0.8, linestyle=":")
    unit = "points" if measure == "accuracy" else UNITS[largest.loss]
    what = "accuracy lost" if measure == "accuracy" else "loss gained"
    axes.set(xlabel="heads removed", ylabel=f"{what} ({unit}, ±1σ over examples)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_below(figure, axes.get_legend_handles_labels(), 2)
    return figure


# Figures that `prune` draws, by the names of their files.
DRAWN = {"head_scores": draw_head_scores, "pruning": draw_orders}


def of_run(draw: Callable[[RemovedHeads], Figure | None]) -> Callable[[RunResults], Figure | None]:
    """The drawing of the heads that were removed in a run; None where none were."""
    return lambda run: None if run.pruning is None else draw(from_json(RemovedHeads, run.pruning))


HEAD_IMPORTANCE = style.FigureEntry(
    draw_head_importance,
    "Head scores: the share of |U₁| on paths through each head, theory and posterior mean ± MCSE.",
    "Bars of the head scores of the theory, with those of the posterior mean of U₁ as points.",
    shown="asked",
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
