"""Draws and tables of the theory meet by the names of their axes; a predictor is one label."""

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.comparison import compare
from sampler.analysis.theory_and_draws import TheoryAndDraws
from tests.sampler.analysis.test_comparison import COST, PASSED, draws_of, theory_beside

OVERLAP = "order_parameter"


def joined(given: TheoryAndDraws, **arrays) -> xr.Dataset:
    """The table of the theory with one more predictor on its axis, called "mine"."""
    theory = theory_beside(given)
    axes = {name: theory[name].isel(predictor=0, drop=True) for name in arrays}
    mine = xr.Dataset({name: axes[name].copy(data=values) for name, values in arrays.items()})
    return xr.concat([theory, mine.expand_dims(predictor=["mine"])], "predictor")


@pytest.mark.parametrize("name", [OVERLAP, "readout_order_parameter"])
def test_the_mean_of_draws_is_held_against_every_predictor_at_once(name, rng):
    given = draws_of(rng)
    size = 4 if name == OVERLAP else 1
    theory = joined(given, **{name: np.full((size, size), 0.25)})
    gap = given.draws.mean(name) - theory[name].transpose(..., "predictor")
    drawn = given.tree["posterior"][name].values
    for who in map(str, theory["predictor"].values):
        for row, column in np.ndindex(size, size):
            draws = [draw[row, column] for chain in drawn for draw in chain]
            predicted = theory[name].sel(predictor=who).values[row, column]
            received = gap.value.sel(predictor=who).values[row, column]
            np.testing.assert_allclose(received, sum(draws) / len(draws) - predicted, atol=1e-12)
    assert gap.mcse.dims == given.draws.mean(name).value.dims


def test_predictions_for_other_paths_are_refused(rng):
    given = draws_of(rng)
    theory = theory_beside(given)[OVERLAP].assign_coords(path=list("abcd"))
    with pytest.raises(xr.AlignmentError):
        given.draws.mean(OVERLAP) - theory


def test_a_label_on_the_axis_of_predictors_is_compared_as_any_other(rng):
    given, matrix = draws_of(rng), np.diag(np.arange(1.0, 5.0))
    theory = joined(given, **{OVERLAP: matrix, "predictor_mean": np.full(5, 0.5)})
    comparison = compare(TheoryAndDraws(theory, given.tree), PASSED, COST)
    assert "mine" in comparison.predictors
    own = compare(
        TheoryAndDraws(
            theory_beside(given),
            given.tree,
            {"mine": {OVERLAP: matrix, "predictor_mean": np.full(5, 0.5)}},
        ),
        PASSED,
        COST,
    )
    assert comparison.table().equals(own.table())
    values = comparison.elements(OVERLAP)["predicted"].sel(predictor="mine")
    np.testing.assert_array_equal(values, matrix)


def test_a_function_of_the_mean_has_the_labels_of_what_it_gives(rng):
    given = draws_of(rng)
    found = given.draws.bootstrap(lambda means: means.sum("path_"), OVERLAP)
    expected = given.tree["posterior"][OVERLAP].mean(("chain", "draw")).sum("path_")
    xr.testing.assert_allclose(found.value, expected)
    # Twenty batches of independent draws: their spread is known to one in six.
    drawn = given.tree["posterior"][OVERLAP].sum("path_").values.reshape(80, -1)
    ratio = found.mcse.values / (drawn.std(axis=0, ddof=1) / np.sqrt(80))
    assert abs(ratio.mean() - 1.0) < 3 / 6
