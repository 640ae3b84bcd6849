"""Tables: their numbers are the stored ones, in the terminal, on pages and for pandas."""

import json
import re

import numpy as np
import pytest
import xarray as xr
from sampler.analysis.compared import Row
from sampler.presentation.summary import comparison_text

from sampler.analysis.difference import difference_of
from sampler.analysis.estimates import Estimate
from sampler.analysis.names import EXACT, LEADING, LIMIT
from sampler.analysis.results import RunResults
from sampler.analysis.text import wrapped
from sampler.presentation.table import Column, Link, Table
from sampler.presentation.tables import (
    comparison_table,
    difference_cell,
    head_score_table,
    selection_table,
    summary_table,
)
from tests.pages import STORED
from theory.observables import binomial_error


@pytest.fixture(scope="module")
def stored():
    return json.loads((STORED / "comparison.json").read_text())


def test_accuracies_have_errors_of_the_test_set_but_those_of_draws(stored):
    """Monte Carlo errors for what was sampled alone."""
    sampled = stored["accuracy"]["sampled"]
    theory = xr.load_dataset(STORED / "theory.nc", engine="h5netcdf")
    tests = theory.sizes["test_example"]
    found = {str(row[0]): row[1] for row in summary_table(RunResults(STORED)).rows}
    for name, key in ((LEADING, "accuracy_theory"), (LIMIT, "accuracy_gp")):
        value = float(theory[key])
        assert (found[name].value, found[name].error) == (value, binomial_error(value, tests))
        assert found[name].error > 0.0
    assert (found[EXACT].value, found[EXACT].error) == (sampled["value"], sampled["mcse"])


def test_heads_stand_in_the_order_of_their_sampled_scores(stored):
    scores = stored["head_score"]
    kept = [
        [scores[of][layer][head] for of in ("theory", "sampled", "mcse")]
        for layer, head in ((1, 0), (0, 1), (0, 0))
    ]
    table = head_score_table(RunResults(STORED)).to_dataframe()
    assert table[["theory", "sampled", "mcse"]].to_numpy().tolist() == kept


def test_the_terminal_has_the_stored_numbers(stored):
    lines = comparison_text(RunResults(STORED)).splitlines()
    (line,) = [one for one in lines if re.match(r"good +\d", one)]
    table = stored["order_parameter"]
    for value in (table["theory"][0][0], table["sampled"][0][0]):
        # to the digits that are shown
        assert any(
            abs(float(shown) - value) <= 0.5 * 10.0 ** -len(shown.partition(".")[2])
            for shown in re.findall(r"\d+\.\d+", line)
        )


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
    one = difference_of("order_parameter", np.ones((1, 1)), sampled)
    assert one.resolved is resolved
    shown = difference_cell(one)
    if resolved:
        assert (shown.value, shown.error) == (one.value, one.error)
        assert one.value == pytest.approx(gap / (1.0 + gap), abs=3 * one.error)
    else:
        assert shown == f"< {one.shown(one.below)}"
    assert not difference_cell(None).defined


def test_the_choices_of_a_sweep_stand_side_by_side():
    def choice(temperature):
        return {"settings": {"posterior.temperature": temperature, "network.widths": 10}}

    chosen = {
        "settings": {"network.widths": 10},
        "theory": {"accuracy": choice(0.1)},
        "next_order": {"accuracy": choice(1.0)},
        "log_evidence": {"next_order": {"log_evidence": choice(10.0)}, "gp": {}},
    }
    cells = [column for _, column in selection_table({"by_temperature": [chosen]}).shown]
    assert cells[1:] == [["temperature=0.1", ""], ["temperature=1.0", "temperature=10.0"]]
    assert not selection_table(None)


# --- one table in three forms


LONG = "U₁ good·random, output 10 × uniform·random, output 11"


def example() -> Table:
    return Table(
        "Order parameter",
        (
            "element",
            Column("leading order", "theory"),
            Column("exact posterior", "sampled", error="mcse", meaning="mean ± MCSE"),
            Column("relative difference", "relative", unit=" %", scale=100.0, digits=2, dropped=1),
            Column("nothing known"),
        ),
        [
            [LONG, 1.23456, (1.2, 0.0345), 0.0321, None],
            ["<b>", np.float64(-0.5), (float("nan"), None), None, None],
        ],
    )


@pytest.mark.parametrize("width", [40, 60, 120])
def test_text_fits_the_terminal(width):
    lines = example().text(width, elsewhere="comparison.json").splitlines()
    assert max(map(len, lines)) <= max(width, len(LONG))
    sentence = "U₁ off by 3.59 ± 0.29 %; next order: no difference left above 1.1 % at N = 10."
    lines = wrapped(sentence, width)
    assert max(map(len, lines.splitlines())) <= width
    assert " ".join(lines.split()) == sentence
    assert "3.59 ± 0.29 %" in lines


def test_a_page_has_full_numbers_and_escapes_texts():
    page = example()._repr_html_()
    assert '<data value="1.23456">' in page
    assert "&lt;b&gt;" in page
    link = Table("", ("file",), [[Link("draws.nc", "a%20b/draws.nc")]])._repr_html_()
    assert '<a href="a%20b/draws.nc">draws.nc</a>' in link


def test_a_dataframe_has_numbers_by_their_keys():
    frame = example().to_dataframe()
    assert frame.loc[LONG, "theory"] == 1.23456
    assert frame.loc[LONG, "mcse"] == 0.0345
    assert np.isnan(frame.loc["<b>", "sampled"])
