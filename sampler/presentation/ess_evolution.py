"""Effective sample size while the draws come in: a straight line where the chains mix."""

from collections.abc import Mapping

import numpy as np
from arviz_stats.base import array_stats
from matplotlib.figure import Figure

from sampler.mcmc.diagnostics import AXES, ESS_LIMIT
from sampler.presentation.style import GREY, SERIES, new_figure

POINTS = 10


def ess_evolution(values: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Draws of all chains used so far [point], and their effective sample size [point].

    values: [chain, draw]. method: "bulk", or "tail" for the quantiles 0.05 and 0.95.
    """
    chains, draws = values.shape
    ends = np.unique(np.linspace(draws / POINTS, draws, POINTS).astype(int))
    ends = ends[ends >= 4]  # fewer have no split chains
    options = {"prob": (0.05, 0.95)} if method == "tail" else {}
    sizes = [array_stats.ess(values[:, :end], method=method, **AXES, **options) for end in ends]
    return chains * ends, np.array(sizes, dtype=float)


def draw_ess_evolution(series: Mapping[str, np.ndarray], setting: str) -> Figure:
    """Draw bulk (solid) and tail (dashed) effective sample size against the draws used.

    series: label → [chain, draw].
    """
    figure = new_figure(7.2, 4.0)
    figure.suptitle("Effective sample size" + (f", {setting}" if setting else ""))
    ax = figure.subplots()
    for place, (label, values) in enumerate(series.items()):
        colour = SERIES[place % len(SERIES)]
        for method, dashes, marker in (("bulk", "-", "o"), ("tail", "--", "s")):
            used, sizes = ess_evolution(values, method)
            ax.plot(
                used, sizes, dashes, marker=marker, markersize=4.0, color=colour,
                label=f"{label}, {method}",
            )  # fmt: skip
    ax.axhline(ESS_LIMIT, color=GREY, linestyle=":", label=f"limit {ESS_LIMIT:.0f}")
    ax.set(xlabel="draws of all chains", ylabel="effective sample size", ylim=(0.0, None))
    figure.legend(loc="outside right upper")
    return figure
