"""Rank collapse: what a mask does to depth.

Attention replaces every token by an average of tokens. Layer upon layer makes all tokens the
same, μ(X) = ‖X − 1 x̄ᵀ‖_F → 0 (arXiv 2405.18781). How fast depends on the mask: once tokens are
nearly equal, so are the weights of all visible keys, and a layer is the uniform average over
them. The deviation then shrinks by that matrix's second eigenvalue λ in every layer.
Queries and keys are recomputed in each layer from the tokens of the layer below by new random
weights; values are the tokens themselves, or the tokens times a random orthogonal matrix.
With LayerNorm and a suitable value matrix there are tokens of every rank that a layer leaves as
they are: they are made here, and kept through as many layers, under the causal mask.

    python -m runs.studies.rank_collapse.study [FOLDER]     half a minute
"""

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from runs.studies.rank_collapse.mathematics import (
    Equilibrium,
    collapse_of_random_attention,
    distance_from_collapse,
    equilibrium,
    random_orthogonal_matrix,
    rank_of,
    rate_of_uniform_averages,
)
from runs.studies.study import Study, mean_over
from sampler.attention.variants import Softmax
from sampler.presentation import style

TOKENS, CHANNELS, KEY_CHANNELS, LAYERS, SEEDS, WINDOW = 48, 16, 16, 400, 10, 4
MASKS = {
    "all": Softmax(),
    "causal ($j ≤ i$)": Softmax(mask="causal"),
    f"window ($|i − j| ≤ {WINDOW}$)": Softmax(mask="window", window=WINDOW),
    f"one-sided window ($0 ≤ i − j ≤ {WINDOW}$)": Softmax(mask="one_sided_window", window=WINDOW),
}


COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY_BLUE)
MARKERS = "os^Dv*"
# Lower values leave the axis: with LayerNorm they are close to what rounding leaves of equal
# tokens, and without it they fall by more orders of magnitude than can be shown beside the others.
LOWEST = 1e-8
DEEPEST = 60  # layers that are shown: the slowest mask goes on as it does there
TITLES = (
    "attention only", "LayerNorm", "LayerNorm,\nrandom orthogonal values",
    "LayerNorm, causal mask,\ntokens of rank 4",
)  # fmt: skip


@dataclass(frozen=True)
class CollapseCurve:
    """Distances μ(X_l) of one mask, [seed, depth] from depth 0 on.

    Without LayerNorm, with it, and with it and random orthogonal values.
    """

    label: str
    plain: np.ndarray
    normalised: np.ndarray
    turned: np.ndarray


def draw_rank_collapse(
    curves: list[CollapseCurve], kept: dict[str, np.ndarray], setting: str = ""
) -> Figure:
    """Draw μ(X_l)/μ(X_0) against depth l up to `DEEPEST`, a panel for each kind of layer.

    Lines are geometric means over seeds, bands one standard deviation of the logarithm. In the last
    panel the same tokens with several value matrices: label → μ(X_l) [depth].
    """
    title = "Rank collapse: distance of the tokens from their mean"
    figure = style.new_figure(style.WIDTH, 6.6, f"{title}\n{setting}".strip())
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for ax, title in zip(panels.flat, TITLES, strict=True):
        ax.set(title=title, yscale="log", xlim=(-1.0, DEEPEST))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    for place, curve in enumerate(curves):
        marks = {"color": COLOURS[place % 6], "marker": MARKERS[place % 6]}
        _draw_curve(panels[0, 0], curve.plain, curve.label, marks)
        _draw_curve(panels[0, 1], curve.normalised, None, marks)
        _draw_curve(panels[1, 0], curve.turned, None, marks)
    for colour, dashes, (label, distance) in zip(
        (style.BLACK, style.INDIGO, style.BROWN), ("-", "--", ":"), kept.items(), strict=True
    ):
        looks = {"color": colour, "linestyle": dashes, "linewidth": 2.0}
        panels[1, 1].plot(distance / distance[0], label=label, **looks)
    panels[0, 0].set_ylim(LOWEST, 10.0)
    for ax in panels[1]:
        ax.set_xlabel("layers $l$")
    figure.supylabel(r"$\mu(X_l)\,/\,\mu(X_0)$,  $\mu = \| X - 1\bar{x}^T \|_F$", fontsize=10.0)
    panels[1, 1].legend(loc="center right", title="values", title_fontsize=9.0)
    seeds = len(curves[0].plain)
    title = f"keys $j$ that query $i$ sees;\ngeometric mean ± standard deviation, {seeds} seeds"
    entries = panels[0, 0].get_legend_handles_labels()
    style.legend_below(figure, entries, title=title, title_fontsize=9.0)
    return figure


def _draw_curve(ax: Axes, distances: np.ndarray, label: str | None, marks: dict) -> None:
    # A distance of exactly 0 has no logarithm; anything that far below the axis will do.
    share = distances / distances[:, :1]
    logarithms = np.log(np.maximum(share, np.finfo(float).tiny))
    centre, spread = logarithms.mean(axis=0), logarithms.std(axis=0)
    shown = slice(min(len(centre), DEEPEST + 1))
    centre, spread = centre[shown], spread[shown]
    depth = np.arange(len(centre))
    low, high = np.exp(np.maximum(centre - spread, -700.0)), np.exp(centre + spread)
    ax.fill_between(depth, low, high, color=marks["color"], alpha=0.2, linewidth=0.0)
    every = max(1, len(depth) // 15)
    ax.plot(depth, np.exp(centre), markersize=4.0, markevery=every, label=label, **marks)


def distances(
    mask: np.ndarray, seed: int, normalise: bool, orthogonal_values: bool = False
) -> np.ndarray:
    """μ(X_0) … μ(X_L); every mask sees the same tokens and the same random weights."""
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((TOKENS, CHANNELS))
    return collapse_of_random_attention(
        mask, tokens, LAYERS, KEY_CHANNELS, rng, normalise, orthogonal_values
    )


NAMES = {
    "none": "complete",
    "causal": "causal",
    "window": "window",
    "one_sided_window": "one-sided window",
}
# With LayerNorm tokens are known to rounding only; a deviation alone is known down to the smallest
# number there is.
SHALLOWEST, ROUNDING, SMALLEST = 30, 1e-12, 1e-290
SHOWN = (12, 50, 200, LAYERS)


def fall(found: np.ndarray, floor: float, uniform: float) -> dict:
    """μ/μ₀ at some depths, geometric means over seeds, and how fast it falls.

    The rate is what ln μ loses per layer, from layer 30 to where μ/μ₀ is below the floor, beside
    that of uniform averages; left out where that is too fast to fit.
    """
    share = found / found[:, :1]
    with np.errstate(divide="ignore"):
        means = np.exp(np.log(share[:, SHOWN]).mean(axis=0))
    numbers = {str(depth): mean for depth, mean in zip(SHOWN, means, strict=True)}
    deep = np.arange(share.shape[1])[None] >= SHALLOWEST
    used = (deep & (share > floor)).all(axis=0)
    if used.sum() < 5:
        return numbers
    depth = np.flatnonzero(used)
    slopes = [-np.polyfit(depth, np.log(one[used]), 1)[0] for one in share]
    where = {"first": SHALLOWEST, "last": int(depth[-1]), "uniform": uniform}
    return numbers | {"rate": mean_over(slopes, "seeds"), **where}


def fall_by_mask() -> tuple[list[CollapseCurve], dict]:
    """Curves of every mask, and their numbers."""
    curves, numbers = [], {}
    for label, variant in MASKS.items():
        mask = variant.visible(TOKENS).T
        uniform, name = rate_of_uniform_averages(mask), NAMES[variant.mask]
        plain, normalised, turned = (
            np.stack([distances(mask, seed, *choice) for seed in range(SEEDS)])
            for choice in ((False,), (True,), (True, True))
        )
        curves.append(CollapseCurve(label, plain, normalised, turned))
        numbers |= {
            f"{name}, attention only": fall(plain, SMALLEST, uniform),
            f"{name}, LayerNorm": fall(normalised, ROUNDING, uniform),
            f"{name}, and orthogonal values": fall(turned, ROUNDING, uniform),
        }
    return curves, numbers


# --- tokens that a layer leaves as they are

# Steps of the tokens after the first, by rank: −1 and 1 add a direction, 0 (all others) does not.
STEPS = {1: (), 2: (-1,), 3: (-1, 0, 1), 4: (-1, 0, 1, 0, -1)}
OF_EIGHT = [*STEPS.values(), *(tuple((-1) ** i for i in range(1, rank)) for rank in range(5, 9))]
NOISES, STARTS = (1e-8, 1e-6, 1e-4, 1e-3), 100
AVERAGES = np.tril(1.0 / np.arange(1, TOKENS + 1)[:, None] * np.ones(TOKENS))


def equilibrium_of(steps: tuple[int, ...], directions: int) -> Equilibrium:
    """Tokens whose further steps add no direction."""
    return equilibrium(AVERAGES, steps + (0,) * (TOKENS - 1 - len(steps)), directions)


def of_equilibrium(steps: tuple[int, ...], directions: int) -> dict:
    """Rank, how exact and how stable an equilibrium is, and what becomes of tokens beside it.

    Of the starts with noise how many are back, by its size, and the lowest rank of any.
    """
    found = equilibrium_of(steps, directions)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((STARTS, *found.tokens.shape))
    after = [found.after(found.tokens + scale * noise, LAYERS) for scale in NOISES]
    back = [sum(np.abs(one - found.tokens).max() < 1e-9 for one in ends) for ends in after]
    ranks = [min(map(rank_of, ends)) for ends in after]
    smallest = np.linalg.svd(found.tokens, compute_uv=False)[found.rank - 1]
    return {
        "rank": found.rank,
        "error": found.error,
        "smallest": smallest,
        "radius": found.growth,
        "back": {f"{noise:.0e}": int(count) for noise, count in zip(NOISES, back, strict=True)},
        "lowest": ranks,
    }


def kept_by_values() -> tuple[dict[str, np.ndarray], dict]:
    """μ(X_l) of tokens of rank 4 with three value matrices, and what is left after all layers."""
    start = equilibrium_of(STEPS[4], 4)
    turn = random_orthogonal_matrix(5, np.random.default_rng(0))
    matrices = {"made for them": start.values, "identity": np.eye(5), "orthogonal": turn}
    kept, numbers = {}, {}
    for label, values in matrices.items():
        layer, tokens = replace(start, values=values), [start.tokens]
        for _ in range(DEEPEST):
            tokens.append(layer.after(tokens[-1], 1))
        kept[label] = np.array([distance_from_collapse(one) for one in tokens])
        end = layer.after(start.tokens, LAYERS)
        left = distance_from_collapse(end) / distance_from_collapse(start.tokens)
        numbers[f"{label} values"] = left
    return kept, numbers


if __name__ == "__main__":
    study = Study(__file__)
    curves, numbers = fall_by_mask()
    for directions, all_steps in ((4, STEPS.values()), (8, OF_EIGHT)):
        for steps in all_steps:
            found = of_equilibrium(steps, directions)
            numbers[f"{directions + 1} channels, rank {found['rank']}"] = found
    kept, left = kept_by_values()
    study.record(numbers | left, seeds=list(range(SEEDS)))
    with style.figure_style():
        study.draw(draw_rank_collapse(curves, kept, f"{TOKENS} tokens, {CHANNELS} channels"))
