"""The table and the figure of fewer paths and fewer directions."""

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampler.heads.paths import (
    AGAIN,
    BEST,
    NETWORK,
    OVERLAP,
    POINT,
    RANDOM,
    RANDOM_ONES,
    THEORY,
    CompressedPaths,
    Curve,
)
from sampler.presentation import style
from sampler.presentation.table import Column, Table

WHOSE = {NETWORK: "trained network", THEORY: "theory"}
PATHS = {
    "loss": ("by loss without the path", style.BLUE, "o"),
    "slope": ("by |∂loss/∂gate|", style.ORANGE, "^"),
    "size": ("by size", style.SKY_BLUE, "s"),
    OVERLAP: ("by the theory's U₁", style.PURPLE, "D"),
    THEORY: ("by loss of the theory", style.GREEN, "v"),
    AGAIN: ("by loss, learned again", style.BLACK, "P"),
    RANDOM: ("at random", style.GREY, "."),
}
RANKS = {
    BEST: ("in the best directions", style.BLUE, "o"),
    OVERLAP: ("in eigenvectors of the theory's U₁", style.PURPLE, "D"),
    AGAIN: ("at U₁ of this rank, learned again", style.BLACK, "P"),
    RANDOM: ("in random directions", style.GREY, "."),
}


def curves_shown(found: CompressedPaths) -> Iterator[tuple[str, str, bool, str, Curve]]:
    """Yield who is compressed, how in words, whether directions are kept, the key, the curve."""
    for who in WHOSE:
        for curves, words in ((found.removed, PATHS), (found.ranks, RANKS)):
            for key, (how, *_) in words.items():
                if key in curves.get(who, {}):
                    yield who, how, words is RANKS, key, curves[who][key]


def compression_table(found: CompressedPaths) -> Table:
    """Return the fewest paths, or directions, at one point of accuracy, and what half cost."""
    rows = []
    measures = set()
    for who, how, of_rank, _, curve in curves_shown(found):
        measure = "accuracy" if "accuracy" in curve.cost else "loss"
        measures.add(measure)
        kept = curve.fewest()
        low, high = curve.fewest(errors=-1.0), curve.fewest(errors=1.0)
        span = "" if low == high else f" ({low} to {high})"
        share = found.numbers(kept, of_rank) / found.numbers(found.paths, False)
        half = curve.kept.index((curve.kept[0] + 1) // 2)
        cost = curve.cost[measure]
        lost = (cost.values[half], cost.errors[half])
        counted = "rank" if of_rank else "paths"
        rows.append([f"{WHOSE[who]}, {how}", f"{counted} {kept}{span}", share, lost])
    accuracy = measures == {"accuracy"}
    unit = "accuracy lost (points)" if accuracy else "loss gained"
    columns = (
        Column(""),
        Column("fewest at 1 point" if accuracy else f"fewest at {POINT} of loss", "fewest"),
        Column("path weights kept (%)", "share", scale=100.0, digits=3, dropped=2),
        Column(f"{unit}, half kept", "half", "half_error", scale=100.0 if accuracy else 1.0,
               dropped=1),
    )  # fmt: skip
    title = (
        f"{found.paths} paths removed one by one, in orders chosen on {found.examples_chosen} "
        f"other examples, or path weights in fewer directions; ±1σ over {found.examples_test} test "
        f"examples, random: mean of {RANDOM_ONES}"
    )
    return Table(title, columns, rows)


def draw_compressed(found: CompressedPaths) -> Figure:
    """Draw what is lost against the paths and the directions kept, network above theory."""
    shown = [who for who in WHOSE if who in found.removed]
    title = f"Fewer paths, fewer directions, {found.examples_test} test examples"
    figure = style.new_figure(style.WIDTH, 2.6 * len(shown) + 1.4, title)
    axes = figure.subplots(len(shown), 2, squeeze=False, sharex=True, sharey=True)
    for who, _, of_rank, key, curve in curves_shown(found):
        ax = axes[shown.index(who), int(of_rank)]
        label, colour, mark = (RANKS if of_rank else PATHS)[key]
        share = "accuracy" in curve.cost
        cost = curve.cost["accuracy" if share else "loss"]
        values, errors = ((100 if share else 1) * np.array(of) for of in (cost.values, cost.errors))
        marks = {"fmt": f"{mark}-", "color": colour, "markersize": 4, "label": label}
        ax.errorbar(curve.kept, values, errors, **marks)
        ax.axhline(POINT * (100 if share else 1), color=style.GREY, linewidth=0.8)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_title(WHOSE[who])
        if not of_rank:
            ax.set_ylabel(f"{'accuracy lost (points)' if share else 'loss gained'}, ±1σ")
    for ax, label in zip(axes[-1], ("paths kept", "rank kept"), strict=True):
        ax.set_xlabel(label)
    named = {}
    for ax in axes.flat:
        handles, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    style.legend_below(figure, (list(named.values()), list(named)), 2)
    return figure
