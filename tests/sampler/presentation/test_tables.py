"""Tables: their numbers are the stored ones, in the terminal, on pages and for pandas."""

import json
import re

import numpy as np
import pytest

from sampler.analysis.estimates import Estimate
from sampler.analysis.text import Number, wrapped
from sampler.presentation.summary import comparison_text
from sampler.presentation.table import Column, Link, Table
from sampler.presentation.views import MOST_ROWS, elements_table
from tests.held import comparison_of, held


def judged(comparison, verdict: str):
    """The same comparison, of draws with this verdict."""
    diagnostics = json.loads(comparison.tree.attrs["diagnostics"]) | {"verdict": verdict}
    comparison.tree.attrs["diagnostics"] = json.dumps(diagnostics)
    return comparison


def test_elements_of_failed_draws_have_no_differences():
    sampled = Estimate(np.full((1, 1), 4.0), np.full((1, 1), 0.5))
    given = {"order_parameter": sampled}, {"leading": {"order_parameter": [[3.0]]}}
    columns = len(elements_table(comparison_of(*given, names=("a",)), "order_parameter").columns)
    ((_, leading, exact),) = elements_table(
        judged(comparison_of(*given, names=("a",)), "fail"), "order_parameter"
    ).rows
    assert (leading.value, exact.value, exact.error) == (3.0, 4.0, 0.5)
    assert columns == 4


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
