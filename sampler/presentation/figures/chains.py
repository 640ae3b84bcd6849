"""Diagnostics of chains: traces, pairs, ranks, autocorrelation, energy, effective draws.

Drawn here and not by ArviZ, whose plots of 0.23 give a panel to every chain and to both halves of a
symmetric matrix, show no range of independent draws for ranks and no prediction of a theory, and
have another interface from 1.0. The statistics are defined as there.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import binom, rankdata

from sampler.analysis.labels import pair_name
from sampler.analysis.results import RunResults
from sampler.mcmc.convergence import autocovariance, bulk_ess, tail_ess
from sampler.mcmc.diagnostics import ESS_LIMIT
from sampler.mcmc.hamiltonian import BFMI_LIMIT, bfmi_of
from sampler.presentation import style

INDEPENDENT = "95 % of independent draws"
LARGEST_EVERY = 4  # paths; with more the diagonal of U_1 alone is shown
RANKED_EXAMPLES = 6  # whose ranks are shown where no order parameter is sampled
RANK_BINS, ENERGY_BINS, BINS = 20, 40, 30
MOST_LAGS = 40
POINTS = 10  # of a curve of effective sample sizes
MOST_POINTS = 2000  # of a chain or of a cloud; of more every so many are drawn
MOST_LINES, MOST_LABELS = 64, 16  # chains that have a line, and a label
MOST_ELEMENTS = 4  # of U_1 beside each other
SHOWN = (0.25, 99.75)  # per cent of the draws; the rest would take most of the axis

# Label → [chain, draw].
Series = Mapping[str, np.ndarray]
RankPanels = Sequence[tuple[str, np.ndarray] | None]


def chain_marks(chain: int) -> dict[str, str | None]:
    """Return colour and label of a chain, the same in every figure; of many, few have a label."""
    label = f"chain {chain}" if chain < MOST_LABELS else None
    return {"color": style.CHAINS[chain % len(style.CHAINS)], "label": label}


def rank_histogram(draws: np.ndarray, bins: int) -> np.ndarray:
    """Count, for each chain, its draws in equal bins of their rank among all draws.

    draws: [chain, draw]; returns [chain, bin]. Chains with one law give about equal counts.
    """
    ranks = rankdata(draws).reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, bins + 1)
    return np.stack([np.histogram(chain, edges)[0] for chain in ranks])


def draw_ranks(panels: RankPanels, columns: int, title: str, setting: str) -> Figure:
    """Draw rank histograms, name and [chain, draw] of each; None leaves its place empty."""
    few = len(panels) <= 3
    height = 1.8 if few else 1.5 if columns <= 3 else 1.3
    figure = style.new_figure(
        style.WIDTH, height * -(-len(panels) // columns) + 1.6, f"{title} by chain", setting
    )
    axes = style.panel_grid(figure, len(panels), columns, sharex=True, sharey=True)
    for ax, panel in zip(axes.flat, panels, strict=False):
        if panel is None:
            ax.set_axis_off()
            continue
        _draw_rank_panel(ax, panel[1])
        ax.set_title(panel[0], fontsize=9.0 if few else 8.0)
        ax.label_outer()
    axes[0, 0].set_ylim(bottom=0.0)
    label = axes[0, 0].set_ylabel if len(axes) == 1 else figure.supylabel
    label("draws in bin / expected", fontsize=10.0)
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels(), 3)
    return figure


def _draw_rank_panel(ax: Axes, draws: np.ndarray) -> None:
    length = draws.shape[1]
    # At least ten draws expected in a bin, so that bins are not all noise.
    bins = int(np.clip(length // 10, 1, RANK_BINS))
    expected = length / bins
    edges = np.linspace(0.0, 1.0, bins + 1)
    low, high = binom.ppf([0.025, 0.975], length, 1.0 / bins) / expected
    ax.axhspan(low, high, color=style.EXPECTED, zorder=0, label=INDEPENDENT)
    for chain, counts in enumerate(rank_histogram(draws, bins)[:MOST_LINES]):
        ax.stairs(counts / expected, edges, baseline=None, linewidth=1.0, **chain_marks(chain))
    ax.set(xlim=(0.0, 1.0), xlabel="rank / draws")
    # The ends of neighbouring panels would touch.
    ax.set_xticks((0.0, 0.5, 1.0), ("0", "0.5", "1"))


def matrix_panels(draws: np.ndarray, names: Sequence[str]) -> RankPanels:
    """List the distinct elements of U_1, [chain, draw, path, path_], placed as in the matrix.

    Of more than `LARGEST_EVERY` paths the diagonal alone.
    """
    if len(names) > LARGEST_EVERY:
        return [(name, draws[:, :, path, path]) for path, name in enumerate(names)]
    return [
        (names[i] if i == j else f"{names[i]},\n{names[j]}", draws[:, :, i, j]) if j <= i else None
        for i, j in np.ndindex(len(names), len(names))
    ]


def order_parameter_ranks(run: RunResults) -> Figure | None:
    """Draw the ranks of U_1 where its draws were kept."""
    draws = run.order_parameter_draws
    if draws is None:
        return None
    names, values = run.path_names, draws.values
    every = len(names) <= LARGEST_EVERY
    columns = len(names) if every else min(4, int(np.ceil(np.sqrt(len(names)))))
    title = "Ranks of $U_1$" if every else "Ranks of the diagonal of $U_1$"
    return draw_ranks(matrix_panels(values, names), columns, title, run.setting)


def predictor_ranks(run: RunResults) -> Figure | None:
    """Draw the ranks of f at a few test examples, where no order parameter is sampled."""
    if run.order_parameter_draws is not None or run.drawn("predictor") is None:
        return None
    values = run.drawn("predictor").values
    flat = values.reshape(*values.shape[:2], -1)
    chosen = np.unique(np.linspace(0, flat.shape[2] - 1, RANKED_EXAMPLES).astype(int))
    outputs = flat.shape[2] // values.shape[2]
    panels = [(f"test {place // outputs}", flat[:, :, place]) for place in chosen]
    return draw_ranks(panels, min(3, len(panels)), "Ranks of $f(x)$", run.setting)


def draw_series_ranks(series: Series, setting: str) -> Figure:
    """Draw the rank histograms of single numbers side by side."""
    return draw_ranks(list(series.items()), len(series), "Ranks in function space", setting)


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """Return ρ_k = Σ_t (x_t − x̄)(x_{t+k} − x̄) / Σ_t (x_t − x̄)² [lag], averaged over chains.

    values: [chain, draw]; x̄ is the mean of each chain.
    """
    covariance = autocovariance(values)
    return (covariance / covariance[:, :1]).mean(axis=0)


def draw_autocorrelation(series: Series, setting: str) -> Figure:
    """Draw the autocorrelation of each series against the lag."""
    figure = style.new_figure(style.WIDTH, 4.0, "Autocorrelation", setting)
    ax = figure.subplots()
    chains, draws = next(iter(series.values())).shape
    band = 1.96 / np.sqrt(chains * draws)
    ax.axhspan(-band, band, color=style.EXPECTED, zorder=0, label=INDEPENDENT)
    for place, (label, values) in enumerate(series.items()):
        shown = autocorrelation(values)[: min(MOST_LAGS, draws // 4) + 1]
        marks = {"marker": "o", "markersize": 2.5, "linewidth": 1.0}
        colour = style.SERIES[place % len(style.SERIES)]
        ax.plot(range(len(shown)), shown, color=colour, label=label, **marks)
    ax.set(xlabel="lag (draws)", ylabel="autocorrelation, mean of chains")
    style.legend_below(figure, columns=3)
    return figure


def ess_evolution(values: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the draws of all chains used so far [point], and their effective sample size [point].

    values: [chain, draw]. method: "bulk", or "tail" for the quantiles 0.05 and 0.95.
    """
    chains, draws = values.shape
    ends = np.unique(np.linspace(draws / POINTS, draws, POINTS).astype(int))
    ends = ends[ends >= 4]  # fewer have no split chains
    size = {"bulk": bulk_ess, "tail": tail_ess}[method]
    sizes = [size(values[:, :end]) for end in ends]
    return chains * ends, np.array(sizes, dtype=float)


def draw_ess_evolution(series: Series, setting: str) -> Figure:
    """Draw bulk (solid) and tail (dashed) effective sample size against the draws used."""
    figure = style.new_figure(style.WIDTH, 4.6, "Effective sample size", setting)
    ax = figure.subplots()
    for place, (label, values) in enumerate(series.items()):
        colour = style.SERIES[place % len(style.SERIES)]
        for method, shape in (("bulk", "o-"), ("tail", "s--")):
            marks = {"color": colour, "markersize": 4.0, "label": f"{label}, {method}"}
            ax.plot(*ess_evolution(values, method), shape, **marks)
    ax.axhline(ESS_LIMIT, color=style.GREY, linestyle=":", label=f"limit {ESS_LIMIT:.0f}")
    ax.set(xlabel="draws of all chains", ylabel="effective sample size", ylim=(0.0, None))
    style.legend_below(figure, columns=3)
    return figure


def draw_energy(run: RunResults) -> Figure | None:
    """Draw E − Ē and E_t − E_{t−1} as histograms, and the E-BFMI of every chain.

    Where transitions are much narrower than energies, the chain crawls. None where no energies were
    kept, or nothing else of the draws can be judged.
    """
    found = run.drawn("energy", "sample_stats")
    if found is None or not run.slowest_series or found.shape[1] == 1:
        return None
    energy = np.asarray(found.values, np.float64)
    centred = (energy - energy.mean(axis=1, keepdims=True)).ravel()
    changes = np.diff(energy, axis=1).ravel()
    bfmi = bfmi_of(energy)
    figure = style.new_figure(style.WIDTH, 3.8, "Energy of the sampler", run.setting)
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
        right.plot(value, chain, "o", color=chain_marks(chain)["color"])
    right.axvline(BFMI_LIMIT, color=style.GREY, linestyle=":", label=f"limit {BFMI_LIMIT:g}")
    names = [f"chain {chain}" for chain in range(len(bfmi))]
    right.set_yticks(range(len(bfmi))[:MOST_LINES], names[:MOST_LINES])
    right.set(xlabel="E-BFMI", xlim=(0.0, None), ylim=(len(bfmi) - 0.5, -0.5))
    style.legend_below(figure, columns=3)
    return figure


def draw_traces(series: Series, setting: str) -> Figure:
    """Draw each series draw by draw, and its histogram, chain by chain."""
    height = 1.6 * len(series) + 1.3
    figure = style.new_figure(style.WIDTH, height, "Traces of the chains", setting)
    shared = {"sharex": "col", "sharey": "row", "width_ratios": (3.2, 1.0)}
    axes = figure.subplots(len(series), 2, squeeze=False, **shared)
    for (trace, histogram), (label, values) in zip(axes, series.items(), strict=True):
        _draw_trace(trace, histogram, values)
        trace.set_ylabel(label)
        trace.yaxis.set_major_locator(MaxNLocator(4))
        histogram.set_xticks([])
    axes[-1, 0].set_xlabel("draw")
    axes[-1, 1].set_xlabel("density")
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels(), 4)
    return figure


def _draw_trace(trace: Axes, histogram: Axes, values: np.ndarray) -> None:
    every = -(-values.shape[1] // MOST_POINTS)
    edges = np.histogram_bin_edges(values, BINS)
    for chain, one in enumerate(values[:MOST_LINES]):
        marks, draws = chain_marks(chain), np.arange(0, len(one), every)
        (line,) = trace.plot(draws, one[::every], linewidth=0.5, alpha=0.7, **marks)
        line.set_rasterized(True)
        heights, _ = np.histogram(one, edges, density=True)
        # Each chain as high as the others: the scale of a density says nothing here.
        shown = heights / max(heights.max(), np.finfo(float).tiny)
        outline = {"baseline": None, "orientation": "horizontal", "linewidth": 1.0}
        histogram.stairs(shown, edges, color=marks["color"], **outline)


def draw_pairs(run: RunResults) -> Figure | None:
    """Draw a few elements of U_1 against each other, their histograms, and theories.

    None where their draws were not kept or do not move.
    """
    draws = run.order_parameter_draws
    if draws is None or draws.shape[-1] < 2 or not run.slowest_series:
        return None
    places = _elements(draws.values)
    count, rows, columns = len(places), *np.transpose(places)
    names = [pair_name(run.path_names, *place).replace(" × ", " ×\n") for place in places]
    flat = draws.values[..., rows, columns].reshape(-1, count)
    known = run.order_parameters_of_theories
    colours = style.theory_colours(known)
    theories = [(name, one[rows, columns], colours[name]) for name, one in known.items()]
    width, side = (style.WIDTH, 1.3) if count > 2 else (4.6, 2.2)
    title = "Elements of $U_1$ in pairs"
    figure = style.new_figure(width, side * count + 1.3, title, run.setting)
    axes = figure.subplots(count, count, squeeze=False, sharex="col")
    values = [*np.percentile(flat, SHOWN, axis=0), *(values for _, values, _ in theories)]
    low, high = np.min(values, axis=0), np.max(values, axis=0)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    points = flat[:: -(-len(flat) // MOST_POINTS)]
    cloud = {"color": style.SAMPLED, "markersize": 1.5, "alpha": 0.3, "rasterized": True}
    for row, column in np.ndindex(count, count):
        ax = axes[row, column]
        if column > row:
            ax.set_axis_off()
            continue
        ax.set_xlim(low[column], high[column])
        ax.xaxis.set_major_locator(MaxNLocator(3))
        if column == row:
            heights, edges = np.histogram(flat[:, row], BINS, (low[row], high[row]))
            ax.stairs(heights, edges, color=style.SAMPLED, fill=True, alpha=0.4)
            ax.set_yticks([])
            for label, one, colour in theories:
                ax.axvline(one[row], color=colour, linewidth=1.2, label=label)
        else:
            ax.plot(points[:, column], points[:, row], ".", **cloud)
            ax.set_ylim(low[row], high[row])
            ax.yaxis.set_major_locator(MaxNLocator(3))
            for _, one, colour in theories:
                ax.plot(one[column], one[row], "+", color=colour, markersize=9, mew=1.8)
        if row == count - 1:
            ax.set_xlabel(names[column], fontsize=9.0)
        if column == 0:
            ax.set_ylabel(names[row], fontsize=9.0)
    if theories:
        style.legend_below(figure, axes[0, 0].get_legend_handles_labels(), 3)
    return figure


def _elements(draws: np.ndarray) -> list[tuple[int, int]]:
    """List all elements of a matrix of two paths; of a larger one the largest of the diagonal."""
    if draws.shape[-1] == 2:
        return [(0, 0), (0, 1), (1, 1)]
    size = np.abs(draws.mean(axis=(0, 1))).diagonal()
    return [(int(i), int(i)) for i in np.sort(np.argsort(-size, kind="stable")[:MOST_ELEMENTS])]


def of_series(draw: Callable[[Series, str], Figure]) -> Callable[[RunResults], Figure | None]:
    """Apply a drawing to the slowest numbers of function space; None where none can be judged."""

    def of_run(run: RunResults) -> Figure | None:
        return draw(run.slowest_series, run.setting) if run.slowest_series else None

    return of_run


TRACES = style.FigureEntry(
    of_series(draw_traces),
    "The slowest numbers draw by draw, and their histograms chain by chain. Chains that mix look "
    "like noise and lie on top of each other.",
    "Lines: log posterior, predictor and U₁ against the number of the draw, one colour per chain, "
    "with histograms beside.",
    section="diagnostics",
)
PAIRS = style.FigureEntry(
    draw_pairs,
    "Draws of elements of U₁ against each other, their histograms on the diagonal, and where the "
    "theories are: they predict the mean of the draws.",
    "Scatter plots of draws of elements of U₁ in pairs, with the predictions of the theories.",
    section="diagnostics",
)
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
    draw_energy,
    "Energies of the sampler against their changes from draw to draw. Where changes are much "
    "narrower, the tails are explored slowly, and E-BFMI falls below its limit.",
    "Histograms: energies of the sampler and their changes from draw to draw; beside them "
    "E-BFMI chain by chain, with the limit.",
    section="diagnostics",
)
