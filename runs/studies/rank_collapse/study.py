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

from runs.studies.numbers import of_kind
from runs.studies.rank_collapse.mathematics import (
    DEPTHS,
    KINDS,
    MASKS,
    NOISES,
    distances,
    fall,
    of_equilibrium,
)
from runs.studies.study import Study
from runs.studies.tables import table
from sampler.presentation import style

SEEDS = 10
OF_CHANNELS = {5: (1, 4), 9: (1, 4, 5, 8)}
FALLS = {
    **{f"after {depth} layers": (str(depth), 1) for depth in DEPTHS},
    "loss of ln μ per layer": ("rate", 5),
    "fitted to layer": ("last", 0),
    "of uniform averages": ("uniform", 5),
}
EQUILIBRIA = {
    "error of X = LayerNorm(A X W) (10⁻¹⁵)": ("error", 1, 1e15),
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
        for seed in range(2 if small else SEEDS)
    }
    return found | {
        f"{channels} | {rank}": (of_equilibrium, rank, channels)
        for channels, ranks in OF_CHANNELS.items()
        for rank in ranks
    }


def curves(rows: dict[str, dict]) -> dict[tuple[str, str], np.ndarray]:
    """μ/μ₀ [seed, depth] by mask and kind of layer."""
    return {
        point: np.array([row["shares"] for row in of_kind(rows, name, " | ").values()])
        for name, point in POINTS.items()
    }


def numbers(rows: dict[str, dict]) -> dict:
    """How tokens fall together, and what equilibria are."""
    found, falls = curves(rows), {}
    for name, (mask, kind) in POINTS.items():
        falls[name] = fall(found[mask, kind], mask, KINDS[kind][1])
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
