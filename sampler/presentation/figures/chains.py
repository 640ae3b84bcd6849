"""Diagnostics of chains: ranks, autocorrelation, energy, effective draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import h5netcdf
import numpy as np
import xarray as xr
from arviz_stats.base import array_stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binom, rankdata

from sampler.errors import InputError
from sampler.mcmc.diagnostics import AXES, ESS_LIMIT
from sampler.mcmc.hamiltonian import BFMI_LIMIT
from sampler.presentation.figures.order_parameter import LARGEST_NUMBERED
from sampler.presentation.style import CHAINS, GREY, ORANGE, SERIES, SKY_BLUE, new_figure

# So many test values and elements of U_1, evenly spread, are searched for the slowest.
MOST_SEARCHED = 20
# Of less than this, neither an autocorrelation nor an effective sample size means anything.
FEWEST_DRAWS = 20


@dataclass(frozen=True)
class FunctionSpaceDraws:
    """Draws of numbers that mean the same in every space that is sampled.

    series: label → [chain, draw]: log posterior, and of predictor and U_1 the element with the
    smallest bulk effective sample size. energy: [chain, draw], None for independent draws.
    """

    series: dict[str, np.ndarray]
    energy: np.ndarray | None


def read_function_space(directory: Path) -> FunctionSpaceDraws | None:
    """Read `draws.nc`; None if it is absent, too short, or holds too little to diagnose."""
    file = directory / "draws.nc"
    if not file.is_file():
        return None
    try:
        with h5netcdf.File(file) as stored:
            groups = set(stored.groups)
        series: dict[str, np.ndarray] = {}
        energy = None
        if "sample_stats" in groups:
            with xr.open_dataset(file, group="sample_stats", engine="h5netcdf") as statistics:
                if "lp" in statistics:
                    series["log posterior"] = np.asarray(statistics["lp"].values, np.float64)
                energy = statistics["energy"].values if "energy" in statistics else None
        if "posterior" in groups:
            with xr.open_dataset(file, group="posterior", engine="h5netcdf") as posterior:
                predictor = "predictor_mean" if "predictor_mean" in posterior else "predictor"
                for label, name in (("predictor", predictor), ("$U_1$", "order_parameter")):
                    if name in posterior:
                        series |= slowest_element(label, posterior[name])
    except (OSError, ValueError, KeyError) as error:
        remedy = f"cannot be read ({error}); sample again"
        raise InputError("draws.nc", str(file), remedy) from error
    series = {label: values for label, values in series.items() if usable(values)}
    return FunctionSpaceDraws(series, energy) if series else None


def usable(values: np.ndarray) -> bool:
    """Whether every chain is long enough, finite and moving."""
    moves = np.isfinite(values).all() and (values.std(axis=1) > 0).all()
    return bool(values.shape[1] >= FEWEST_DRAWS and moves)


def slowest_element(name: str, draws: xr.DataArray) -> dict[str, np.ndarray]:
    """Label → [chain, draw] of the element with the smallest bulk ESS; empty if none can be judged.

    draws: [chain, draw, …], of which only the elements searched are read.
    """
    shape = draws.shape[2:]
    elements = int(np.prod(shape))
    searched = np.unique(np.linspace(0, elements - 1, min(elements, MOST_SEARCHED)).astype(int))
    found: dict[str, np.ndarray] = {}
    smallest = np.inf
    for place in searched:
        at = np.unravel_index(place, shape)
        index = dict(zip(draws.dims[2:], map(int, at), strict=True))
        values = np.asarray(draws.isel(index).values, np.float64)
        if not usable(values):
            continue
        ess = float(array_stats.ess(values, method="bulk", **AXES))
        if ess < smallest:
            smallest = ess
            found = {f"{name} [{', '.join(str(int(i)) for i in at)}]": values}
    return found


RANK_BINS = 20


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
    every_element = paths <= LARGEST_NUMBERED
    columns = paths if every_element else int(np.ceil(np.sqrt(paths)))
    rows = paths if every_element else -(-paths // columns)
    figure = new_figure(max(1.75 * columns, 5.2) + 1.4, 1.45 * rows + 1.3)
    shown = "$U_1$" if every_element else "the diagonal of $U_1$"
    figure.suptitle(f"Ranks of {shown} by chain" + (f", {setting}" if setting else ""))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, ax in enumerate(grid.flat):
        row, column = divmod(place, columns) if every_element else (place, place)
        if row >= paths or column > row:
            ax.set_axis_off()
            continue
        _draw_element(ax, draws[:, :, row, column])
        _name_element(ax, path_names[row], path_names[column])
    # With three paths or more the corner of the matrix has no panels.
    _explain(figure, grid[0, 0], grid[0, -1] if every_element and paths >= 3 else None)
    return figure


def draw_predictor_ranks(draws: np.ndarray, names: list[str], setting: str) -> Figure:
    """Draw the rank histograms of f at some test examples: draws [chain, draw, example]."""
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(max(1.75 * columns, 5.2) + 1.4, 1.45 * rows + 1.3)
    figure.suptitle("Ranks of $f(x)$ by chain" + (f", {setting}" if setting else ""))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, ax in enumerate(grid.flat):
        if place >= len(names):
            ax.set_axis_off()
            continue
        _draw_element(ax, draws[:, :, place])
        ax.set_title(names[place], fontsize=8.0)
    _explain(figure, grid[0, 0])
    return figure


def _explain(figure: Figure, first: Axes, corner: Axes | None = None) -> None:
    """Range, legend and labels of all panels, whose axes are shared: once they have their data."""
    first.set_ylim(bottom=0.0)
    entries = first.get_legend_handles_labels()
    if corner is None:
        figure.legend(*entries, loc="outside right upper")
    else:
        corner.legend(*entries, loc="upper right")
    figure.supxlabel("rank among all draws (fraction)", fontsize=10.0)
    figure.supylabel("draws in bin / expected", fontsize=10.0)


def _draw_element(ax: Axes, draws: np.ndarray) -> None:
    chains, length = draws.shape
    # At least ten draws expected in a bin, so that bins are not all noise.
    bins = int(np.clip(length // 10, 1, RANK_BINS))
    counts = rank_histogram(draws, bins)
    expected = length / bins
    edges = np.linspace(0.0, 1.0, bins + 1)
    low, high = binom.ppf([0.025, 0.975], length, 1.0 / bins) / expected
    ax.axhspan(low, high, color="#DDDDDD", zorder=0, label="95 % range of\nindependent draws")
    for chain in range(chains):
        heights = counts[chain] / expected
        colour = CHAINS[chain % len(CHAINS)]
        ax.stairs(
            heights, edges, baseline=None, color=colour, linewidth=1.0, label=f"chain {chain}"
        )
    ax.set(xlim=(0.0, 1.0), xticks=(0.0, 0.5, 1.0))


def _name_element(ax: Axes, row_name: str, column_name: str) -> None:
    name = row_name if row_name == column_name else f"{row_name},\n{column_name}"
    ax.set_title(name, fontsize=8.0)


def draw_series_ranks(series: Mapping[str, np.ndarray], setting: str) -> Figure:
    """Draw the rank histograms of single numbers, label → [chain, draw], side by side."""
    figure = new_figure(2.4 * len(series) + 1.8, 3.0)
    figure.suptitle("Ranks in function space by chain" + (f", {setting}" if setting else ""))
    axes = figure.subplots(1, len(series), squeeze=False, sharex=True, sharey=True)[0]
    for ax, (label, values) in zip(axes, series.items(), strict=True):
        _draw_element(ax, values)
        ax.set_title(label, fontsize=9.0)
    axes[0].set_ylim(bottom=0.0)
    axes[0].set_ylabel("draws in bin / expected")
    figure.supxlabel("rank among all draws (fraction)", fontsize=10.0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


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


ENERGY_BINS = 40


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
    edges = np.histogram_bin_edges(np.concatenate([centred, changes]), ENERGY_BINS)
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
