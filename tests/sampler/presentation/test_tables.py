"""The numbers of tables are those of the stored files, each with the error that is its own."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.compared import Row
from sampler.analysis.difference import difference_of
from sampler.analysis.estimate import Estimate
from sampler.analysis.labels import EXACT, LEADING, LIMIT
from sampler.analysis.results import RunResults
from sampler.presentation.table import Table
from sampler.presentation.tables import (
    MOST_ROWS,
    comparison_table,
    difference_cell,
    head_score_table,
    order_parameter_table,
    summary_table,
)
from tests import FIXTURES
from theory.observables import binomial_error

FINISHED = FIXTURES / "finished"


def test_accuracies_have_errors_of_the_test_set_but_those_of_draws():
    """Monte Carlo errors for what was sampled alone."""
    stored = json.loads((FINISHED / "comparison.json").read_text())["accuracy"]["sampled"]
    theory = xr.load_dataset(FINISHED / "theory.nc", engine="h5netcdf")
    tests = theory.sizes["test_example"]
    found = {str(row[0]): row[1] for row in summary_table(RunResults(FINISHED)).rows}
    for name, key in ((LEADING, "accuracy_theory"), (LIMIT, "accuracy_gp")):
        value = float(theory[key])
        assert (found[name].value, found[name].error) == (value, binomial_error(value, tests))
        assert found[name].error > 0.0
    assert (found[EXACT].value, found[EXACT].error) == (stored["value"], stored["mcse"])


def test_heads_stand_in_the_order_of_their_sampled_scores():
    stored = json.loads((FINISHED / "comparison.json").read_text())["head_score"]
    kept = [
        [stored[of][layer][head] for of in ("theory", "sampled", "mcse")]
        for layer, head in ((1, 0), (0, 1), (0, 0))
    ]
    table = head_score_table(RunResults(FINISHED)).to_dataframe()
    assert table[["theory", "sampled", "mcse"]].to_numpy().tolist() == kept


@dataclass(frozen=True)
class Elements:
    """All elements of U_1 of so many paths, as the comparison of a run has them."""

    paths: int

    def rows(self, key, names):
        places = zip(*np.triu_indices(self.paths), strict=True)
        return [
            Row.of(f"U₁ {names[i]} × {names[j]}", 1.0 + i, 2.0 + j, 0.5, element=(int(i), int(j)))
            for i, j in places
        ]


@pytest.mark.parametrize("paths", [2, 5, 20])
def test_of_many_elements_the_diagonal_is_shown(paths):
    names = [f"p{number}" for number in range(paths)]
    theory = xr.Dataset({"order_parameter": (("path", "path_"), np.eye(paths))}, {"path": names})
    comparison = SimpleNamespace(get={"order_parameter": Elements(paths)}.get)
    table = order_parameter_table(RunResults.held(None, theory=theory, comparison=comparison))
    every = paths * (paths + 1) // 2
    expected = [f"{one} × {one}" for one in names[:MOST_ROWS]]
    if every <= MOST_ROWS:
        expected = [f"{one} × {other}" for i, one in enumerate(names) for other in names[i:]]
    assert [row[0] for row in table.rows] == expected
    said = f"{len(expected)} of {every} elements; all are in comparison.json."
    assert (said in table.caption) == (every > MOST_ROWS)


def test_a_line_of_the_comparison_has_each_number_in_its_place():
    row = Row.of(
        "accuracy", 0.5, 0.75, 0.0625, gp=0.25, gp_own=0.875, test_error=0.125, next_order=0.625,
        own={"mine": 0.375}, share=True,
    )  # fmt: skip
    table = comparison_table("", "", [row]).to_dataframe().iloc[0]
    assert table.to_dict() == {
        "theory": 0.5, "next_order": 0.625, "mine": 0.375, "sampled": 0.75, "mcse": 0.0625,
        "difference_in_mcse": 4.0, "relative_difference": 1 / 3, "gp_own": 0.875, "gp": 0.25,
        "test_error": 0.125,
    }  # fmt: skip


@pytest.mark.parametrize(("gap", "resolved"), [(0.0, False), (0.5, True)])
def test_a_difference_has_its_error_where_it_is_resolved_and_else_a_limit(gap, resolved):
    sampled = Estimate(np.array([[1.0 + gap]]), np.array([[0.01]]), None, 39)
    one = difference_of("order_parameter", np.ones((1, 1)), sampled, ["good"])
    assert one.resolved is resolved
    shown = difference_cell(one)
    if resolved:
        assert (shown.value, shown.error) == (one.value, one.error)
        assert one.value == pytest.approx(gap / (1.0 + gap), abs=3 * one.error)
    else:
        assert shown == f"< {one.shown(one.below)}"
    assert not difference_cell(None).defined


def test_rows_that_are_left_out_are_counted():
    table = Table("numbers", ("", "number"), [[f"row {number}", number] for number in range(9)])
    text = table.text(width=60, most=4, elsewhere="the file")
    assert text.count("row ") == 4
    assert "(5 more rows: all is in the file)" in text
    assert "more rows" not in table.text(width=60, most=9)
