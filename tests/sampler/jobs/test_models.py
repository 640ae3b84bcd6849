"""The end of `compare A B …`, and the same from Python."""

import shutil

import h5py
import numpy as np
import pytest

import sampler
from sampler.errors import InputError
from sampler.jobs.stored import compare_runs
from tests import FIXTURES
from tests.commands import in_process


@pytest.fixture
def two(tmp_path):
    """One finished run, twice."""
    return [shutil.copytree(FIXTURES / "finished", tmp_path / name) for name in ("one", "other")]


@pytest.mark.heavy
def test_models_of_several_runs_end_the_comparison(two, undrawn):
    in_process("compare", *two)
    assert (two[0] / "figures" / "models.png").is_file()
    found = sampler.compare_models({"one": two[0], "other": two[1]})
    # Theory, and infinite width at both of its temperatures, are those of both runs: they appear
    # once.
    assert len(found.to_dataframe()) == 2 + 3
    assert "<table" in found._repr_html_()
    assert found.plot().axes


@pytest.mark.heavy
def test_other_labels_are_a_reason_not_to_compare(two, undrawn):
    with h5py.File(two[1] / "draws.nc", "r+") as file:
        file["leave_one_out"].attrs["labels"] = "of others"
    compare_runs(two)
    with pytest.raises(InputError):
        sampler.compare_models(two)


def test_terms_of_a_stored_run_add_up(two):
    table = sampler.compare_models({"one": two[0]}).to_dataframe()
    run = sampler.open_results(two[0])
    expected = run.draws["leave_one_out"]["elpd"].values.sum(dtype=float)
    assert table.loc["one, exact posterior (diagnostics failed)", "elpd"] == pytest.approx(
        expected, rel=1e-6
    )
    assert np.isclose(table["weight"].sum(), 1.0, atol=1e-6)
