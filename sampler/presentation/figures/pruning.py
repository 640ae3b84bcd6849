"""Head scores, and accuracy when heads are removed."""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sampler.presentation.style import (
    BLACK,
    GREEN,
    GREY,
    ORANGE,
    SAMPLED,
    THEORY,
    figure_style,
    new_figure,
    save_figure,
)


def draw_pruning_figures(directory: Path) -> list[Path]:
    """Draw `head_scores` and `pruning` from `pruning.json`; return the files written."""
    table = json.loads((directory / "pruning.json").read_text(encoding="utf-8"))
    with figure_style():
        figures = {"head_scores": draw_head_scores(table), "pruning": draw_pruning(table)}
        written: list[Path] = []
        for name, figure in figures.items():
            written += save_figure(figure, directory / "figures", name)
        return written


def setting(table: dict) -> str:
    widths = table["settings"]["widths"]
    shown = widths[0] if len(set(widths)) == 1 else widths
    return rf"$N$ = {shown}, $\mathcal{{T}}$ = {table['settings']['temperature']:g}"


def head_name(head: dict) -> str:
    return f"layer {head['layer']}, head {head['head']}"


def draw_head_scores(table: dict) -> Figure:
    """Score of every head beside the drop of the trained network without it, ascending score."""
    scores = np.array(table["scores"]["theory"], dtype=float)
    order = np.argsort(scores, kind="stable")
    figure = new_figure(7.6, 0.36 * len(order) + 2.1)
    rho = table["spearman"]["trained"]["theory"]
    figure.suptitle(
        f"Head scores and what removal costs, {setting(table)}\n"
        f"Spearman ρ = {number(rho['value'])}, 95 % over heads "
        f"{interval(rho['interval_over_heads'])}"
    )
    left, right = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(order))
    left.barh(places, scores[order], color=THEORY, height=0.6, label="theory")
    if "sampled" in table["scores"]:
        sampled = np.array(table["scores"]["sampled"], dtype=float)
        left.plot(sampled[order], places, "D", color=SAMPLED, label="exact posterior")
        left.legend(loc="lower right")
    left.set_xlabel("head score")
    left.set_yticks(places, [head_name(table["heads"][place]) for place in order])
    drops = [table["alone"]["trained"][place] for place in order]
    right.errorbar(
        [100 * one["drop"] for one in drops],
        places,
        xerr=[100 * one["drop_error"] for one in drops],
        fmt="o",
        color=BLACK,
    )
    right.axvline(0.0, color=GREY, linewidth=0.8)
    right.set_xlabel("loss of accuracy without the head\n(trained network, points ± error)")
    return figure


def draw_pruning(table: dict) -> Figure:
    """Accuracy of trained network and theory after each removal, by order."""
    figure = new_figure(9.2, 4.4)
    figure.suptitle(f"Accuracy while heads are removed, {setting(table)}")
    axes = figure.subplots(1, 2, sharex=True)
    for ax, which, title in zip(
        axes, ("trained", "theory_zeroed"), ("trained network", "theory"), strict=True
    ):
        start = table["unpruned"]["trained" if which == "trained" else "theory"]
        for place, order in enumerate(table["orders"]["random"]):
            _curve(ax, start, order[which], color=GREY, alpha=0.35, linewidth=0.8, marker="",
                   label="random orders" if place == 0 else None)  # fmt: skip
        _curve(ax, start, table["orders"]["magnitude"][which], color=ORANGE, marker="s",
               label="ascending magnitude")  # fmt: skip
        _curve(ax, start, table["orders"]["score"][which], color=THEORY, marker="o",
               label="ascending score", errors=True)  # fmt: skip
        if which == "theory_zeroed":
            _curve(ax, start, table["orders"]["score"]["theory_refitted"], color=GREEN,
                   marker="^", label="ascending score, refitted")  # fmt: skip
        ax.set(title=title, xlabel="heads removed")
        ax.legend(loc="lower left")
    axes[0].set_ylabel("accuracy (%)")
    return figure


def _curve(ax, start: dict, steps: list[dict], errors: bool = False, **style) -> None:
    points = [start, *steps]
    values = [100 * as_number(point["accuracy"]) for point in points]
    if errors:
        bars = [100 * as_number(point["error"]) for point in points]
        ax.errorbar(range(len(points)), values, bars, markersize=4, **style)
    else:
        ax.plot(range(len(points)), values, markersize=4, **style)


def pruning_text(table: dict) -> str:
    """A row per head, the correlations, and the accuracies while heads are removed."""
    unpruned = table["unpruned"]
    lines = [
        "",
        f"unpruned: trained network {percent(unpruned['trained'])}, "
        f"theory {percent(unpruned['theory'])}",
        f"{'removed':18}{'score':>8}{'trained':>16}{'drop':>16}{'theory':>9}{'refitted':>10}",
    ]
    scores, alone = table["scores"]["theory"], table["alone"]
    refitted = iter(alone["theory_refitted"])
    counts = np.bincount([head["layer"] for head in table["heads"]])
    again = [next(refitted) if counts[h["layer"]] > 1 else {} for h in table["heads"]]
    for place in np.argsort(np.array(scores, dtype=float), kind="stable"):
        trained = alone["trained"][place]
        lines.append(
            f"{head_name(table['heads'][place]):18}{scores[place]:8.3f}"
            f"{percent(trained):>16}"
            f"{100 * trained['drop']:9.1f} ± {100 * trained['drop_error']:.1f}  "
            f"{100 * alone['theory_zeroed'][place]['accuracy']:9.1f}"
            f"{100 * as_number(again[place].get('accuracy')):10.1f}"
        )
    for which, name in (("trained", "trained network"), ("theory_zeroed", "theory")):
        for key, rho in table["spearman"][which].items():
            score = f"score ({key})" if key in table["scores"] else key
            lines.append(
                f"Spearman of {score} and drop of {name}: {number(rho['value'])}, 95 % "
                f"over heads {interval(rho['interval_over_heads'])}, "
                f"over test examples {interval(rho['interval_over_examples'])}"
            )
    for order in ("score", "magnitude"):
        steps = ", ".join(f"{100 * s['accuracy']:.1f}" for s in table["orders"][order]["trained"])
        lines.append(f"trained network, ascending {order}: {steps}")
    random = [[s["accuracy"] for s in one["trained"]] for one in table["orders"]["random"]]
    if random:
        mean, spread = 100 * np.mean(random, axis=0), 100 * np.std(random, axis=0, ddof=1)
        steps = ", ".join(f"{m:.1f} ± {s:.1f}" for m, s in zip(mean, spread, strict=True))
        lines.append(f"trained network, {len(random)} random orders (mean ± spread): {steps}")
    return "\n".join(lines)


def as_number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def number(value: float | None) -> str:
    return f"{as_number(value):.2f}".replace("-", "−")


def interval(bounds) -> str:
    return f"{number(bounds[0])} to {number(bounds[1])}"


def percent(found: dict) -> str:
    return f"{100 * found['accuracy']:.1f} ± {100 * found['error']:.1f} %"
