"""Autocorrelation of draws in function space: how many draws until a chain has forgotten."""

from collections.abc import Mapping

import numpy as np
from arviz_stats.base import array_stats
from matplotlib.figure import Figure

from sampler.presentation.style import SERIES, new_figure

MOST_LAGS = 40


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """ρ_k = Σ_t (x_t − x̄)(x_{t+k} − x̄) / Σ_t (x_t − x̄)² [lag], averaged over chains.

    values: [chain, draw]; x̄ is the mean of each chain.
    """
    return np.asarray(array_stats.autocorr(values, axis=-1)).mean(axis=0)


def draw_autocorrelation(series: Mapping[str, np.ndarray], setting: str) -> Figure:
    """Draw the autocorrelation of each series, label → [chain, draw], against the lag."""
    figure = new_figure(7.2, 3.8)
    figure.suptitle("Autocorrelation" + (f", {setting}" if setting else ""))
    ax = figure.subplots()
    chains, draws = next(iter(series.values())).shape
    lags = min(MOST_LAGS, draws // 4)
    band = 1.96 / np.sqrt(chains * draws)
    ax.axhspan(-band, band, color="#DDDDDD", zorder=0, label="95 % range of\nindependent draws")
    for place, (label, values) in enumerate(series.items()):
        shown = autocorrelation(values)[: lags + 1]
        ax.plot(
            range(len(shown)), shown, marker="o", markersize=2.5, linewidth=1.0,
            color=SERIES[place % len(SERIES)], label=label,
        )  # fmt: skip
    ax.set(xlabel="lag (draws)", ylabel="autocorrelation, mean of chains")
    figure.legend(loc="outside right upper")
    return figure
