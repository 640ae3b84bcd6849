"""Energies of a sampler: what a transition changes beside what there is to explore."""

import numpy as np
from arviz_stats.base import array_stats
from matplotlib.figure import Figure

from sampler.mcmc.diagnostics import AXES, BFMI_LIMIT
from sampler.presentation.style import CHAINS, GREY, ORANGE, SKY_BLUE, new_figure

BINS = 40


def draw_energy(energy: np.ndarray, setting: str) -> Figure:
    """Draw E − Ē and E_t − E_{t−1} as histograms, and the E-BFMI of every chain.

    energy: [chain, draw]. Where transitions are much narrower than energies, the chain crawls.
    """
    energy = np.asarray(energy, np.float64)
    centred = (energy - energy.mean(axis=1, keepdims=True)).ravel()
    changes = np.diff(energy, axis=1).ravel()
    bfmi = np.atleast_1d(array_stats.bfmi(energy, **AXES))
    figure = new_figure(8.4, 3.8)
    figure.suptitle("Energy of the sampler" + (f", {setting}" if setting else ""))
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1.0))
    edges = np.histogram_bin_edges(np.concatenate([centred, changes]), BINS)
    for values, colour, dashes, label in (
        (centred, SKY_BLUE, "-", r"marginal, $E - \bar E$"),
        (changes, ORANGE, "--", r"transitions, $E_t - E_{t-1}$"),
    ):
        heights, _ = np.histogram(values, edges, density=True)
        left.stairs(heights, edges, fill=True, color=colour, alpha=0.35)
        left.stairs(heights, edges, color=colour, linestyle=dashes, linewidth=1.5, label=label)
    left.set(xlabel="energy", ylabel="density")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=2)
    for chain, value in enumerate(bfmi):
        right.plot(value, chain, "o", color=CHAINS[chain % len(CHAINS)])
    right.axvline(BFMI_LIMIT, color=GREY, linestyle=":", label=f"limit {BFMI_LIMIT:g}")
    right.set_yticks(range(len(bfmi)), [f"chain {chain}" for chain in range(len(bfmi))])
    right.set(xlabel="E-BFMI", xlim=(0.0, None), ylim=(len(bfmi) - 0.5, -0.5))
    right.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14))
    return figure
