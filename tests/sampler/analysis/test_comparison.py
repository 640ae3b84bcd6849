"""A comparison as one tree: stored and read back, and what a predictor or a quantity adds to it."""

import json

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.comparison import ComparisonTree
from sampler.analysis.predictors import INFINITE, LEADING, SAMPLED
from sampler.analysis.quantities import QUANTITIES, Quantity
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.jobs.stages import compare_tables
from sampler.presentation.views import numbers_table, statements_table
from sampler.storage.result_files import read_comparison, write_comparison
from tests.told.held import held
from tests.told.run import Told, draws_of, made, theory_of
from tests.told.shown import read, rows_of

ROWS = 4
MINE = {"mine": {"order_parameter": np.diag(np.arange(1.0, ROWS + 1))}}


@pytest.fixture(scope="module")
def told() -> Told:
    return made("chains")


@pytest.fixture(scope="module")
def trace():
    """A quantity of the user's, known in this file alone: the trace of U_1."""

    def predicted(of, _):
        return np.trace(of["order_parameter"]) if "order_parameter" in of else None

    def sampled(given):
        traces = np.trace(given.draws["order_parameter"].values, axis1=2, axis2=3)
        return given.draws.averages.mean(traces)

    QUANTITIES.register("trace", Quantity("trace of U₁", predicted, sampled))
    yield
    del QUANTITIES._entries["trace"]


@pytest.fixture(scope="module")
def comparison(told, trace) -> ComparisonTree:
    return compare_tables(theory_of(told), draws_of(told), MINE)


def test_a_comparison_is_read_back_and_has_null_where_nothing_is_defined(comparison, tmp_path):
    write_comparison(tmp_path, comparison.tree, comparison.to_json())
    again = ComparisonTree(read_comparison(tmp_path))
    assert again.table().equals(comparison.table())
    assert again.verdict == comparison.verdict
    assert again.user_verdicts == comparison.user_verdicts

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "comparison.json").read_text()
    stored = json.loads(text, parse_constant=refuse)["summary"]
    assert stored["accuracy"]["sampled"]["low"] is None
    row = comparison.rows["order_parameter", "mine"]
    assert stored["order_parameter"]["mine"]["difference"] == row["difference"]


def test_a_quantity_is_one_row_and_a_predictor_one_label(comparison, told):
    """The same number in the frame, in the terminal, and behind a rounded one on the page."""
    rows, draws = comparison.rows, told.drawn["order_parameter"]
    exact = np.trace(draws.mean(axis=(0, 1)))
    assert rows["trace", SAMPLED]["value"] == pytest.approx(exact, rel=1e-12)
    assert rows["trace", LEADING]["value"] == pytest.approx(1.1 * exact, rel=1e-12)
    assert rows["trace", "mine"]["value"] == ROWS * (ROWS + 1) / 2
    assert rows["trace", "mine"]["difference"] == pytest.approx(
        abs(exact - 10.0) / exact, abs=3 * rows["trace", "mine"]["difference_error"]
    )
    table = numbers_table(held(comparison=comparison))
    assert read(rows_of(table.text(300))["trace of U₁"][0]).shows(1.1 * exact)
    assert f'value="{rows["trace", LEADING]["value"]!r}"' in str(table.__html__())


def test_a_predictor_without_any_number_has_no_difference(told):
    theory = theory_of(told)
    missing = theory.map(
        lambda of: of.where(of["predictor"] != LEADING) if "predictor" in of.dims else of,
        keep_attrs=True,
    )
    comparison = compare_tables(missing, draws_of(told), {})
    assert not any(comparison.rows[name, LEADING]["state"] for name in comparison.quantities)
    assert np.isnan(comparison.rows["accuracy", LEADING]["value"])
    assert comparison.rows["order_parameter", "next"]["state"]


def test_no_verdict_on_a_theory_where_infinite_width_stands_alone(told):
    comparison = compare_tables(theory_of(told).sel(predictor=[INFINITE]), draws_of(told), {})
    assert comparison.verdict.tone == "neutral"
    assert not statements_table(comparison)


def test_predictions_for_other_paths_are_refused(told):
    other = theory_of(told)["order_parameter"].assign_coords(path=list("abcd"))
    with pytest.raises(xr.AlignmentError):
        TheoryAndDraws(None, draws_of(told)).draws.mean("order_parameter") - other
