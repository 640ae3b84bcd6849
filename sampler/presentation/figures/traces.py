"""The figure of chains: the slowest numbers, draw by draw, and their ranks."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.special import bdtr

from sampler.analysis.results import RunResults
from sampler.analysis.slowest import slowest_series
from sampler.presentation import style

INDEPENDENT, BAND = "95 % of independent draws", "#DDDDDD"
RANK_BINS = 20
MOST_POINTS = 400  # of a chain; of more every k-th is drawn
MOST_LINES, MOST_LABELS = 64, 16  # chains that have a line, and a label


def chain_marks(chain: int, word: str) -> dict[str, str | None]:
    """Return colour and label of a chain or a repetition; of many, few have a label."""
    label = f"{word} {chain}" if chain < MOST_LABELS else None
    return {"color": style.CHAINS[chain % len(style.CHAINS)], "label": label}


def rank_histogram(draws: np.ndarray, bins: int) -> np.ndarray:
    """Count, for each chain, its draws in equal bins of their rank among all draws.

    draws: [chain, draw]; returns [chain, bin]. Chains with one distribution give about equal
    counts.
    """
    ranks = pd.Series(draws.reshape(-1)).rank().to_numpy().reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, bins + 1)
    return np.stack([np.histogram(chain, edges)[0] for chain in ranks])


def draw_chains(run: RunResults) -> Figure | None:
    """Draw the slowest numbers draw by draw, and their ranks, chain by chain."""
    series = slowest_series(run)
    if not series:
        return None
    of_repetitions = run.drawn("ancestor", "sample_stats") is not None
    word, of_each = ("repetition", "particle") if of_repetitions else ("chain", "draw")
    height = 1.6 * len(series) + 1.3
    figure = style.new_figure(style.WIDTH, height, "Chains, the slowest numbers", run.setting)
    axes = figure.subplots(len(series), 2, squeeze=False, sharex="col", width_ratios=(2.0, 1.0))
    for (trace, ranks), (label, values) in zip(axes, series.items(), strict=True):
        every = -(-values.shape[1] // MOST_POINTS)
        for chain, course in enumerate(values[:MOST_LINES]):
            draws = np.arange(0, len(course), every)
            marks = {"linewidth": 0.5, "alpha": 0.7, "rasterized": True}
            trace.plot(draws, course[::every], **marks, **chain_marks(chain, word))
        trace.set_ylabel(label)
        trace.yaxis.set_major_locator(MaxNLocator(4))
        _draw_ranks(ranks, values, word)
    axes[0, 1].set_title("rank counts / expected")
    axes[-1, 0].set_xlabel(of_each)
    axes[-1, 1].set_xlabel(f"rank / {of_each}s")
    style.legend_below(figure, axes[0, 1].get_legend_handles_labels(), 3)
    return figure


def _draw_ranks(ax: Axes, draws: np.ndarray, word: str) -> None:
    """Draw counts of ranks relative to the expected ones, with the range of independent draws."""
    length = draws.shape[1]
    # At least ten draws expected in a bin, so that bins are not all noise.
    bins = int(np.clip(length // 10, 1, RANK_BINS))
    expected = length / bins
    edges = np.linspace(0.0, 1.0, bins + 1)
    # Quantiles of the binomial distribution of a count.
    up_to = bdtr(np.arange(length + 1), length, 1.0 / bins)
    low, high = np.searchsorted(up_to, (0.025, 0.975)) / expected
    ax.axhspan(low, high, color=BAND, zorder=0, label=INDEPENDENT)
    for chain, counts in enumerate(rank_histogram(draws, bins)[:MOST_LINES]):
        ax.stairs(
            counts / expected, edges, baseline=None, linewidth=1.0, **chain_marks(chain, word)
        )
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, None))


CHAINS = style.FigureEntry(
    draw_chains,
    "The slowest of all numbers, draw by draw, and their ranks among all draws, chain by chain or "
    "repetition by repetition. "
    "In brackets stands the place of the slowest element, from 0. Chains that mix look like noise, "
    "lie on top of each other, and have flat ranks within the grey band.",
    "Lines: log posterior, predictor and U₁ against the number of the draw, one colour per chain, "
    "with rank histograms.",
    section="diagnostics",
)
