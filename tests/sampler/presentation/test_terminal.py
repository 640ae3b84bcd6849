"""What is printed fits the terminal, and no number of it is broken."""

import re

import pytest

from sampler.analysis.compared import Row
from sampler.presentation.summary import table_text
from sampler.presentation.terminal import Column, table_lines, unbroken, wrapped

LONG = "U₁ good·random, output 10 × uniform·random, output 11"
SENTENCE = (
    "U₁: leading order resolved at 3.59 ± 0.29 %, next order not resolved: below 1.1 % with "
    "95 % confidence at N = 10, p < 0.05, off by 0.20 points or 0.0033 ± 0.0001 nats."
)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_lines_break_between_words_and_not_in_a_number(width):
    received = wrapped(SENTENCE, width)
    assert max(map(len, received.splitlines())) <= width
    assert " ".join(received.split()) == SENTENCE
    for kept in ("3.59 ± 0.29 %", "1.1 %", "95 %", "N = 10", "p < 0.05", "0.20 points", "1 nats"):
        assert kept in received, kept


def test_parts_are_broken_at_commas_alone():
    received = wrapped(unbroken(["bulk ESS 2343", "2 leapfrog steps per draw", "BFMI 0.95"]), 30)
    assert received.splitlines() == [
        "bulk ESS 2343,",
        "  2 leapfrog steps per draw,",
        "  BFMI 0.95",
    ]


@pytest.mark.parametrize("width", ["60", "80", "120"])
@pytest.mark.parametrize("theories", [0, 1, 2, 9])
def test_the_comparison_table_fits_with_theories_of_the_users_own(width, theories, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    own = {f"a theory of mine {place}": 1.5 for place in range(theories)}
    numbers = {"mcse": 0.0123, "next_order": -1234.5678, "own": own}
    rows = [
        Row.of(LONG, -1234.5678, -1234.6789, **numbers),
        Row.of("U₁ good", 1.0, 1.01, **numbers),
        Row.of("accuracy", 0.9, 0.91, gp=0.8, test_error=0.01, **numbers),
        Row.of("log evidence", 0.9, 0.91, gp=0.8, remark="bridge", **numbers),
    ]
    lines = "\n".join(table_text(rows)).splitlines()
    assert max(map(len, lines)) <= int(width), lines
    text = " ".join(" ".join(lines).split())
    assert LONG in text
    for number in ("-1234.5678", "-1234.6789", "0.0123", "infinite width 0.8000"):
        assert number in text, number
    shown = len(re.findall(r" 1\.5000", next(one for one in lines if one.startswith("accuracy"))))
    left_out = re.search(r"\(no room for (.*): all is in comparison.json", text)
    assert shown + (left_out[1].count("…") if left_out else 0) == theories


def test_a_sampled_number_without_error_has_no_difference_in_errors():
    lines = table_text([Row.of("layer 2, head 1", 1.0, 1.0, mcse=0.0)])
    assert "–" in lines[-1].split()
    assert "nan" not in "".join(lines)


def test_columns_are_left_out_in_their_order_and_named():
    columns = [
        Column("first", ["1.25"]),
        Column("not so\nwide", ["2.5"], dropped=1),
        Column("second", ["3.75"], dropped=2),
    ]
    header, (line,), (note,) = table_lines(["name"], columns, 27)
    assert header == ["                 not so", "          first    wide"]
    assert line == "name       1.25     2.5"
    assert note == "(no room for second)"
    assert table_lines(["name"], columns, 40)[-1] == [""]
