"""Runs, sweeps and checks of recipes from Python, and what their results show."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import numpy as np
import pytest

import sampler
from tests.commands import (
    TINY_SAMPLED,
    without_drawing,
)

pytestmark = pytest.mark.slow

TABLES = {
    "name": "tiny",
    "task": {
        "kind": "markov_chain", "examples_train": 6, "examples_test": 10, "tokens": 4,
        "features": 6,
    },
    "attention": {"heads": [["good", "uniform"], ["uniform"]]},
    "network": {"widths": 3},
    "posterior": {"temperature": 1.0},
    "theory": {"starts": 1},
    "sampler": {"chains": 2, "warmup": 4, "draws": 6, "algorithm": "hmc", "leapfrog_steps": 3},
}  # fmt: skip
RECIPE = sampler.Recipe(**TABLES)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> sampler.Run:
    """A run, with precision as a notebook has it before and after."""
    with without_drawing(), jax.enable_x64(False):
        run = sampler.run(RECIPE, out=tmp_path_factory.mktemp("run") / "tiny", progress=False)
        assert not jax.config.jax_enable_x64
    return run


def test_a_run_opens_as_what_solve_sample_and_compare_return(done):
    assert done.theory["order_parameter"].dtype == np.float64
    assert done.draws["posterior"].sizes["draw"] == 6
    again = sampler.compare(done.theory, done.draws)
    assert again.table().equals(done.comparison.table())
    assert (again.verdict, again.reliability) == (done.verdict, done.reliability)
    assert done.trusted is False
    assert done.reliability.tone == "bad"
    assert sampler.open_results(done.directory) == done
    assert done.recipe == RECIPE


def test_runs_and_sweeps_warn_of_diagnostics_and_convergence(done, tmp_path, undrawn):
    """Also of what was finished before; and one step is too few for a saddle point."""
    with pytest.warns(sampler.ReliabilityWarning) as caught:
        assert not sampler.run(RECIPE, out=done.directory, progress=False).trusted
    assert len(caught) == 1
    recipe = RECIPE.changed({"theory.max_steps": 1})
    with pytest.warns(sampler.ReliabilityWarning) as caught:
        swept = sampler.sweep(
            recipe, {"network.widths": [3, 4]}, out=tmp_path / "sweep", figures=False,
            progress=False,
        )  # fmt: skip
    for label, run in swept.points.items():
        assert not run.theory.attrs["converged"]
        assert run.trusted is False
        assert sum(label in str(one.message) for one in caught) == 2
    assert len(caught) == 3


def test_figures_are_left_out_on_request_and_drawn_by_the_report(done, tmp_path, capsys, undrawn):
    """In a thread, where Python lets nobody handle signals; and nothing is printed."""
    call = partial(sampler.run, RECIPE, out=tmp_path / "tiny", figures=False, progress=False)
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(call).result()
    assert call() == run  # finished before: it is opened
    assert capsys.readouterr() == ("", "")
    page = (run.directory / "report.html").read_text(encoding="utf-8")
    assert not (run.directory / "figures").exists()
    assert "<img" not in page
    assert run.draws["posterior"].equals(done.draws["posterior"])
    assert run.theory.equals(done.theory)
    recipes = [(one.directory / "recipe.toml").read_text() for one in (run, done)]
    assert recipes[0] == recipes[1]
    page = run.report().read_text(encoding="utf-8")
    assert page.count("<img") == len(list((run.directory / "figures").iterdir())) > 1


def test_a_file_and_a_recipe_of_python_are_the_same(recipe_file, tmp_path):
    recipe_file = tmp_path / "tiny.toml"
    recipe_file.write_text(TINY_SAMPLED)
    changes = {"network.widths": np.int64(5), "sampler.target_acceptance": 0.9}
    read = sampler.Recipe.load(recipe_file, changes)
    assert read == RECIPE.changed(changes)
    expected = sampler.check(RECIPE)
    assert sampler.check(recipe_file).split("Time")[0] == (expected.split("Time")[0])


def test_results_show_themselves_in_notebooks(done):
    for results in (done, done.comparison):
        assert "<table" in results._repr_html_()
        assert results.plot()._repr_png_().startswith(b"\x89PNG")


def test_heads_have_scores_with_errors(done):
    table = sampler.head_importance(done.theory, done.draws)
    assert table.index.tolist() == [(1, 0), (1, 1), (2, 0)]
    assert {"leading", "next", "sampled", "mcse"} == set(table.columns)
    assert np.isfinite(table).all(axis=None)
    expected = done.comparison.elements("head_score")["error"].values
    np.testing.assert_array_equal(table["mcse"], expected[np.isfinite(expected)])
    assert set(sampler.head_importance(done.theory)) == {"leading", "next"}


def test_a_sweep_opens_with_its_points(tmp_path, undrawn, monkeypatch):
    swept = sampler.sweep(RECIPE, {"network.widths": [3, 4]}, out=tmp_path / "sweep")
    assert swept.table["width"].tolist() == [3, 4]
    assert swept.dataset.sizes["network.widths"] == 2
    assert list(swept.points) == ["network.widths=3", "network.widths=4"]
    assert swept.points["network.widths=3"].theory.attrs["widths"].tolist() == [3, 3, 3]
    monkeypatch.chdir(tmp_path)
    opened = sampler.open_results("sweep")
    monkeypatch.chdir("/")
    assert opened == swept
    assert opened.points == swept.points
    assert opened.table.equals(swept.table)
