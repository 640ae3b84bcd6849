"""One table in three forms: it fits every terminal, tells pages its numbers in full, and pandas."""

import re

import numpy as np
import pytest

from sampler.analysis.text import Number, percent
from sampler.presentation.table import Column, Link, Table

LONG = "U₁ good·random, output 10 × uniform·random, output 11"


def example() -> Table:
    return Table(
        "Order parameter",
        (
            "element",
            Column("leading order", "theory"),
            Column("exact posterior", "sampled", error="mcse", meaning="mean ± MCSE"),
            Column("relative difference", "relative", unit=" %", scale=100.0, digits=2, dropped=1),
            Column("difference in MCSE", dropped=2),
            Column("nothing known"),
        ),
        [
            [LONG, 1.23456, (1.2, 0.0345), 0.0321, Number(1.5), None],
            ["<b>", np.float64(-0.5), (float("nan"), None), percent(None), "< 2", None],
        ],
        "Path by path.",
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_text_fits_and_says_what_it_leaves_out(width):
    lines = example().text(width, elsewhere="comparison.json").splitlines()
    assert max(map(len, lines)) <= max(width, len(LONG)), lines
    assert lines[0] == "Order parameter"
    text = " ".join(" ".join(lines).split())
    assert f"{LONG} 1.235 1.200 ± 0.035" in text
    assert "nothing known" not in text
    left_out = re.search(r"\(no room for (.*): all is in comparison.json\)", text)
    expected = {40: "relative difference, difference in MCSE", 60: "difference in MCSE"}
    assert (left_out and left_out[1]) == expected.get(width)


def test_decimal_points_stand_below_each_other():
    lines = Table("", ("", "value"), [["a", 12.0], ["b", -0.01234], ["c", 3]]).text(80)
    points = [line.find(".") for line in lines.splitlines()[1:3]]
    assert points[0] == points[1]
    assert "-0.01234" in lines


def test_a_text_in_the_last_column_is_broken():
    said = "several words about a setting that do not fit into one line of this terminal"
    lines = Table("", ("", ""), [["setting", said], ["other", "short"]]).text(40).splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == f"setting {said} other short"
    assert lines[1].startswith(" " * 9)


def test_a_page_has_full_numbers_and_escapes_texts():
    page = example()._repr_html_()
    assert '<data value="1.23456">1.235</data>' in page
    assert "&lt;b&gt;" in page
    assert '<th scope="col" class="number" title="mean ± MCSE">exact posterior</th>' in page
    assert "<caption>Order parameter. Path by path.</caption>" in page
    assert "nothing known" not in page
    link = Table("", ("file",), [[Link("draws.nc", "a%20b/draws.nc")]])._repr_html_()
    assert '<a href="a%20b/draws.nc">draws.nc</a>' in link


def test_a_dataframe_has_numbers_by_their_keys():
    frame = example().to_dataframe()
    assert list(frame.index) == [LONG, "<b>"]
    assert list(frame.columns) == [
        "theory", "sampled", "mcse", "relative", "difference in MCSE", "nothing known",
    ]  # fmt: skip
    assert frame.loc[LONG, "theory"] == 1.23456
    assert frame.loc[LONG, "mcse"] == 0.0345
    assert np.isnan(frame.loc["<b>", "sampled"])
    assert frame["nothing known"].isna().all()


def test_an_empty_table_is_false():
    assert not Table("Nothing", ("", "value"), [])
    assert example()
