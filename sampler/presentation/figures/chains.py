"""Diagnostics of chains: ranks, autocorrelation, energy, effective draws.

Drawn here, as are those of `traces`, and not by ArviZ, whose plots of 0.23 give a panel to every
chain and to both halves of a symmetric matrix, show no range of independent draws for ranks and no
prediction of a theory, and have another interface from 1.0.
"""

from collections.abc import Mapping

import numpy as np
from arviz_stats.base import array_stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binom, rankdata

from sampler.analysis.results import RunResults
from sampler.mcmc.diagnostics import AXES, ESS_LIMIT
from sampler.mcmc.hamiltonian import BFMI_LIMIT
from sampler.presentation import style

LARGEST_EVERY = 4  # paths; with more the diagonal of U_1 alone is shown
RANKED_EXAMPLES = 6  # whose ranks are shown where no order parameter is sampled
RANK_BINS = 20
INDEPENDENT = "95 % of independent draws"


def rank_histogram(draws: np.ndarray, bins: int) -> np.ndarray:
    """Count, for each chain, its draws in equal bins of their rank among all draws.

    draws: [chain, draw]; returns [chain, bin]. Chains with one law give about equal counts.
    """
    ranks = rankdata(draws, method="average").reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, bins + 1)
    return np.stack([np.histogram(chain, edges)[0] for chain in ranks])


def draw_ranks(draws: np.ndarray, path_names: list[str], setting: str) -> Figure:
    """Draw the rank histograms of the elements of U_1.

    draws: [chain, draw, path, path_]. With few paths every distinct element has its panel, placed
    as in the matrix; with many only the diagonal is shown.
    """
    paths = len(path_names)
    every_element = paths <= LARGEST_EVERY
    columns = paths if every_element else min(4, int(np.ceil(np.sqrt(paths))))
    rows = paths if every_element else -(-paths // columns)
    shown = "$U_1$" if every_element else "the diagonal of $U_1$"
    figure, grid = _rank_panels(rows, columns, f"Ranks of {shown} by chain", setting)
    for place, ax in enumerate(grid.flat):
        row, column = divmod(place, columns) if every_element else (place, place)
        if row >= paths or column > row:
            ax.set_axis_off()
            continue
        one, other = path_names[row], path_names[column]
        _draw_element(ax, draws[:, :, row, column], one if one == other else f"{one},\n{other}")
    _explain(figure, grid[0, 0])
    return figure


def draw_predictor_ranks(draws: np.ndarray, names: list[str], setting: str) -> Figure:
    """Draw the rank histograms of f at some test examples: draws [chain, draw, example]."""
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, grid = _rank_panels(rows, columns, "Ranks of $f(x)$ by chain", setting)
    for place, name in enumerate(names):
        _draw_element(grid.flat[place], draws[:, :, place], name)
    for ax in grid.flat[len(names) :]:
        ax.set_axis_off()
    _explain(figure, grid[0, 0])
    return figure


def _rank_panels(rows: int, columns: int, title: str, setting: str) -> tuple[Figure, np.ndarray]:
    """A figure and its panels [row, column]."""
    height = 1.3 if columns > 3 else 1.5
    figure = style.new_figure(style.WIDTH, height * rows + 1.6)
    figure.suptitle(style.title_of(title, setting))
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)


def _explain(figure: Figure, first: Axes) -> None:
    """Range, legend and labels of all panels, whose axes are shared: once they have their data."""
    first.set_ylim(bottom=0.0)
    _legend_below(figure, first)
    figure.supylabel("draws in bin / expected", fontsize=10.0)


def _legend_below(figure: Figure, ax: Axes) -> None:
    style.legend_below(figure, ax.get_legend_handles_labels(), 3)


def _draw_element(ax: Axes, draws: np.ndarray, name: str, size: float = 8.0) -> None:
    chains, length = draws.shape
    # At least ten draws expected in a bin, so that bins are not all noise.
    bins = int(np.clip(length // 10, 1, RANK_BINS))
    counts = rank_histogram(draws, bins)
    expected = length / bins
    edges = np.linspace(0.0, 1.0, bins + 1)
    low, high = binom.ppf([0.025, 0.975], length, 1.0 / bins) / expected
    ax.axhspan(low, high, color="#DDDDDD", zorder=0, label=INDEPENDENT)
    for chain in range(chains):
        heights = counts[chain] / expected
        colour = style.CHAINS[chain % len(style.CHAINS)]
        ax.stairs(
            heights, edges, baseline=None, color=colour, linewidth=1.0, label=f"chain {chain}"
        )
    ax.set(xlim=(0.0, 1.0))
    # The ends of neighbouring panels would touch.
    ax.set_xticks((0.0, 0.5, 1.0), ("0", "0.5", "1"))
    ax.set_title(name, fontsize=size)
    ax.set_xlabel("rank / draws")
    ax.label_outer()


def draw_series_ranks(series: Mapping[str, np.ndarray], setting: str) -> Figure:
    """Draw the rank histograms of single numbers, label → [chain, draw], side by side."""
    figure = style.new_figure(style.WIDTH, 3.4)
    figure.suptitle(style.title_of("Ranks in function space by chain", setting))
    axes = figure.subplots(1, len(series), squeeze=False, sharex=True, sharey=True)[0]
    for ax, (label, values) in zip(axes, series.items(), strict=True):
        _draw_element(ax, values, label, 9.0)
    axes[0].set_ylim(bottom=0.0)
    axes[0].set_ylabel("draws in bin / expected")
    _legend_below(figure, axes[0])
    return figure


MOST_LAGS = 40


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """ρ_k = Σ_t (x_t − x̄)(x_{t+k} − x̄) / Σ_t (x_t − x̄)² [lag], averaged over chains.

    values: [chain, draw]; x̄ is the mean of each chain.
    """
    return np.asarray(array_stats.autocorr(values, axis=-1)).mean(axis=0)


def draw_autocorrelation(series: Mapping[str, np.ndarray], setting: str) -> Figure:
    """Draw the autocorrelation of each series, label → [chain, draw], against the lag."""
    figure = style.new_figure(style.WIDTH, 4.0)
    figure.suptitle(style.title_of("Autocorrelation", setting))
    ax = figure.subplots()
    chains, draws = next(iter(series.values())).shape
    lags = min(MOST_LAGS, draws // 4)
    band = 1.96 / np.sqrt(chains * draws)
    ax.axhspan(-band, band, color="#DDDDDD", zorder=0, label=INDEPENDENT)
    for place, (label, values) in enumerate(series.items()):
        shown = autocorrelation(values)[: lags + 1]
        ax.plot(
            range(len(shown)), shown, marker="o", markersize=2.5, linewidth=1.0,
            color=style.SERIES[place % len(style.SERIES)], label=label,
        )  # fmt: skip
    ax.set(xlabel="lag (draws)", ylabel="autocorrelation, mean of chains")
    _legend_below(figure, ax)
    return figure


ENERGY_BINS = 40


def draw_energy(energy: np.ndarray, setting: str) -> Figure:
    """Draw E − Ē and E_t − E_{t−1} as histograms, and the E-BFMI of every chain.

    energy: [chain, draw]. Where transitions are much narrower than energies, the chain crawls.
    """
    energy = np.asarray(energy, np.float64)
    centred = (energy - energy.mean(axis=1, keepdims=True)).ravel()
    changes = np.diff(energy, axis=1).ravel()
    bfmi = np.atleast_1d(array_stats.bfmi(energy, **AXES))
    figure = style.new_figure(style.WIDTH, 3.8)
    figure.suptitle(style.title_of("Energy of the sampler", setting))
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1.0))
    edges = np.histogram_bin_edges(np.concatenate([centred, changes]), ENERGY_BINS)
    for values, colour, dashes, label in (
        (centred, style.SKY_BLUE, "-", r"marginal, $E - \bar E$"),
        (changes, style.ORANGE, "--", r"transitions, $E_t - E_{t-1}$"),
    ):
        heights, _ = np.histogram(values, edges, density=True)
        left.stairs(heights, edges, fill=True, color=colour, alpha=0.35)
        left.stairs(heights, edges, color=colour, linestyle=dashes, linewidth=1.5, label=label)
    left.set(xlabel="energy", ylabel="density")
    for chain, value in enumerate(bfmi):
        right.plot(value, chain, "o", color=style.CHAINS[chain % len(style.CHAINS)])
    right.axvline(BFMI_LIMIT, color=style.GREY, linestyle=":", label=f"limit {BFMI_LIMIT:g}")
    right.set_yticks(range(len(bfmi)), [f"chain {chain}" for chain in range(len(bfmi))])
    right.set(xlabel="E-BFMI", xlim=(0.0, None), ylim=(len(bfmi) - 0.5, -0.5))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


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
    figure = style.new_figure(style.WIDTH, 4.6)
    figure.suptitle(style.title_of("Effective sample size", setting))
    ax = figure.subplots()
    for place, (label, values) in enumerate(series.items()):
        colour = style.SERIES[place % len(style.SERIES)]
        for method, dashes, marker in (("bulk", "-", "o"), ("tail", "--", "s")):
            used, sizes = ess_evolution(values, method)
            ax.plot(
                used, sizes, dashes, marker=marker, markersize=4.0, color=colour,
                label=f"{label}, {method}",
            )  # fmt: skip
    ax.axhline(ESS_LIMIT, color=style.GREY, linestyle=":", label=f"limit {ESS_LIMIT:.0f}")
    ax.set(xlabel="draws of all chains", ylabel="effective sample size", ylim=(0.0, None))
    _legend_below(figure, ax)
    return figure


def order_parameter_ranks(run: RunResults) -> Figure | None:
    """Ranks of U_1 where its draws were kept."""
    draws = run.order_parameter_draws
    if draws is None:
        return None
    return draw_ranks(draws.values, [str(name) for name in draws["path"].values], run.setting)


def predictor_ranks(run: RunResults) -> Figure | None:
    """Ranks of f at a few test examples, where no order parameter is sampled."""
    if run.order_parameter_draws is not None or run.predictor_draws is None:
        return None
    values = run.predictor_draws.values
    flat = values.reshape(*values.shape[:2], -1)
    chosen = np.unique(np.linspace(0, flat.shape[2] - 1, RANKED_EXAMPLES).astype(int))
    names = [f"test {place}" for place in chosen // (flat.shape[2] // values.shape[2])]
    return draw_predictor_ranks(flat[:, :, chosen], names, run.setting)


def of_series(draw):
    """A drawing of the slowest numbers of function space; None where none can be judged."""

    def of_run(run: RunResults) -> Figure | None:
        return draw(run.slowest_series, run.setting) if run.slowest_series else None

    return of_run


def energy_of_run(run: RunResults) -> Figure | None:
    """Energies, where draws have them and something else of them can be judged."""
    energy = run.drawn("energy", "sample_stats")
    if energy is None or not run.slowest_series:
        return None
    return draw_energy(energy.values, run.setting)


FUNCTION_SPACE_RANKS = style.FigureEntry(
    of_series(draw_series_ranks),
    "Ranks of the slowest elements among all draws, chain by chain. Chains that agree are flat "
    "and stay within the grey band for the most part.",
    "Rank histograms, one line per chain, of log posterior, predictor and U₁; they are flat "
    "where the chains agree.",
    section="diagnostics",
)
ORDER_PARAMETER_RANKS = style.FigureEntry(
    order_parameter_ranks,
    "Ranks of the elements of U₁ among all draws, chain by chain.",
    "Rank histograms, one line per chain, of the elements of U₁; flat where the chains agree.",
    section="diagnostics",
)
PREDICTOR_RANKS = style.FigureEntry(
    predictor_ranks,
    "Ranks of the predictor at a few test examples among all draws, chain by chain.",
    "Rank histograms, one line per chain, of the predictor at a few test examples; flat where "
    "the chains agree.",
    section="diagnostics",
)
ESS_EVOLUTION = style.FigureEntry(
    of_series(draw_ess_evolution),
    "Effective sample size as the draws come in. It grows in proportion where the chains mix; "
    "a curve that flattens has not seen everything.",
    "Lines: effective sample size in bulk and tails against the number of draws, for log "
    "posterior, predictor and U₁, with the limit.",
    section="diagnostics",
)
AUTOCORRELATION = style.FigureEntry(
    of_series(draw_autocorrelation),
    "Autocorrelation of the slowest elements. The sooner it falls into the grey band, the more "
    "a draw is worth.",
    "Lines: autocorrelation against lag for log posterior, predictor and U₁, with the range "
    "expected of independent draws.",
    section="diagnostics",
)
ENERGY = style.FigureEntry(
    energy_of_run,
    "Energies of the sampler against their changes from draw to draw. Where changes are much "
    "narrower, the tails are explored slowly, and E-BFMI falls below its limit.",
    "Histograms: energies of the sampler and their changes from draw to draw; beside them "
    "E-BFMI chain by chain, with the limit.",
    section="diagnostics",
)
