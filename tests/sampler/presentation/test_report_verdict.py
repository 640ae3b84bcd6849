"""The words of the page: what follows from which numbers, and numbers to the digits they have."""

import math
from pathlib import Path

import numpy as np
import pytest

from sampler import __version__
from sampler.analysis.compared import Compared, Difference, largest_by_chance
from sampler.analysis.comparison import read_diagnostics
from sampler.presentation.report.elements import (
    NO_BREAK,
    Link,
    Number,
    Table,
    count,
    percent,
    templates,
)
from sampler.presentation.report.provenance import PAPERS, SOFTWARE
from sampler.presentation.report.sweep import ReportedPoint, points_table, state_in_short
from sampler.presentation.report.verdict import theory_verdict, trust_verdict
from tests import ROOT


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (Number(14.9612, 0.1293), "14.96 ± 0.13"),
        (Number(-0.05234, 0.026), "−0.052 ± 0.026"),
        (Number(0.98765, 0.0996), "0.99 ± 0.10"),
        (Number(123.4, 12.3), "123 ± 12"),
        (Number(1234.5, 123.4), "1234 ± 123"),
        (percent(0.95034, 0.00041), f"95.034 ± 0.041{NO_BREAK}%"),
        (percent(0.95), f"95.0{NO_BREAK}%"),
        (Number(0.0), "0"),
        (Number(1.5e-7), "1.500e−07"),
        (Number(None), "–"),
        (Number(math.nan, 0.1), "–"),
        (count(1834.9), "1834"),
        (Number(2.0, 0.0), "2.000 (no spread)"),
    ],
)
def test_a_number_has_the_digits_that_its_error_leaves(number, expected):
    assert number.text == expected


def test_text_is_escaped_and_elements_are_not():
    macros = templates().get_template("macros.html").module
    cells = ["<b> & ", Link('x"', "a&b.html"), Number(2.0, 0.5)]
    received = macros.table(Table('"<&', ("<", "y", "z"), [cells]))
    assert "<table>\n<caption>&#34;&lt;&amp;</caption>" in received
    assert '<th scope="row">&lt;b&gt; &amp; </th>' in received
    assert '<td><a href="a&amp;b.html">x&#34;</a></td>' in received
    assert '<td class="number"><data value="2.0">2.00 ± 0.50</data></td>' in received


def difference(key: str, entry: dict, names: list[str]) -> Difference | None:
    """Of an entry as `comparison.json` has it."""
    return Compared.from_json(entry).difference(key, names)


def test_differences_are_those_of_their_definition(rng):
    theory = rng.normal(size=(3, 3))
    theory = theory + theory.T
    sampled = theory + 0.1 * np.ones((3, 3)) * np.arange(1, 4) * np.arange(1, 4)[:, None]
    mcse = np.full((3, 3), 0.05)
    entry = {"theory": theory.tolist(), "sampled": sampled.tolist(), "mcse": mcse.tolist()}
    received = difference("order_parameter", entry, ["a", "b", "c"])

    in_mcse, relative, gap, size, noise = [], [], 0.0, 0.0, 0.0
    for i in range(3):
        for j in range(i, 3):
            in_mcse.append(abs(sampled[i, j] - theory[i, j]) / mcse[i, j])
            relative.append(abs(sampled[i, j] - theory[i, j]) / abs(sampled[i, j]))
            gap += (sampled[i, j] - theory[i, j]) ** 2
            size += sampled[i, j] ** 2
            noise += mcse[i, j] ** 2
    expected = [
        np.median(in_mcse), max(in_mcse), np.median(relative), max(relative),
        math.sqrt(gap / size), math.sqrt(noise / size),
    ]  # fmt: skip
    np.testing.assert_allclose(
        [
            received.median_in_mcse, received.worst_in_mcse, received.median_relative,
            received.worst_relative, received.whole, received.whole_error,
        ],
        expected,
        rtol=1e-12,
    )  # fmt: skip
    assert received.elements == 6
    assert received.at == "c"  # 0.1 · 3 · 3 in the last corner


def test_elements_without_a_number_are_left_out():
    entry = {"theory": [1.0, None, 2.0], "sampled": [1.5, 3.0, 2.0], "mcse": [0.1, 0.1, None]}
    received = difference("predictor_mean", entry, [])
    assert (received.elements, received.at) == (1, "test example 0")
    assert difference("predictor_mean", {k: [None] for k in entry}, []) is None


def test_many_errors_are_allowed_a_larger_worst_one(rng):
    assert largest_by_chance(1) == pytest.approx(3.0, rel=1e-12)
    limit = largest_by_chance(200)
    largest = np.abs(rng.normal(size=(5000, 200))).max(axis=1)
    # As rarely as one error exceeds 3 in size: 0.27 %; five standard errors of 5,000 trials.
    chance = math.erfc(3.0 / math.sqrt(2.0))
    assert abs((largest > limit).mean() - chance) < 5.0 * math.sqrt(chance / 5000)


def compared(gap: float, mcse: float) -> dict:
    """Two decisive quantities whose samples are by `gap` beside a theory of ones."""
    entry = {"theory": [[1.0]], "sampled": [[1.0 + gap]], "mcse": [[mcse]]}
    return {key: difference(key, entry, ["good"]) for key in ("order_parameter", "predictor_mean")}


@pytest.mark.parametrize(
    ("trusted", "converged", "gap", "mcse", "expected"),
    [
        (True, True, 0.01, 0.01, ("good", "cannot be told apart")),
        (True, True, 0.01, 0.20, ("neutral", "cannot be told apart")),
        (True, True, 0.12, 0.02, ("neutral", "off by about 1/N")),
        (True, True, 0.05, 0.01, ("good", "holds here to within 1/N")),
        (True, True, 0.50, 0.01, ("caution", "off by more than 1/N")),
        (False, True, 0.05, 0.01, ("bad", "No conclusion")),
        (True, False, 0.05, 0.01, ("bad", "did not converge")),
        (None, True, 0.05, 0.01, ("neutral", "Theory only")),
        (True, None, 0.05, 0.01, ("neutral", "no theory")),
    ],
)
def test_the_verdict_follows_from_the_numbers(trusted, converged, gap, mcse, expected):
    received = theory_verdict(trusted, converged, compared(gap, mcse), 10)
    assert received.tone == expected[0]
    assert expected[1] in received.headline


def test_the_reasons_for_trust_are_its_numbers_beside_their_limits():
    diagnostics = {
        "verdict": "pass",
        "quantities": {
            "a": {"r_hat": 1.0021, "ess_bulk": 812.7, "ess_tail": 900.0, "at": []},
            "b": {"r_hat": 1.0042, "ess_bulk": 990.0, "ess_tail": 655.2, "at": []},
        },
        "bfmi": [0.91, 0.87],
        "chains": 2,
        "draws": 500,
        "divergences": 1,
    }
    received = trust_verdict(read_diagnostics(diagnostics))
    assert received.tone == "good"
    for number in ("1.0042", "812", "655", "0.87", "1 of 1000 draws", "1.01", "400", "0.3"):
        assert number in received.reasons[0]
    failed = read_diagnostics(diagnostics | {"verdict": "fail", "reasons": ["why"]})
    assert trust_verdict(failed).reasons[1] == "why"


def test_what_to_cite_is_what_the_citation_file_says():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    flat = " ".join(text.split())
    assert f"version: {__version__}" in text
    assert __version__ in SOFTWARE
    assert text.count("- type: conference-paper") == len(PAPERS)
    for paper in PAPERS:
        assert f"title: {paper.title}" in flat
        assert f"arXiv:{paper.arxiv}" in text
        names = split_names(paper.authors)
        for given, family in names:
            assert f"family-names: {family} given-names: {given}" in flat
        assert f"year: {paper.year}" in text


def split_names(authors: str) -> list[tuple[str, str]]:
    """Given and family names of `A. B, C. D and E. F`."""
    people = authors.replace(" and ", ", ").split(", ")
    return [tuple(person.rsplit(" ", 1)) for person in people]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("not begun", "not begun"),
        ("`run` finished with exit code 0", "finished"),
        ("`run` finished with exit code 3", "exit code 3"),
        (
            "`run` interrupted after draw 3 of 9; go on with: resume x",
            "interrupted after draw 3 of 9",
        ),
    ],
)
def test_the_state_of_a_point_fits_a_narrow_column(state, expected):
    assert state_in_short(state) == expected


def test_table_of_a_sweep_that_was_not_sampled_has_no_empty_columns():
    points = [
        ReportedPoint(label, Path("somewhere"), "`solve` finished with exit code 0", None, {}, None)
        for label in ("task.seed=0", "task.seed=1")
    ]
    table = templates().get_template("macros.html").module.table(points_table(points))
    assert all(word in table for word in ("task.seed=1", "not sampled", "finished"))
    assert not any(word in table for word in ("MCSE", "R-hat", "–"))
