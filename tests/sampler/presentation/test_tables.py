"""Tables: their numbers are the stored ones, in the terminal, on pages and for pandas."""

import json
import re

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.estimates import Estimate
from sampler.analysis.names import quantity_name
from sampler.analysis.results import RunResults
from sampler.analysis.text import Number, marked, wrapped
from sampler.mcmc.diagnostics import Diagnostics, QuantityDiagnostics
from sampler.presentation.samples_tables import sampler_table
from sampler.presentation.summary import comparison_text
from sampler.presentation.table import Column, Link, Table
from sampler.presentation.views import MOST_ROWS, NOT_PREDICTED, elements_table, numbers_table
from tests.held import comparison_of, held
from tests.pages import STORED


@pytest.fixture(scope="module")
def stored():
    """Elements of the stored comparison, by xarray alone."""
    with xr.open_datatree(STORED / "comparison.nc", engine="h5netcdf") as tree:
        return tree.load()


def judged(comparison, verdict: str):
    """The same comparison, of draws with this verdict."""
    diagnostics = json.loads(comparison.tree.attrs["diagnostics"]) | {"verdict": verdict}
    comparison.tree.attrs["diagnostics"] = json.dumps(diagnostics)
    return comparison


def test_heads_stand_in_the_order_of_their_sampled_scores(stored):
    scores = stored["elements/head_score"]
    places = ((1, 0), (0, 1), (0, 0))
    expected = [
        [
            float(scores["predicted"].sel(predictor="leading").values[at]),
            *(float(scores[name].values[at]) for name in ("sampled", "error")),
        ]
        for at in sorted(places, key=lambda at: -scores["sampled"].values[at])
    ]
    # Differences are of samples that can be trusted.
    comparison = judged(RunResults(STORED).comparison, "pass")
    rows = elements_table(comparison, "head_score").rows
    for (_, leading, sampled, gap), numbers in zip(rows, expected, strict=True):
        assert [leading.value, sampled.value, sampled.error] == numbers
        # They are in units of the largest, and so are their differences.
        assert (gap.value, gap.error) == (sampled.value - leading.value, sampled.error)
    # Names of the heads are those of the task, whatever the paths are called.
    assert {row[0] for row in rows} == {
        "layer 1, head 0 (good)", "layer 1, head 1 (uniform)", "layer 2, head 0 (uniform)"
    }  # fmt: skip


def test_the_terminal_has_the_stored_numbers(stored):
    lines = comparison_text(RunResults(STORED)).splitlines()
    (line,) = [one for one in lines if re.match(r"good +\d", one)]
    table = stored["elements/order_parameter"]
    for value in (table["predicted"].values[0, 0, 0], table["sampled"].values[0, 0]):
        # to the digits that are shown
        assert any(
            abs(float(shown) - value) <= 0.5 * 10.0 ** -len(shown.partition(".")[2])
            for shown in re.findall(r"\d+\.\d+", line)
        )


def test_an_element_has_each_number_in_its_place():
    """Differences are exact − theory in per cent of the exact number s: σ|t|/s² is their error."""
    sampled = Estimate(np.array([[4.0]]), np.array([[0.5]]))
    comparison = comparison_of(
        {"order_parameter": sampled},
        {"leading": {"order_parameter": [[3.0]]}, "next": {"order_parameter": [[5.0]]}},
        names=("good",),
    )
    ((name, *numbers),) = elements_table(comparison, "order_parameter").rows
    assert name == "good"
    assert [(one.value, one.error) for one in numbers] == [
        (3.0, None), (5.0, None), (4.0, 0.5), (0.25, 0.5 * 3.0 / 4.0**2),
        (-0.25, 0.5 * 5.0 / 4.0**2),
    ]  # fmt: skip


def test_elements_off_the_diagonal_differ_in_units_of_their_rows():
    sampled = Estimate(np.array([[4.0, 0.1], [0.1, 9.0]]), np.full((2, 2), 0.5))
    theory = [[4.0, 0.7], [0.7, 9.0]]
    comparison = comparison_of(
        {"order_parameter": sampled}, {"leading": {"order_parameter": theory}}
    )
    rows = {row[0]: row[1:] for row in elements_table(comparison, "order_parameter").rows}
    assert rows["a × b"][-1].value == pytest.approx((0.1 - 0.7) / (2.0 * 3.0), rel=1e-12)


def test_numbers_stand_by_predictor_with_both_errors():
    accuracy = Estimate(0.75, 0.0625, test_error=0.125)
    predictions = {"leading": 0.5, "infinite": 0.25, "mine": 0.375}
    comparison = comparison_of(
        {"accuracy": accuracy}, {who: {"accuracy": one} for who, one in predictions.items()}
    )
    ((_, *cells),) = numbers_table(held(comparison=comparison)).rows
    numbers = dict(zip(comparison.predictors, cells, strict=True))
    sampled = numbers.pop("sampled")
    assert (sampled.value, sampled.error, sampled.test_error) == (0.75, 0.0625, 0.125)
    assert {who: one.value for who, one in numbers.items()} == predictions
    assert not any(one.error or one.test_error for one in numbers.values())


def test_an_empty_cell_names_the_setting_that_fills_it():
    """Of the samples and of the next order, which take it from the same setting."""
    comparison = comparison_of(
        {"log_evidence": Estimate(np.nan)},
        {"leading": {"log_evidence": -5.0}, "next": {}, "infinite": {}},
    )
    ((_, leading, following, sampled, infinite),) = numbers_table(held(comparison=comparison)).rows
    assert leading.value == -5.0
    assert "sampler.evidence" in following
    assert "sampler.evidence" in sampled
    assert not infinite.defined
    outside = comparison_of(
        {"log_evidence": Estimate(np.nan)}, {"infinite": {"log_evidence": -5.0}}
    )
    ((_, sampled, _),) = numbers_table(held(comparison=outside)).rows
    assert sampled
    assert "sampler.evidence" not in sampled


def test_predictors_without_elpd_say_why():
    comparison = comparison_of(
        {"elpd": Estimate(-4.0, 0.5)}, {"leading": {"elpd": -5.0}, "next": {}, "infinite": {}}
    )
    ((_, leading, following, _, infinite),) = numbers_table(held(comparison=comparison)).rows
    assert leading.value == -5.0
    assert "LOO" in following
    assert "LOO" in infinite


def test_elements_of_failed_draws_have_no_differences():
    sampled = Estimate(np.full((1, 1), 4.0), np.full((1, 1), 0.5))
    given = {"order_parameter": sampled}, {"leading": {"order_parameter": [[3.0]]}}
    columns = len(elements_table(comparison_of(*given, names=("a",)), "order_parameter").columns)
    ((_, leading, exact),) = elements_table(
        judged(comparison_of(*given, names=("a",)), "fail"), "order_parameter"
    ).rows
    assert (leading.value, exact.value, exact.error) == (3.0, 4.0, 0.5)
    assert columns == 4


@pytest.mark.parametrize("judged", ["order_parameter", "predictor"])
def test_effective_draws_are_said_of_the_quantity_that_they_are_of(judged):
    """Networks with learned attention or nonlinear values have no order parameter."""
    of_it = {judged: QuantityDiagnostics(1.0, 500.0, 450.0)}
    diagnostics = Diagnostics("pass", (), (), of_it, chains=2, draws=400, numbers={})
    rows = sampler_table(diagnostics, {"effective_draws": 450.0}).rows
    (label,) = (str(row[0]) for row in rows if getattr(row[1], "value", None) == 450.0)
    assert label.endswith(quantity_name(judged))


def test_what_a_theory_of_ones_own_leaves_out_is_said():
    """Empty would look as if it agreed."""
    sampled = {"log_evidence": Estimate(-4.0, 0.1)}
    comparison = comparison_of(sampled, {"leading": {"log_evidence": -5.0}, "mine": {}})
    ((_, *cells),) = numbers_table(held(comparison=comparison)).rows
    texts = [cell for cell in cells if isinstance(cell, str)]
    assert texts == [NOT_PREDICTED]


def test_the_terminal_counts_the_elements_that_it_leaves_out():
    names = tuple(f"path {place}" for place in range(20))
    sampled = Estimate(np.eye(20), np.full((20, 20), 0.1))
    comparison = comparison_of(
        {"order_parameter": sampled}, {"leading": {"order_parameter": np.eye(20)}}, names
    )
    (counted,) = re.findall(
        r"(\d+) of (\d+) elements", comparison_text(held(comparison=comparison))
    )
    assert tuple(map(int, counted)) == (MOST_ROWS, 20 * 21 // 2)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(0.99996, 4, "1.000"), (0.9996, 2, "1.0"), (999.97, 4, "1000"), (-0.09999, 3, "−0.100"),
     (0.99944, 3, "0.999"), (1.0, 2, "1.0"), (123456.7, 3, "123457")],
)  # fmt: skip
def test_a_value_has_so_many_significant_digits_after_rounding(value, digits, shown):
    assert str(Number(value, digits=digits)) == shown


@pytest.mark.parametrize(
    ("error", "shown"),
    [(None, "1.500"), (0.0, "1.500"), (0.25, "1.50 ± 0.25"), (np.nan, "1.500 ± ?"),
     (np.inf, "1.500 ± ?")],
)  # fmt: skip
def test_an_error_that_is_unknown_is_no_error_of_zero(error, shown):
    assert str(Number(1.5, error)) == shown


@pytest.mark.parametrize(
    ("value", "error", "test_error", "shown"),
    [
        (0.951, 0.00049, 0.0068, "95.10 ± 0.05 ± 0.68"),
        (0.951, 0.0068, 0.00049, "95.10 ± 0.68 ± 0.05"),
        (0.951, 0.0000037, 0.0068, "95.10 ± 0.0004 ± 0.68"),
        (0.951, 0.0, 0.0068, "95.10 ± 0 ± 0.68"),
        (0.951, None, 0.0068, "95.10 ± 0 ± 0.68"),
        (0.951, np.nan, 0.0068, "95.10 ± ? ± 0.68"),
        (-3.15246, 0.02, 0.0996, "−315 ± 2 ± 10"),
        (0.951, 0.00049, np.nan, "95.100 ± 0.049"),
        (0.951, 0.00049, 0.0, "95.100 ± 0.049"),
        (0.951, 4e-15, 7.3e-13, "95.10 ± 4.0e−13 ± 7.3e−11"),
    ],
)
def test_both_errors_stand_beside_a_number(value, error, test_error, shown):
    """That by the number of examples is last, so that the other one is there even if it is 0."""
    assert str(Number(value, error, 100.0, " %", test_error=test_error)) == f"{shown} %"


def test_both_errors_are_seen_in_eighty_columns():
    """And infinite width at the same temperature."""
    predictions = {"leading": 0.95, "next": 0.952, "infinite": 0.83, "infinite_tuned": 0.84}
    comparison = comparison_of(
        {"accuracy": Estimate(0.951, 0.00049, test_error=0.0068),
         "log_predictive_density": Estimate(-0.31524, 0.00112, test_error=0.0234)},
        {who: dict.fromkeys(("accuracy", "log_predictive_density"), one)
         for who, one in predictions.items()},
    )  # fmt: skip
    text = numbers_table(held(comparison=comparison)).text(80)
    assert max(map(len, text.splitlines())) <= 80
    assert "95.10 ± 0.05 ± 0.68 %" in text
    assert "−0.315 ± 0.001 ± 0.023" in text
    assert "83.0 %" in text


# --- one table in two forms


LONG = "U₁ good·random, output 10 × uniform·random, output 11"


def example() -> Table:
    return Table(
        "Order parameter",
        (
            "element",
            Column("leading order"),
            Column("exact posterior", meaning="mean ± MCSE"),
            Column("relative difference", unit=" %", scale=100.0, digits=2, dropped=1),
            Column("nothing known"),
        ),
        [
            [LONG, 1.23456, (1.2, 0.0345), 0.0321, None],
            ["<b>", np.float64(-0.5), (float("nan"), None), None, None],
        ],
    )


def test_no_number_is_cut_off_where_names_and_texts_are_long():
    """Names make room, down to their least width."""
    columns = "point", "relative error", "accuracy, leading order", "exact posterior"
    row = "widths=[8, 6, 4], temperature=0.1", "not trusted", (0.583, 0.02), (0.6333, 0.00213)
    for width in range(65, 120):
        text = Table("Points", columns, [row]).text(width)
        assert max(map(len, text.splitlines())) <= width
        assert "not trusted" in text
        assert re.search(r"0\.583 ± 0\.020 +0\.6333 ± 0\.0021$", text, re.MULTILINE), text


@pytest.mark.parametrize("width", [40, 60, 120])
def test_text_fits_the_terminal(width):
    lines = example().text(width, elsewhere="report.html").splitlines()
    assert max(map(len, lines)) <= width
    hidden = [line for line in lines if "hidden" in line]
    assert len(hidden) == (width < 60)
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


def test_a_number_of_a_page_is_not_broken_before_its_error_or_unit():
    """Where no style sheet is, as in a notebook."""
    cells = [[name, (0.0214, 0.0055), (0.951, 0.0006, 0.0068)] for name in "ab"]
    page = Table("", ("", "x", Column("y", unit=" %", scale=100.0)), cells)._repr_html_()
    numbers = re.findall("<data[^>]*>([^<]*)</data>", page)
    assert len(numbers) == 4
    assert not any(" " in number for number in numbers)


def test_sentences_have_the_minus_signs_of_tables_and_settings_as_code():
    text = "ln p(y) = -52.91 < -1.5 and x-2, a -3: raise `sampler.draws` & <b>"
    shown = marked(text).replace("\N{NO-BREAK SPACE}", " ")
    assert shown == (
        "ln p(y) = −52.91 &lt; −1.5 and x-2, a -3: raise <code>sampler.draws</code> &amp; &lt;b&gt;"
    )
    assert wrapped("ln p(y) = -52.91", 40) == "ln p(y) = −52.91"


@pytest.mark.parametrize("whole", ["BFMI ≥ 0.82", "R-hat ≤ 1.0030", "tail ESS 12", "N = -3.1"])
def test_no_line_ends_between_a_name_and_its_number(whole):
    """Whatever the width; before the limit there may be a new line."""
    last = re.split(" ", whole, maxsplit=whole.startswith("tail"))[-1]
    for width in range(12, 40):
        lines = wrapped(f"some words and {whole} (limit 0.3); others", width).splitlines()
        assert any(last.replace("-3", "−3") in line for line in lines), (width, lines)
