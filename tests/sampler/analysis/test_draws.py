"""Draws and tables of the theory meet by the names of their axes; a predictor is one label."""

import numpy as np
import pytest
import xarray as xr

from tests.sampler.analysis.test_comparison import draws_of, theory_beside

OVERLAP = "order_parameter"


def test_predictions_for_other_paths_are_refused(rng):
    given = draws_of(rng)
    theory = theory_beside(given)[OVERLAP].assign_coords(path=list("abcd"))
    with pytest.raises(xr.AlignmentError):
        given.draws.mean(OVERLAP) - theory


def test_a_function_of_the_mean_has_the_labels_of_what_it_gives(rng):
    given = draws_of(rng)
    found = given.draws.bootstrap(lambda means: means.sum("path_"), OVERLAP)
    expected = given.tree["posterior"][OVERLAP].mean(("chain", "draw")).sum("path_")
    xr.testing.assert_allclose(found.value, expected)
    # Twenty batches of independent draws: their spread is known to one in six.
    drawn = given.tree["posterior"][OVERLAP].sum("path_").values.reshape(80, -1)
    ratio = found.mcse.values / (drawn.std(axis=0, ddof=1) / np.sqrt(80))
    assert abs(ratio.mean() - 1.0) < 3 / 6
