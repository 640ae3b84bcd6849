"""Runs and sweeps from Python, and what their results show."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import numpy as np
import pytest

import sampler
from tests.commands import TINY_IN_PYTHON, without_drawing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]

FEW_DRAWS = {"chains": 2, "warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3}
RECIPE = sampler.Recipe(**TINY_IN_PYTHON, sampler=FEW_DRAWS)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> sampler.Run:
    """A run, with precision as a notebook has it before and after."""
    with without_drawing(), jax.enable_x64(False):
        run = sampler.run(RECIPE, out=tmp_path_factory.mktemp("run") / "tiny", progress=False)
        assert not jax.config.jax_enable_x64
    return run


def test_a_run_opens_as_what_solve_sample_and_compare_return(done):
    assert done.theory["order_parameter"].dtype == np.float64
    again = sampler.compare(done.theory, done.draws)
    assert again.table().equals(done.comparison.table())
    assert (again.verdict, again.reliability) == (done.verdict, done.reliability)
    assert (done.trusted, done.reliability.tone) == (False, "bad")
    assert sampler.open_results(done.directory) == done
    assert done.recipe == RECIPE
    # Heads have scores with errors.
    table = sampler.head_importance(done.theory, done.draws)
    assert table.index.tolist() == [(1, 0), (1, 1), (2, 0)]
    assert set(table.columns) == {"leading", "next", "sampled", "mcse"}
    expected = done.comparison.elements("head_score")["error"].values
    np.testing.assert_array_equal(table["mcse"], expected[np.isfinite(expected)])


def test_figures_are_left_out_on_request_and_drawn_by_the_report(done, tmp_path, capsys):
    """In a thread, where Python lets nobody handle signals; and nothing is printed."""
    call = partial(sampler.run, RECIPE, out=tmp_path / "tiny", figures=False, progress=False)
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(call).result()
    assert call() == run  # finished before: it is opened
    assert capsys.readouterr() == ("", "")
    assert not (run.directory / "figures").exists()
    assert "<img" not in (run.directory / "report.html").read_text(encoding="utf-8")
    assert run.draws["posterior"].equals(done.draws["posterior"])
    assert run.theory.equals(done.theory)
    page = run.report().read_text(encoding="utf-8")
    assert page.count("<img") == len(list((run.directory / "figures").iterdir())) > 1


def test_runs_and_sweeps_warn_of_diagnostics_and_convergence(done, tmp_path, monkeypatch):
    """Also of what was finished before; and one step is too few for a saddle point."""
    with pytest.warns(sampler.ReliabilityWarning) as caught:
        assert not sampler.run(RECIPE, out=done.directory, progress=False).trusted
    assert len(caught) == 1
    recipe, widths = RECIPE.changed({"theory.max_steps": 1}), {"network.widths": [3, 4]}
    out = {"out": tmp_path / "sweep", "figures": False, "progress": False}
    with pytest.warns(sampler.ReliabilityWarning) as caught:
        swept = sampler.sweep(recipe, widths, **out)
    assert len(caught) == 3
    assert list(swept.points) == ["network.widths=3", "network.widths=4"]
    for label, run in swept.points.items():
        assert run.theory.attrs["widths"].tolist() == [int(label[-1])] * 3
        assert (run.theory.attrs["converged"], run.trusted) == (0, False)
        assert sum(label in str(one.message) for one in caught) == 2
    assert swept.table["width"].tolist() == [3, 4]
    # It is opened by its name where that is, and then known wherever one is.
    monkeypatch.chdir(tmp_path)
    opened = sampler.open_results("sweep")
    monkeypatch.chdir("/")
    assert opened == swept
    assert opened.points == swept.points
    assert opened.table.equals(swept.table)
