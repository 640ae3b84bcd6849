"""What is printed fits the terminal, and no number of it is broken."""

import re

import pytest

from sampler.analysis.compared import Row
from sampler.analysis.text import unbroken, wrapped
from sampler.presentation.tables import comparison_table

LONG = "U₁ good·random, output 10 × uniform·random, output 11"
SENTENCE = (
    "Leading order: U₁ off by 3.59 ± 0.29 %; next order: no difference left above 1.1 % with "
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


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("theories", [0, 1, 2, 9])
def test_the_comparison_table_fits_with_theories_of_the_users_own(width, theories):
    own = {f"theory {place}": 1.5 for place in range(theories)}
    numbers = {"mcse": 0.0123, "next_order": -1234.5678, "own": own}
    rows = [
        Row.of(LONG, -1234.5678, -1234.6789, **numbers),
        Row.of("U₁ good", 1.0, 1.01, **numbers),
        Row.of("accuracy", 0.9, 0.91, gp=0.8, test_error=0.01, share=True, **numbers),
    ]
    lines = comparison_table("", "quantity", rows).text(width, elsewhere="here").splitlines()
    assert max(map(len, lines)) <= width, lines
    text = " ".join(" ".join(lines).split())
    assert f"{LONG} -1235 -1235" in text
    assert "-1234.679 ± 0.012" in text
    shown = next(one for one in lines if one.startswith("accuracy")).count("150 %")
    left_out = re.search(r"\(no room for (.*): all is in here", text)
    assert shown + (left_out[1].count("theory") if left_out else 0) == theories


def test_a_sampled_number_without_error_has_no_difference_in_errors():
    lines = comparison_table("", "", [Row.of("layer 2, head 1", 1.0, 1.0, mcse=0.0)]).text()
    assert "no spread" in lines
    assert "nan" not in lines
