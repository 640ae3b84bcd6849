"""Rank collapse: what a mask does to depth.

Attention replaces every token by an average of tokens. Layer upon layer makes all tokens the
same, μ(X) = ‖X − 1 x̄ᵀ‖_F → 0 (arXiv 2405.18781), by the second eigenvalue of the uniform average
over visible keys in every layer, once tokens are nearly equal. Queries and keys of each layer are
new random functions of its tokens; values are the tokens, or with LayerNorm the tokens times a
random orthogonal matrix. With a suitable value matrix there are tokens of every rank that a layer
leaves as they are: they are made here, and followed from starts beside them.

    python -m runs.studies.rank_collapse.study     half a minute
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from runs.studies.rank_collapse.mathematics import (
    collapse_of_random_attention,
    equilibrium,
    rate_of_uniform_averages,
)
from runs.studies.study import Study, mean_over
from runs.studies.tables import table
from sampler.attention.variants import Softmax
from sampler.presentation import style

TOKENS, CHANNELS, KEY_CHANNELS, LAYERS, WINDOW = 48, 16, 16, 400, 4
MASKS = {
    "complete": Softmax(),
    "causal": Softmax(mask="causal"),
    "window": Softmax(mask="window", window=WINDOW),
    "one-sided window": Softmax(mask="one_sided_window", window=WINDOW),
}
# Whether there is LayerNorm, with random orthogonal values, and down to which μ/μ₀ it is known:
# with LayerNorm tokens are known to rounding only, else to the smallest number there is.
KINDS = {"attention only": (False, 1e-290), "with LayerNorm": (True, 1e-12)}
SHALLOWEST, FEWEST = 30, 5  # the layer from which a rate is fitted, and how many it takes
DEPTHS = (12, 50, 200, LAYERS)
# Signs of the directions that tokens after the first add, by rank; 0 adds none.
STEPS = {1: (), 4: (-1, 0, 1, 0, -1), 5: (-1, 1, -1, 1), 8: (-1, 1, -1, 1, -1, 1, -1)}
OF_CHANNELS = {5: (1, 4), 9: (1, 4, 5, 8)}
NOISES, STARTS = (1e-8, 1e-6, 1e-4, 1e-3), 100


def distances(name: str, seed: int, normalised: bool) -> dict:
    """μ(X_l)/μ(X_0) by depth; every mask sees the same tokens and the same random weights."""
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((TOKENS, CHANNELS))
    weights = LAYERS, KEY_CHANNELS, rng
    mask = MASKS[name].visible(TOKENS).T
    found = collapse_of_random_attention(mask, tokens, *weights, normalised, normalised)
    return {"shares": found / found[0]}


def fall(shares: np.ndarray, floor: float, uniform: float) -> dict:
    """−log₁₀ of μ/μ₀, means over seeds, and what ln μ loses per layer where it can be fitted."""
    with np.errstate(divide="ignore"):
        powers = np.where(shares > floor, -np.log10(shares), np.inf).mean(axis=0)
    numbers = {str(depth): powers[depth] for depth in DEPTHS} | {"uniform": uniform}
    used = np.flatnonzero((shares > floor).all(axis=0))
    used = used[used >= SHALLOWEST]
    if used.size < FEWEST:
        return numbers | {"rate": None, "last": None}
    slopes = [-np.polyfit(used, np.log(one[used]), 1)[0] for one in shares]
    return numbers | {"rate": mean_over(slopes, "seeds"), "last": int(used[-1])}


def of_equilibrium(rank: int, channels: int) -> dict:
    """How exact and how stable an equilibrium is, and how many starts beside it come back."""
    averages = np.tril(np.ones((TOKENS, TOKENS))) / np.arange(1, TOKENS + 1)[:, None]
    steps = STEPS[rank] + (0,) * (TOKENS - 1 - len(STEPS[rank]))
    found = equilibrium(averages, steps, channels - 1)
    noise = np.random.default_rng(0).standard_normal((STARTS, *found.tokens.shape))
    ends = [found.after(found.tokens + scale * noise, LAYERS) for scale in NOISES]
    back = [int(sum(np.abs(one - found.tokens).max() < 1e-9 for one in end)) for end in ends]
    smallest = np.linalg.svd(found.tokens, compute_uv=False)[found.rank - 1]
    numbers = {"rank": found.rank, "error": found.error, "smallest": smallest}
    return numbers | {
        "radius": found.growth,
        "back": dict(zip(map(str, NOISES), back, strict=True)),
    }


FALLS = {
    **{f"after {depth} layers": (str(depth), 1) for depth in DEPTHS},
    "loss of ln μ per layer": ("rate", 5),
    "fitted to layer": ("last", 0),
    "of uniform averages": ("uniform", 5),
}
EQUILIBRIA = {
    "error of X = LayerNorm(A X W) (10⁻¹⁵)": ("error", 1, 1e15),
    "smallest singular value": ("smallest", 5),
    "spectral radius": ("radius", 3),
    **{f"back from noise {noise:g}": (f"back/{noise}", 0) for noise in NOISES},
}


def draw(curves: dict[tuple[str, str], np.ndarray]) -> Figure:
    """Draw μ/μ₀ against depth: geometric means over seeds, a panel for each kind of layer."""
    figure = style.new_figure(style.WIDTH, 3.2, "Distance of the tokens from their mean")
    colours = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE)
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True):
        for mask, colour in zip(MASKS, colours, strict=True):
            shown = np.maximum(curves[mask, kind][:, :61], 1e-300)
            axes.plot(np.exp(np.log(shown).mean(axis=0)), color=colour, label=mask)
        axes.set(title=kind, xlabel="layers $l$", yscale="log", ylim=(1e-8, 10.0))
    figure.axes[0].set_ylabel(r"$\mu(X_l)\,/\,\mu(X_0)$")
    style.legend_below(figure, figure.axes[0].get_legend_handles_labels(), columns=4)
    return figure


POINTS = {f"{mask} | {kind}": (mask, kind) for mask in MASKS for kind in KINDS}


def points(small: bool, folder: Path) -> dict[str, tuple]:
    """Every mask and kind of layer by seed, and equilibria by channels and rank."""
    found: dict[str, tuple] = {
        f"{name} | {seed}": (distances, mask, seed, KINDS[kind][0])
        for name, (mask, kind) in POINTS.items()
        for seed in range(2 if small else 10)
    }
    return found | {
        f"{channels} | {rank}": (of_equilibrium, rank, channels)
        for channels, ranks in OF_CHANNELS.items()
        for rank in ranks
    }


def curves(rows: dict[str, dict]) -> dict[tuple[str, str], np.ndarray]:
    """μ/μ₀ [seed, depth] by mask and kind of layer."""
    return {
        point: np.array([row["shares"] for of, row in rows.items() if of.startswith(f"{name} | ")])
        for name, point in POINTS.items()
    }


def numbers(rows: dict[str, dict]) -> dict:
    """How tokens fall together, and what equilibria are."""
    found, falls = curves(rows), {}
    for name, (mask, kind) in POINTS.items():
        uniform = rate_of_uniform_averages(MASKS[mask].visible(TOKENS).T)
        falls[name] = fall(found[mask, kind], KINDS[kind][1], uniform)
    return {
        "falls": falls,
        "equilibria": {name: row for name, row in rows.items() if "radius" in row},
    }


STUDY = Study(
    __file__,
    points,
    numbers,
    tables=lambda numbers: {
        "falls": table("mask | layers", numbers["falls"], FALLS),
        "equilibria": table("channels | rank", numbers["equilibria"], EQUILIBRIA),
    },
    figures=lambda rows, numbers: {"figure": draw(curves(rows))},
)

if __name__ == "__main__":
    STUDY.run()
