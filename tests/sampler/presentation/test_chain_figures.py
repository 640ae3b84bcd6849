"""Figures of how chains move: their numbers from the definition, and which elements are shown."""

import numpy as np
import pytest
import xarray as xr
from arviz_stats.base import array_stats

from sampler.analysis.results import RunResults, slowest_element
from sampler.errors import InputError
from sampler.presentation.figures.chains import (
    POINTS,
    autocorrelation,
    draw_autocorrelation,
    draw_energy,
    draw_ranks,
    draw_series_ranks,
    ess_evolution,
    matrix_panels,
    rank_histogram,
)
from sampler.storage.results import write_result
from tests.held import held

CHAINS, DRAWS = 3, 200


def autoregressive(rng, memory: float, shape=(CHAINS, DRAWS)) -> np.ndarray:
    """x_t = memory · x_{t−1} + noise."""
    values = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        values[:, draw] += memory * values[:, draw - 1]
    return values


def test_autocorrelation_is_that_of_its_definition(rng):
    values = autoregressive(rng, 0.7)
    expected = np.zeros(30)
    for chain in values:
        away = chain - chain.mean()
        for lag in range(30):
            products = sum(away[t] * away[t + lag] for t in range(DRAWS - lag))
            expected[lag] += products / sum(away**2) / CHAINS
    np.testing.assert_allclose(autocorrelation(values)[:30], expected, atol=1e-12)


@pytest.mark.parametrize("method", ["bulk", "tail"])
def test_effective_sample_size_grows_to_that_of_all_draws(rng, method):
    values = autoregressive(rng, 0.5)
    used, sizes = ess_evolution(values, method)
    assert len(used) == POINTS
    assert used[-1] == values.size
    options = {"prob": (0.05, 0.95)} if method == "tail" else {}
    whole = array_stats.ess(values, method=method, chain_axis=0, draw_axis=1, **options)
    assert sizes[-1] == pytest.approx(float(whole), rel=1e-12)
    half = values[:, : used[4] // CHAINS]
    expected = array_stats.ess(half, method=method, chain_axis=0, draw_axis=1, **options)
    assert sizes[4] == pytest.approx(float(expected), rel=1e-12)


def test_the_element_that_forgets_last_is_shown(rng):
    draws = np.stack([autoregressive(rng, memory) for memory in (0.0, 0.3, 0.97, 0.6)], axis=-1)
    table = xr.DataArray(draws, dims=("chain", "draw", "test_example"))
    ((label, values),) = slowest_element("predictor", table).items()
    assert label == "predictor [2]"
    np.testing.assert_array_equal(values, draws[..., 2])


def test_elements_that_do_not_move_are_passed_over(rng):
    draws = np.stack([np.ones((CHAINS, DRAWS)), autoregressive(rng, 0.1)], axis=-1)
    draws = np.stack([draws, np.full_like(draws, np.nan)], axis=-2)
    table = xr.DataArray(draws, dims=("chain", "draw", "path", "path_"))
    assert list(slowest_element("$U_1$", table)) == ["$U_1$ [0, 1]"]
    assert slowest_element("$U_1$", table.isel(path=slice(1, 2))) == {}


def test_chains_of_a_file_are_read_as_far_as_they_are_there(rng, tmp_path):
    assert RunResults(tmp_path).slowest_series == {}
    statistics = {name: (("chain", "draw"), autoregressive(rng, 0.2)) for name in ("lp", "energy")}
    groups = {"sample_stats": xr.Dataset(statistics), "posterior": xr.Dataset()}
    write_result(tmp_path, "draws.nc", xr.DataTree.from_dict(groups))
    found = RunResults(tmp_path)
    assert list(found.slowest_series) == ["log posterior"]
    np.testing.assert_array_equal(found.slowest_series["log posterior"], statistics["lp"][1])
    np.testing.assert_array_equal(found.drawn("energy", "sample_stats"), statistics["energy"][1])
    (tmp_path / "draws.nc").write_bytes(b"no such thing")
    with pytest.raises(InputError, match=r"draws\.nc"):
        _ = RunResults(tmp_path).slowest_series


def test_the_figures_show_every_chain_and_the_bfmi(rng):
    energy = autoregressive(rng, 0.5)
    statistics = dict.fromkeys(("lp", "energy"), (("chain", "draw"), energy))
    _, right = draw_energy(held(draws={"sample_stats": xr.Dataset(statistics)})).axes
    shown = [line.get_xdata()[0] for line in right.lines[:CHAINS]]
    changes = np.diff(energy, axis=1)
    expected = (changes**2).mean(axis=1) / energy.var(axis=1)
    # The library divides sums: by draws − 1 changes and by draws energies.
    np.testing.assert_allclose(shown, expected, rtol=2.0 / DRAWS)
    series = {"one": energy, "other": autoregressive(rng, 0.9)}
    assert len(draw_series_ranks(series, "").axes) == 2
    (ax,) = draw_autocorrelation(series, "").axes
    assert [line.get_label() for line in ax.lines] == ["one", "other"]
    np.testing.assert_allclose(ax.lines[0].get_ydata()[0], 1.0, rtol=1e-12)


def test_rank_histogram_counts_every_draw_once():
    draws = np.random.default_rng(0).normal(size=(3, 40))
    ordered = np.sort(draws, axis=None)
    expected = np.array(
        [
            [np.isin(chain, ordered[start : start + 30]).sum() for start in range(0, 120, 30)]
            for chain in draws
        ]
    )
    np.testing.assert_array_equal(rank_histogram(draws, bins=4), expected)


def test_rank_histogram_of_a_displaced_chain_leaves_the_lower_bins():
    draws = np.stack([np.arange(50.0), 100.0 + np.arange(50.0)])
    np.testing.assert_array_equal(rank_histogram(draws, bins=2), [[50, 0], [0, 50]])


def test_rank_plot_has_one_panel_for_each_distinct_element():
    draws = np.random.default_rng(0).normal(size=(2, 60, 3, 3))
    figure = draw_ranks(matrix_panels(draws, ["a", "b", "c"]), 3, "", "")
    assert sum(ax.axison for ax in figure.axes) == 6
