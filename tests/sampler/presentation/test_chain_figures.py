"""Figures of how chains move: their numbers from the definition, and which elements are shown."""

import numpy as np
import pytest
import xarray as xr
from arviz_stats.base import array_stats

from sampler.analysis.results import RunResults
from sampler.analysis.slowest import slowest_element, slowest_series
from sampler.errors import InputError
from sampler.presentation.figures.traces import draw_chains, rank_histogram
from sampler.storage.result_files import write_result
from tests.held import held

CHAINS, DRAWS = 3, 200


def autoregressive(rng, memory: float, shape=(CHAINS, DRAWS)) -> np.ndarray:
    """x_t = memory · x_{t−1} + noise."""
    values = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        values[:, draw] += memory * values[:, draw - 1]
    return values


def test_the_element_that_forgets_last_of_all_is_shown(rng):
    """However many there are: the slowest of a thousand is element 997."""
    draws = rng.normal(size=(CHAINS, DRAWS, 1000))
    draws[..., 997] = autoregressive(rng, 0.97)
    table = xr.DataArray(draws, dims=("chain", "draw", "test_example"))
    ((label, values),) = slowest_element("predictor", table).items()
    assert label == "predictor [997]"
    np.testing.assert_array_equal(values, draws[..., 997])
    last = (array_stats.ess(draws[..., at], chain_axis=0, draw_axis=1) for at in range(990, 1000))
    assert int(np.argmin([float(one) for one in last])) == 7


def test_elements_that_do_not_move_are_passed_over(rng):
    draws = np.stack([np.ones((CHAINS, DRAWS)), autoregressive(rng, 0.1)], axis=-1)
    draws = np.stack([draws, np.full_like(draws, np.nan)], axis=-2)
    table = xr.DataArray(draws, dims=("chain", "draw", "path", "path_"))
    assert list(slowest_element("$U_1$", table)) == ["$U_1$ [0, 1]"]
    assert slowest_element("$U_1$", table.isel(path=slice(1, 2))) == {}


def test_chains_of_a_file_are_read_as_far_as_they_are_there(rng, tmp_path):
    assert slowest_series(RunResults(tmp_path)) == {}
    statistics = {name: (("chain", "draw"), autoregressive(rng, 0.2)) for name in ("lp", "energy")}
    groups = {"sample_stats": xr.Dataset(statistics), "posterior": xr.Dataset()}
    write_result(tmp_path, "draws.nc", xr.DataTree.from_dict(groups))
    found = RunResults(tmp_path)
    assert list(slowest_series(found)) == ["log posterior"]
    np.testing.assert_array_equal(slowest_series(found)["log posterior"], statistics["lp"][1])
    np.testing.assert_array_equal(found.drawn("energy", "sample_stats"), statistics["energy"][1])
    (tmp_path / "draws.nc").write_bytes(b"no such thing")
    with pytest.raises(InputError, match=r"draws\.nc"):
        slowest_series(RunResults(tmp_path))


def test_the_overview_shows_every_chain(rng):
    density = autoregressive(rng, 0.5)
    statistics = {"lp": (("chain", "draw"), density)}
    trace, _ = draw_chains(held(draws={"sample_stats": xr.Dataset(statistics)})).axes
    for line, chain in zip(trace.lines, density, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), chain)


@pytest.mark.parametrize(("extra", "word"), [({}, "chain"), ({"ancestor"}, "repetition")])
def test_repetitions_are_not_called_chains(rng, extra, word):
    statistics = {name: (("chain", "draw"), autoregressive(rng, 0.2)) for name in {"lp", *extra}}
    trace, _ = draw_chains(held(draws={"sample_stats": xr.Dataset(statistics)})).axes
    labels = [line.get_label() for line in trace.lines]
    assert labels == [f"{word} {number}" for number in range(CHAINS)]


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
