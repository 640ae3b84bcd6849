"""Tables and figures of heads: their scores, what removing them costs, and orders of removal."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.analysis.names import head_label
from sampler.analysis.predictors import LEADING, NEXT, SAMPLED
from sampler.analysis.results import RunResults, temperature_text
from sampler.analysis.text import MISSING, Number, wrapped
from sampler.heads.measures import PREDICTIONS, REMOVED, Loss
from sampler.heads.notes import UNITS
from sampler.heads.rank_correlation import FEWEST_HEADS, RankCorrelation
from sampler.heads.removal import MODEL, SOLVED_AGAIN, ZEROED, Numbers, RemovedHeads
from sampler.presentation import style
from sampler.presentation.table import Column, Table
from sampler.storage.files import from_json

# What is measured: the model loses a head that sends its mean, or nothing; the theory loses it.
MEASURED = {
    "mean_loss": "loss, mean",
    "mean_accuracy": "accuracy, mean",
    "zero_loss": "loss, zero",
    "zero_accuracy": "accuracy, zero",
    "theory_loss": "loss of the theory, U₁ zeroed",
    "theory_accuracy": "accuracy of the theory, U₁ zeroed",
}
# Columns of the table of heads on a terminal, in the order in which they are kept there.
SHOWN = {
    "mean_loss": "mean",
    "zero_loss": "zero",
    "score": "head score",
    REMOVED: "theory",
    "mean_accuracy": "accuracy, mean",
    "taylor": "Taylor",
}
SHOWN_WITH_ORDERS = {
    "score": "head score",
    "mean_accuracy": "accuracy lost, mean",
    "zero_accuracy": "accuracy lost",
    "theory_accuracy": "lost in theory, U₁ zeroed",
    "solved_again": "loss of the theory solved again",
    "zero_loss": "loss gained",
}
# Columns in the unit of the model's loss; what the theory loses is a squared loss.
OF_THE_MODEL = ("mean_loss", "zero_loss", "taylor")
WHO = {MODEL: "model", ZEROED: "U₁ zeroed", SOLVED_AGAIN: "theory solved again"}
ORDERS = {
    "score": "by score",
    "taylor": "by Taylor importance",
    "magnitude": "by magnitude",
    "random": "at random",
}


def numbers_of(found: RemovedHeads) -> dict[str, Numbers]:
    """Return all that is known of each head by its key, what was measured first."""
    return {**found.measured, **found.predicted}


def order_shown(found: RemovedHeads) -> list[int]:
    """Return places of the heads in the order of tables: ascending score, or costliest first."""
    if found.orders:
        return np.argsort(found.predicted["score"].values, kind="stable").tolist()
    cost = found.measured.get("mean_loss", found.measured.get("zero_loss"))
    # Heads that were not removed come last.
    return np.argsort(-np.asarray(cost.values), kind="stable").tolist()


def unit_of(key: str, loss: Loss) -> str:
    """Return the unit of a column of the table of heads."""
    if key.endswith("accuracy"):
        return "points"
    if key == "score":
        return "of the largest"
    if key == "magnitude":
        return ""
    return UNITS[loss] if key in OF_THE_MODEL else UNITS["squared"]


def with_unit(text: str, unit: str) -> str:
    """Return a header with the unit of its column, where there is one."""
    return f"{text} ({unit})" if unit else text


def removal_table(
    found: RemovedHeads, headers: Mapping[str, str] = MEASURED | PREDICTIONS
) -> Table:
    """Return a row for each head.

    headers  of the columns by key; on a narrow terminal the last ones are left out first
    """
    numbers = numbers_of(found)
    keys = [key for key in headers if key in numbers]
    columns = [
        Column(
            header=with_unit(headers[key], unit_of(key, found.loss)),
            key=key,
            error=f"{key}_error",
            meaning=PREDICTIONS.get(key, ""),
            scale=100.0 if key.endswith("accuracy") else 1.0,
            digits=2,
            dropped=place,
        )
        for place, key in enumerate(keys)
    ]
    rows = [
        [head_label(*found.heads[at])]
        + [(numbers[key].values[at], numbers[key].errors[at] or None) for key in keys]
        for at in order_shown(found)
    ]
    title = (
        "loss gained without one head, its mean or 0 sent instead, ±1σ, and what is said beforehand"
    )
    return Table(title, ("", *columns), rows)


def correlation_table(found: RemovedHeads) -> Table:
    """Return Spearman's ρ of each prediction with each measure, and its interval over heads."""
    measured = sorted(found.measured, key=lambda key: bool(found.orders) and key.endswith("loss"))
    columns = [Column(MEASURED[key], key, dropped=at) for at, key in enumerate(measured)]
    rows = [
        [PREDICTIONS[name], *(correlation(one.spearman[key]) for key in measured)]
        for name, one in found.predicted.items()
    ]
    few = f" (none of fewer than {FEWEST_HEADS} heads)" if len(found.heads) < FEWEST_HEADS else ""
    title = f"Spearman ρ with what removal costs, 95 % over heads{few}"
    return Table(title, ("", *columns), rows)


def order_table(found: RemovedHeads) -> Table:
    """Return accuracies while heads are removed: a column for each order, and who loses them."""
    columns, curves = [], []
    for who, of_whom in WHO.items():
        for key, some in found.orders.items():
            if not some or who not in some[0].accuracy:
                continue
            values = np.array([one.accuracy[who].values for one in some])
            spread = values.std(axis=0, ddof=1) if len(some) > 1 else np.full(values.shape[1], None)
            header = f"{of_whom}, {ORDERS[key]}"
            columns.append(
                Column(header, f"{who}_{key}", scale=100.0, digits=3, dropped=len(columns))
            )
            curves.append(zip(values.mean(axis=0), spread, strict=True))
    rows = [[f"{count} removed", *row] for count, row in enumerate(zip(*curves, strict=True))]
    title = (
        "accuracy (%) while heads are removed one after the other, the lowest first; at random: "
        f"mean ± spread of {len(found.orders.get('random', ()))} orders"
    )
    return Table(title, ("", *columns), rows)


def tables_of(found: RemovedHeads) -> dict[str, Table]:
    """Return all tables by the method of `AblatedHeads` that gives all numbers of them."""
    shown = SHOWN_WITH_ORDERS if found.orders else SHOWN
    tables = {
        "to_dataframe()": removal_table(found, shown),
        "correlations()": correlation_table(found),
    }
    if found.orders:
        tables["result.orders"] = order_table(found)
    return tables


def whole_text(found: RemovedHeads) -> str:
    """Return loss and accuracy of the whole model, and on which examples."""
    units = {"loss": UNITS[found.loss].removesuffix(" loss"), "accuracy": ""}
    whole = [
        with_unit(f"{key} {Number(value, error)}", units[key])
        for key, (value, error) in found.unpruned.items()
    ]
    validation = found.examples_validation
    examples = "these" if validation is None else f"{validation} validation"
    return (
        f"the model on {found.examples_test} test examples: {', '.join(whole)}; "
        f"predictions from {examples} examples"
    )


def removal_text(found: RemovedHeads) -> str:
    """Return accuracies of the whole model, and all tables, as text for a terminal."""
    stored = found.examples_validation is None
    tables = [
        table.text(elsewhere="pruning.json" if stored else where)
        for where, table in tables_of(found).items()
    ]
    whole, *notes = map(wrapped, [whole_text(found), *found.notes])
    return "\n\n".join([whole, *tables[:1], *notes, *tables[1:]])


def two_digits(value: float) -> str:
    """Return a correlation to two decimals."""
    return f"{value:.2f}".replace("-", "−")


def rho_text(rho: RankCorrelation) -> str:
    """Return ρ for the title of a figure, with its interval where there is one."""
    value = f"Spearman ρ = {two_digits(rho.value)}"
    low, high = map(two_digits, rho.interval_over_heads)
    known = np.isfinite(rho.interval_over_heads).all()
    return f"{value}, 95 % over heads {low} to {high}" if known else value


def correlation(rho: RankCorrelation) -> str:
    """Return ρ with its interval over heads, short enough for a column of text."""
    if not np.isfinite(rho.value):
        return MISSING
    if not np.isfinite(rho.interval_over_heads).all():
        return two_digits(rho.value)
    low, high = map(two_digits, rho.interval_over_heads)
    return f"{two_digits(rho.value)} [{low}, {high}]"


# --- figures

PANELS = {
    REMOVED: style.THEORY,
    "score": style.SKY_BLUE,
    "taylor": style.ORANGE,
    "magnitude": style.GREEN,
}
# Marks of the layers from 1 on, again from the first where there are more.
MARKS = {"circles": "o", "squares": "s", "triangles": "^", "diamonds": "D", "wedges": "v"}
CURVES = {
    "magnitude": ("ascending magnitude", style.ORANGE, "s"),
    "taylor": ("ascending Taylor importance", style.SKY_BLUE, "D"),
    "score": ("ascending score", style.PURPLE, "o"),
}


def setting(found: RemovedHeads) -> str:
    """Return width and temperature for a title."""
    widths = found.widths
    shown = widths[0] if len(set(widths)) == 1 else list(widths)
    return f"$N$ = {shown}, {temperature_text(found.temperature)}"


def draw_costs(found: RemovedHeads) -> Figure:
    """Draw what removal costs against each prediction; a head is a mark, by its layer."""
    shown = [key for key in PANELS if key in found.predicted]
    title = f"Loss gained without a head, {found.examples_test} test examples"
    figure = style.new_figure(style.WIDTH, 2.5 * -(-len(shown) // 2) + 0.8, title)
    grid = style.panel_grid(figure, len(shown), 2, sharey=True)
    way = "mean_loss" if "mean_loss" in found.measured else "zero_loss"
    cost = found.measured[way]
    layers = np.array([layer for layer, _ in found.heads])
    for ax, key in zip(grid.flat, shown, strict=False):
        one = found.predicted[key]
        bars = {"fmt": "none", "ecolor": PANELS[key], "elinewidth": 1.0}
        ax.errorbar(one.values, cost.values, cost.errors, one.errors, **bars)
        for layer in np.unique(layers):
            mark = list(MARKS.values())[(layer - 1) % len(MARKS)]
            values, costs = (np.array(of)[layers == layer] for of in (one.values, cost.values))
            ax.plot(values, costs, mark, color=PANELS[key], markeredgecolor="white", markersize=7)
        rho = one.spearman[way]
        ax.set_title(rho_text(rho), fontsize=9)
        ax.set_xlabel(PREDICTIONS[key])
        ax.axhline(0.0, color=style.GREY, linewidth=0.8)
    figure.supylabel(f"{MEASURED[way]} ({UNITS[found.loss]}, ±1σ)", fontsize=10)
    named = {layer: list(MARKS)[(layer - 1) % len(MARKS)] for layer in np.unique(layers)}
    below = ", ".join(f"{mark} layer {layer}" for layer, mark in named.items())
    figure.text(0.5, -0.01, below, ha="center", va="top", fontsize=9)
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


def draw_head_scores(found: RemovedHeads) -> Figure:
    """Draw the score of every head beside what is lost without it, ascending score.

    That is accuracy, where labels are classes.
    """
    costs = ("mean_accuracy", "zero_accuracy", "mean_loss", "zero_loss")
    way = next(key for key in costs if key in found.measured)
    share = way.endswith("accuracy")
    score = found.predicted["score"]
    order = np.argsort(score.values, kind="stable")

    def ordered(numbers: Numbers) -> Numbers:
        """Return the numbers of the heads from the lowest score on."""
        return Numbers(*(tuple(np.array(of)[order]) for of in (numbers.values, numbers.errors)))

    rho = score.spearman[way]
    title = f"Head scores and what removal costs, {setting(found)}\n{rho_text(rho)}"
    figure = style.new_figure(style.WIDTH, 0.34 * len(order) + 2.3, title)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_scores(left, ordered(score))
    style.legend_below(figure, left.get_legend_handles_labels(), 3)
    left.set_yticks(range(len(order)), [head_label(*found.heads[place]) for place in order])
    lost = ordered(found.measured[way])
    values, errors = ((100 if share else 1) * np.array(of) for of in (lost.values, lost.errors))
    right.errorbar(values, range(len(order)), xerr=errors, fmt="o", color=style.BLACK)
    right.axvline(0.0, color=style.GREY, linewidth=0.8)
    what = "accuracy lost" if share else "loss gained"
    unit = unit_of(way, found.loss)
    right.set_xlabel(f"{what} without the head\n(trained model, {unit} ± error)")
    return figure


def draw_orders(found: RemovedHeads) -> Figure:
    """Draw the accuracy of trained model and theory after each removal, by order."""
    title = "Accuracy while heads are removed"
    figure = style.new_figure(style.WIDTH, 4.6, title, setting(found))
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    panels = ((MODEL, "trained model"), (ZEROED, style.LEADING))
    faint = {"color": style.GREY, "alpha": 0.35, "linewidth": 0.8}
    for ax, (who, name) in zip(axes, panels, strict=True):
        for place, order in enumerate(found.orders.get("random", ())):
            label = "random orders" if place == 0 else None
            draw_curve(ax, order.accuracy[who], label=label, **faint)
        for key, (label, colour, mark) in CURVES.items():
            words = {"label": label, "color": colour, "marker": mark}
            for order in found.orders.get(key, ()):
                draw_curve(ax, order.accuracy[who], errors=key == "score", **words)
        by_score = found.orders.get("score") or (None,)
        again = by_score[0] and by_score[0].accuracy.get(SOLVED_AGAIN)
        if who == ZEROED and again is not None:
            words = {"color": style.GREEN, "marker": "^", "label": "ascending score, solved again"}
            draw_curve(ax, again, **words)
        ax.set(title=name, xlabel="heads removed")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.accuracy_axis(axes[0].yaxis)
    axes[0].set_ylabel("accuracy (%), bars ±1 error of the test set")
    style.legend_below(figure, axes[1].get_legend_handles_labels())
    return figure


def draw_curve(ax: Axes, accuracy: Numbers, errors: bool = False, **marks) -> None:
    """Draw accuracies after 0, 1, 2 … removals, with their errors where these are asked for."""
    values, bars = (100 * np.array(of) for of in (accuracy.values, accuracy.errors))
    ax.errorbar(range(len(values)), values, bars if errors else None, markersize=4, **marks)


# Figures that `prune` draws, by the names of their files.
DRAWN = {
    "head_scores": draw_head_scores,
    "pruning": draw_orders,
}


def of_run(draw: Callable[[RemovedHeads], Figure]) -> Callable[[RunResults], Figure | None]:
    """Return the drawing of the heads that were removed in a run; None where none were."""
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
    "Accuracy against the number of heads removed, by score, by magnitude and at random.",
)
