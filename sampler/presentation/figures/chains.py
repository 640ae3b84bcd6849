"""Figures of chains: one overview, and ArviZ's of the stored groups where they are asked for."""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import binom, rankdata

from sampler.analysis.names import pair_name
from sampler.analysis.results import RunResults
from sampler.analysis.slowest import slowest_series
from sampler.presentation import style

INDEPENDENT = "95 % of independent draws"
RANK_BINS = 20
MOST_POINTS = 400  # of a chain; of more every so many are drawn
MOST_LINES, MOST_LABELS = 64, 16  # chains that have a line, and a label
MOST_ELEMENTS = 4  # of U_1 in pairs
WIDEST = 9.0  # inches of a figure by ArviZ


def chain_marks(chain: int) -> dict[str, str | None]:
    """Return colour and label of a chain; of many, few have a label."""
    label = f"chain {chain}" if chain < MOST_LABELS else None
    return {"color": style.CHAINS[chain % len(style.CHAINS)], "label": label}


def rank_histogram(draws: np.ndarray, bins: int) -> np.ndarray:
    """Count, for each chain, its draws in equal bins of their rank among all draws.

    draws: [chain, draw]; returns [chain, bin]. Chains with one law give about equal counts.
    """
    ranks = rankdata(draws).reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, bins + 1)
    return np.stack([np.histogram(chain, edges)[0] for chain in ranks])


def draw_chains(run: RunResults) -> Figure | None:
    """Draw the slowest numbers draw by draw, and beside them their ranks, chain by chain."""
    series = slowest_series(run)
    if not series:
        return None
    height = 1.6 * len(series) + 1.3
    figure = style.new_figure(style.WIDTH, height, "Chains, the slowest numbers", run.setting)
    axes = figure.subplots(len(series), 2, squeeze=False, sharex="col", width_ratios=(2.0, 1.0))
    for (trace, ranks), (label, values) in zip(axes, series.items(), strict=True):
        every = -(-values.shape[1] // MOST_POINTS)
        for chain, course in enumerate(values[:MOST_LINES]):
            draws = np.arange(0, len(course), every)
            marks = {"linewidth": 0.5, "alpha": 0.7, "rasterized": True}
            trace.plot(draws, course[::every], **marks, **chain_marks(chain))
        trace.set_ylabel(label)
        trace.yaxis.set_major_locator(MaxNLocator(4))
        _draw_ranks(ranks, values)
    axes[0, 1].set_title("counts of ranks / expected")
    axes[-1, 0].set_xlabel("draw")
    axes[-1, 1].set_xlabel("rank / draws")
    style.legend_below(figure, axes[0, 1].get_legend_handles_labels(), 3)
    return figure


def _draw_ranks(ax: Axes, draws: np.ndarray) -> None:
    """Draw counts of ranks relative to what is expected, with the range of independent draws."""
    length = draws.shape[1]
    # At least ten draws expected in a bin, so that bins are not all noise.
    bins = int(np.clip(length // 10, 1, RANK_BINS))
    expected = length / bins
    edges = np.linspace(0.0, 1.0, bins + 1)
    low, high = binom.ppf([0.025, 0.975], length, 1.0 / bins) / expected
    ax.axhspan(low, high, color=style.EXPECTED, zorder=0, label=INDEPENDENT)
    for chain, counts in enumerate(rank_histogram(draws, bins)[:MOST_LINES]):
        ax.stairs(counts / expected, edges, baseline=None, linewidth=1.0, **chain_marks(chain))
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, None))


# --- by ArviZ


def tree_of_slowest(run: RunResults) -> xr.DataTree | None:
    """The slowest numbers as a posterior that ArviZ takes, with the energy of the sampler."""
    series, energy = slowest_series(run), run.drawn("energy", "sample_stats")
    if not series:
        return None
    groups = {"posterior": {name: (("chain", "draw"), values) for name, values in series.items()}}
    if energy is not None:
        groups["sample_stats"] = {"energy": (("chain", "draw"), energy.values)}
    return tree_for_arviz(groups)


def tree_of_elements(run: RunResults) -> xr.DataTree | None:
    """A few elements of U_1, the largest on average, as a posterior that ArviZ takes."""
    draws = run.order_parameter_draws
    if draws is None or draws.shape[-1] < 2:
        return None
    size = np.abs(np.diagonal(draws.values.mean(axis=(0, 1))))
    chosen = np.sort(np.argsort(-size, kind="stable")[:MOST_ELEMENTS])
    names = [str(name) for name in draws["path"].values]
    pairs = [(i, i) for i in chosen] if len(chosen) > 2 else [(0, 0), (0, 1), (1, 1)]
    columns = {
        pair_name(names, i, j): (("chain", "draw"), draws.values[:, :, i, j]) for i, j in pairs
    }
    return tree_for_arviz({"posterior": columns})


def tree_for_arviz(groups: Mapping[str, Mapping[str, tuple]]) -> xr.DataTree:
    """Groups of variables [chain, draw], both axes with the coordinates that ArviZ wants."""
    tables = {name: xr.Dataset(columns) for name, columns in groups.items()}
    return xr.DataTree.from_dict(
        {
            name: table.assign_coords({axis: range(size) for axis, size in table.sizes.items()})
            for name, table in tables.items()
        }
    )


def by_arviz(
    name: str,
    words: str,
    alternative: str = "",
    tree_of: Callable[[RunResults], xr.DataTree | None] = tree_of_slowest,
    group: str = "posterior",
) -> style.FigureEntry:
    """A figure of `arviz_plots`, by the name of its function; none where nothing can be judged."""

    def draw(run: RunResults) -> Figure | None:
        tree = tree_of(run)
        if tree is None or group not in tree.children:
            return None
        import arviz_plots  # only here: it takes long
        from matplotlib import pyplot

        figure = getattr(arviz_plots, name)(tree, backend="matplotlib").viz["figure"].item()
        pyplot.close(figure)  # no session of the user's has it; it is drawn all the same
        # Smaller, text is larger on a page.
        figure.set_size_inches(figure.get_size_inches() * min(1.0, WIDEST / figure.get_figwidth()))
        return figure

    alternative = alternative or words
    return style.FigureEntry(draw, words, alternative, section="diagnostics", shown="failing")


CHAINS = style.FigureEntry(
    draw_chains,
    "The slowest of all numbers, draw by draw, and their ranks among all draws, chain by chain. "
    "In brackets stands the place of the slowest element, from 0. Chains that mix look like noise, "
    "lie on top of each other, and have flat ranks within the grey band.",
    "Lines: log posterior, predictor and U₁ against the number of the draw, one colour per chain, "
    "with rank histograms beside.",
    section="diagnostics",
)
BY_ARVIZ = {
    "traces": by_arviz("plot_trace", "Traces of the slowest numbers, chain by chain."),
    "ranks": by_arviz("plot_rank", "Ranks of the slowest numbers among all draws, chain by chain."),
    "autocorrelation": by_arviz("plot_autocorr", "Autocorrelation of the slowest numbers."),
    "ess_evolution": by_arviz("plot_ess_evolution", "Effective sample size as the draws come in."),
    "energy": by_arviz(
        "plot_energy",
        "Energies of the sampler against their changes from draw to draw. Where changes are much "
        "narrower, the tails are explored slowly.",
        "Distributions of the energies of the sampler and of their changes from draw to draw.",
        group="sample_stats",
    ),
    "pairs": by_arviz(
        "plot_pair",
        "Draws of elements of U₁ against each other.",
        "Scatter plots of draws of elements of U₁ in pairs.",
        tree_of_elements,
    ),
}
