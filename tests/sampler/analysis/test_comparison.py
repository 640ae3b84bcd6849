"""Theories against draws: every quantity by every predictor, in memory and on disk."""

import json
import re

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.comparison import ComparisonTree, compare
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.estimates import OF_CHAINS
from sampler.analysis.predictors import LEADING, SAMPLED, along_predictors
from sampler.analysis.quantities import (
    QUANTITIES,
    Quantity,
)
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.mcmc.diagnostics import Diagnostics
from sampler.presentation.views import numbers_table, statements_table
from sampler.storage.result_files import read_comparison, write_comparison
from tests.held import held
from tests.shown import read, rows_of
from tests.small import (
    TEST,
    collect,
    healthy_statistics,
    random_observables,
    signs,
    small_problem,
)

PASSED = Diagnostics("pass", (), (), {}, 2, 40, {})
FAILED = Diagnostics("fail", ("why",), (), {}, 2, 40, {})
COST = {"seconds": 1.0}
SHIFT = {"leading": 0.5, "next": 0.25, "infinite": 2.0}


def draws_of(rng, outputs=1, **settings) -> TheoryAndDraws:
    """Draws, moments and labels as they come back from `draws.nc`, without a theory."""
    problem = small_problem(rng, outputs=outputs, labels_test=signs(rng, outputs))
    collected = collect(random_observables(problem, rng), healthy_statistics(rng), **settings)
    return TheoryAndDraws(None, draws_tree(problem, collected, {"algorithm": "nuts"}))


def theory_beside(given: TheoryAndDraws) -> xr.Dataset:
    """Predictors that are off by their `SHIFT` in every quantity; one of them has no U_1."""
    draws, tree = given.draws.judged, given.tree["posterior"]
    outputs = ["output"] if draws["predictor"].ndim > 3 else []
    predictor = draws["predictor"]
    exact = {n: (tree[n].dims[2:], draws[n].mean((0, 1))) for n in draws if n != "predictor"}
    axes = ("test_example", *outputs)
    moments = {
        "predictor_mean": (axes, predictor.mean((0, 1))),
        "predictor_variance": (axes, predictor.var((0, 1), ddof=1)),
    }
    predictions = {}
    for name, shift in SHIFT.items():
        known = moments if name == "infinite" else exact | moments
        predictions[name] = {n: (a, values + shift) for n, (a, values) in known.items()}
        predictions[name]["temperature"] = ((), 0.2)
    table = along_predictors(predictions)
    return table.assign_coords(path=tree["path"].values, path_=tree["path_"].values)


def compared(given: TheoryAndDraws, own=None, diagnostics=PASSED) -> ComparisonTree:
    theory = theory_beside(given)
    return compare(TheoryAndDraws(theory, given.tree, own or {}), diagnostics, COST)


def test_a_comparison_is_read_back_by_xarray_alone(rng, tmp_path):
    """What is not defined is NaN in one file and null in the other."""
    given = draws_of(rng)
    mine = {"order_parameter": np.full((4, 4), 0.5)}
    comparison = compared(given, own={"mine": mine})
    write_comparison(tmp_path, comparison.tree, comparison.to_json())
    with xr.open_datatree(tmp_path / "comparison.nc", engine="h5netcdf") as tree:
        sampled = tree["elements/order_parameter"]["sampled"].values
        np.testing.assert_array_equal(sampled, given.draws["order_parameter"].values.mean((0, 1)))
        xr.testing.assert_identical(tree["summary"].to_dataset().load(), comparison.summary)
    again = ComparisonTree(read_comparison(tmp_path))
    assert again.table().equals(comparison.table())
    assert again.verdict == comparison.verdict
    assert again.user_verdicts == comparison.user_verdicts

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "comparison.json").read_text()
    stored = json.loads(text, parse_constant=refuse)
    assert len(text) < 30_000
    cell = stored["summary"]["order_parameter"]["mine"]
    assert cell["difference"] == comparison.rows["order_parameter", "mine"]["difference"]
    assert stored["summary"]["accuracy"]["sampled"]["low"] is None


def test_a_predictor_without_any_number_has_no_difference(rng):
    given = draws_of(rng)
    theory = theory_beside(given)
    theory = theory.where(theory["predictor"] != LEADING)
    comparison = compare(TheoryAndDraws(theory, given.tree), PASSED, COST)
    assert not any(comparison.rows[name, LEADING]["state"] for name in comparison.quantities)
    assert np.isnan(comparison.rows["accuracy", LEADING]["value"])
    assert comparison.rows["order_parameter", "next"]["state"]


def test_draws_that_are_not_finite_have_no_scores(rng):
    given = draws_of(rng)
    tree = given.tree.copy(deep=True)
    tree["predictions"]["predictor"].values[1, 3] = np.nan
    comparison = compare(TheoryAndDraws(theory_beside(given), tree), FAILED, COST)
    assert np.isnan(comparison.rows["log_predictive_density", SAMPLED]["value"])
    assert np.isfinite(comparison.rows["log_predictive_density", LEADING]["value"])


@pytest.fixture
def registered():
    """A quantity of the user's, known in this test alone: the trace of U_1."""

    def sampled(given):
        return OF_CHAINS.mean(np.trace(given.draws["order_parameter"].values, axis1=2, axis2=3))

    def predicted(of, _):
        return np.trace(of["order_parameter"]) if "order_parameter" in of else None

    QUANTITIES.register("trace", Quantity("trace of U₁", predicted, sampled))
    yield
    del QUANTITIES._entries["trace"]


@pytest.mark.usefixtures("registered")
def test_a_quantity_is_one_row_and_a_predictor_one_label(rng):
    given = draws_of(rng)
    matrix = np.diag(np.arange(1.0, 5.0))
    comparison = compared(given, own={"mine": {"order_parameter": matrix}})
    exact = np.trace(given.draws["order_parameter"].values.mean((0, 1)))
    assert comparison.rows["trace", SAMPLED]["value"] == pytest.approx(exact, rel=1e-12)
    assert comparison.rows["trace", LEADING]["value"] == pytest.approx(exact + 4 * SHIFT[LEADING])
    assert comparison.rows["trace", "mine"]["value"] == 10.0
    error = comparison.rows["trace", "mine"]["difference_error"]
    off = comparison.rows["trace", "mine"]["difference"]
    assert off == pytest.approx(abs(exact - 10.0) / exact, abs=3 * error)
    assert len(given.draws.labels_test) == TEST
    # The same number in the frame, in JSON, in the terminal, and behind a rounded one on the page.
    row = comparison.table().loc["trace", LEADING]
    assert row["value"] == comparison.rows["trace", LEADING]["value"]
    assert comparison.to_json()["summary"]["trace"][LEADING]["value"] == row["value"]
    table = numbers_table(held(comparison=comparison))
    shown = read(rows_of(table.text(300))["trace of U₁"][0])
    assert shown.shows(row["value"])
    assert row["value"] in [
        float(one) for one in re.findall(r'value="([^"]*)"', str(table.__html__()))
    ]
    assert "mine" in table.text(300)
    statements = rows_of(statements_table(comparison).text(300))["trace of U₁"]
    off = (row["difference"], [row["difference_error"]], "%")
    assert row["state"] != "resolved" or read(statements[0]).shows(*off)
