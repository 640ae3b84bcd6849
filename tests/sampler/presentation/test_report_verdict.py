"""The words of the page: what follows from which numbers, and numbers to the digits they have."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler import __version__
from sampler.analysis.comparison import read_diagnostics
from sampler.analysis.difference import Difference, difference_of
from sampler.analysis.estimate import Estimate
from sampler.analysis.sweeps import PointSummary
from sampler.analysis.text import NO_BREAK, Number, count, percent
from sampler.analysis.verdict import (
    ORDER,
    saddle_point_converged,
    theory_verdict,
    trust_verdict,
)
from sampler.presentation.draws_tables import sampler_table
from sampler.presentation.report.write import SOFTWARE
from sampler.presentation.status import sweep_state
from sampler.presentation.summary import diagnostics_text
from sampler.presentation.tables import points_table, state_in_short
from sampler.storage.manifest import Manifest
from sampler.storage.status import RunState
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


@pytest.mark.parametrize(
    ("table", "expected"),
    [(None, None), ({"converged": 0}, False), ({"converged": 1}, True), ({}, True)],
)
def test_a_table_of_the_theory_says_whether_it_converged(table, expected):
    theory = None if table is None else xr.Dataset(attrs=table)
    assert saddle_point_converged(theory) is expected


def compared(gap: float, mcse: float) -> dict[str, Difference]:
    """Quantities whose samples are by `gap` beside a theory of ones."""
    estimate = Estimate(np.array([[1.0 + gap]]), np.array([[mcse]]), None, 39)
    keys = ("predictor_mean", "order_parameter")
    return {key: difference_of(key, np.ones((1, 1)), estimate, ["good"]) for key in keys}


@pytest.mark.parametrize(
    ("trusted", "converged", "gap", "mcse", "expected"),
    [
        (True, True, 0.00, 0.01, ("good", "Leading order: no difference in U₁ above 2.9 %.")),
        (True, True, 0.25, 0.01, ("caution", "Leading order: U₁ off by 19.98 ± 0.64 %.")),
        (True, True, 0.05, 0.90, ("neutral", "Leading order: U₁: not enough draws to say.")),
        (False, True, 0.05, 0.01, ("bad", "No conclusion")),
        (True, False, 0.05, 0.01, ("bad", "did not converge")),
        (None, True, 0.05, 0.01, ("neutral", "Theory only")),
        (True, None, 0.05, 0.01, ("neutral", "no theory")),
    ],
)
def test_the_verdict_follows_from_the_numbers(trusted, converged, gap, mcse, expected):
    received = theory_verdict(trusted, converged, compared(gap, mcse))
    assert received.tone == expected[0]
    assert expected[1] in received.headline


def test_the_headline_is_about_the_same_quantity_whatever_the_others_are():
    found = compared(0.0, 0.01)
    found["predictor_mean"] = compared(0.5, 0.01)["predictor_mean"]
    received = theory_verdict(True, True, found)
    assert received.headline.startswith("Leading order: no difference in U₁ above")
    assert received.reasons[0].startswith("Leading order: predictor mean m(x) off by 33.3")


def test_the_headline_says_what_is_left_to_next_order():
    """Beside a leading order that is off something is left, or not; beside none nothing was."""
    alike, apart = (compared(gap, 0.01)["order_parameter"] for gap in (0.0, 0.25))
    for leading, beyond, expected in (
        (apart, alike, "Leading order: U₁ off by 19.98 ± 0.64 %; next order: no difference left "
         "above 2.9 %."),
        (apart, replace(apart, value=0.1, error=0.01),
         "Leading order: U₁ off by 19.98 ± 0.64 %; next order: off by 10.0 ± 1.0 %."),
        (alike, apart, "Leading order: no difference in U₁ above 2.9 %; next order: off by 19.98 ± "
         "0.64 %."),
        (alike, alike, "Both orders: no difference in U₁ above 2.9 %."),
    ):  # fmt: skip
        found = {"order_parameter": leading, "order_parameter_next_order": beyond}
        received = theory_verdict(True, True, found)
        assert received.headline == received.line == expected


def test_the_order_of_the_error_is_named_where_any_quantity_is_resolved():
    alike, apart = compared(0.0, 0.01), compared(0.5, 0.01)
    for of_headline, of_mean, named in (
        (alike, alike, False), (alike, apart, True), (apart, alike, True)
    ):  # fmt: skip
        found = {
            "order_parameter": of_headline["order_parameter"],
            "predictor_mean": of_mean["predictor_mean"],
        }
        assert (ORDER in theory_verdict(True, True, found).reasons) is named


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


TEMPERED_DIAGNOSTICS = {
    "verdict": "pass",
    "quantities": {"a": {"r_hat": 1.0221, "ess_bulk": 812.7, "ess_tail": 900.0, "at": []}},
    "r_hat_limit": 1.05,
    "warning": "Two starts disagree: one evidence and the other.",
    "chains": 4,
    "draws": 512,
    "acceptance": 0.81,
    "lowest_acceptance": 0.62,
    "temperatures": [7, 8, 7, 7],
    "ancestors": [60, 71, 66, 58],
    "log_evidence_of_repetitions": [-10.1, -10.2, -10.3, -10.15],
    "log_evidence_prior": -14.0,
    "log_evidence_prior_error": 0.2,
    "starts_apart": -17.2,
    "weights_of_modes": [0.25, 0.75],
}


def test_two_starts_that_disagree_are_the_headline():
    passed = trust_verdict(read_diagnostics(TEMPERED_DIAGNOSTICS))
    assert passed.tone == "caution"
    assert passed.headline == TEMPERED_DIAGNOSTICS["warning"]
    assert passed.reasons[0] == "The samples pass their diagnostics."
    assert "4 repetitions of 512 particles" in passed.reasons[1]
    assert "1.0221 (limit 1.05)" in passed.reasons[1]
    failed = read_diagnostics(TEMPERED_DIAGNOSTICS | {"verdict": "fail", "reasons": ["why"]})
    found = trust_verdict(failed)
    assert found.tone == "bad"
    assert found.headline.startswith(TEMPERED_DIAGNOSTICS["warning"])
    assert "diagnostics failed" in found.headline
    first, *_ = diagnostics_text(failed).splitlines()
    assert first.startswith("Two starts disagree")
    agreeing = read_diagnostics(TEMPERED_DIAGNOSTICS | {"warning": ""})
    assert trust_verdict(agreeing).headline == "The samples can be trusted."


def test_the_table_of_the_sampler_has_what_is_known_of_particles():
    table = sampler_table(read_diagnostics(TEMPERED_DIAGNOSTICS), {"gradients": 1000.0}).text()
    for words in (
        "repetitions", "particles of each", "temperatures, at most", "62.0 %", "-14.00 ± 0.20",
        "posterior near mode 1", "75.0 %", "at most 4 either way",
    ):  # fmt: skip
        assert words in table, words
    alone = {"log_evidence_prior": None, "log_evidence_prior_error": None, "starts_apart": None}
    assert (
        "from the prior"
        not in sampler_table(read_diagnostics(TEMPERED_DIAGNOSTICS | alone), {}).text()
    )


def test_what_to_cite_is_what_the_citation_file_says():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    flat = " ".join(text.split())
    assert f"version: {__version__}" in text
    assert __version__ in SOFTWARE
    folder = ROOT / "sampler" / "presentation" / "report" / "templates"
    papers = PAPER.findall((folder / "page.html").read_text(encoding="utf-8"))
    assert text.count("- type: conference-paper") == len(papers) > 0
    for authors, title, where, year, link, arxiv in papers:
        assert f"title: {title}" in flat
        assert f"collection-title: {where} year: {year} " in flat
        assert f"arXiv:{arxiv}" in text
        assert link == arxiv
        for given, family in split_names(authors):
            assert f"family-names: {family} given-names: {given}" in flat


# Authors, title, where, year, and the number on arXiv twice, of a paper in the list of the page.
PAPER = re.compile(
    r"<li>([^<{]+): <cite>([^<]+)</cite>. ([^<]+), (\d{4}). "
    r'<a href="https://arxiv.org/abs/([\d.]+)">arXiv:([\d.]+)</a>'
)


def split_names(authors: str) -> list[tuple[str, str]]:
    """Given and family names of `A. B, C. D and E. F`."""
    people = authors.replace(" and ", ", ").split(", ")
    return [tuple(person.rsplit(" ", 1)) for person in people]


def state(word, code=None, checkpoint=None) -> RunState:
    manifest = Manifest(command="run", finished={} if code is None else {"run": code})
    return RunState(Path("somewhere"), word, manifest, None, checkpoint, {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (state("not begun"), "not begun"),
        (state("finished", 0), "finished"),
        (state("finished", 3), "exit code 3"),
        (
            state("interrupted", None, {"phase": "draws", "done": 3, "total": 9}),
            "interrupted after draw 3 of 9",
        ),
    ],
)
def test_the_state_of_a_point_fits_a_narrow_column(given, expected):
    assert state_in_short(given) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("finished", "not begun"), "2 points, 1 finished, 1 not begun; go on with: resume"),
        (("finished", "running"), "2 points, 1 finished, 1 running"),
        (
            ("finished", "finished"),
            "2 points, 2 finished; gather them with: sweep somewhere/",
        ),
    ],
)
def test_a_sweep_says_how_many_points_are_finished_and_how_to_go_on(words, expected):
    whole = state("interrupted")
    vars(whole)["points"] = {str(place): state(word) for place, word in enumerate(words)}
    received = sweep_state(whole)
    assert received.startswith(expected)
    assert "running" not in words or received == expected


def test_table_of_a_sweep_that_was_not_sampled_has_no_empty_columns():
    points = [
        PointSummary(label, Path("somewhere"), {}, 3, False, {}, {})
        for label in ("task.seed=0", "task.seed=1")
    ]
    table = points_table(points)
    for text in (table.text(), table._repr_html_().partition("<thead>")[2]):
        assert all(word in text for word in ("task.seed=1", "not sampled", "not begun"))
        assert not any(word in text for word in ("MCSE", "R-hat", "–"))
