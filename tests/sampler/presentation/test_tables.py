"""Tables: every digit that is shown is right, and fits the terminal and the page."""

import json
import re
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sampler.analysis.estimates import Estimate
from sampler.analysis.learned_heads import SampledHeads
from sampler.analysis.text import Number, wrapped
from sampler.mcmc.diagnostics import Diagnostics, QuantityDiagnostics
from sampler.presentation.samples_tables import (
    diagnostics_table,
    heads_table,
    matched_paths_table,
    sampler_table,
)
from sampler.presentation.several_runs import selection_table
from sampler.presentation.summary import comparison_text
from sampler.presentation.table import Column, Table
from sampler.presentation.views import elements_table
from tests.told.held import comparison_of, held, theory_of
from tests.told.shown import assert_shows

LONG = "U₁ good·random, output 10 × uniform·random, output 11"


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        # Significant digits after rounding.
        (Number(0.99996), "1.000"),
        (Number(-0.09999, digits=3), "−0.100"),
        (Number(123456.7, digits=3), "123457"),
        # An error that is unknown is no error of zero.
        (Number(1.5, 0.0), "1.500"),
        (Number(1.5, 0.25), "1.50 ± 0.25"),
        (Number(1.5, np.inf), "1.500 ± ?"),
        # That by the number of examples is last, so that the other one is there even if it is 0.
        (Number(0.951, 0.00049, test_error=0.0068), "0.9510 ± 0.0005 ± 0.0068"),
        (Number(0.951, 0.0068, test_error=0.00049), "0.9510 ± 0.0068 ± 0.0005"),
        (Number(0.951, 0.0, test_error=0.0068), "0.9510 ± 0 ± 0.0068"),
        (Number(0.951, np.nan, test_error=0.0068), "0.9510 ± ? ± 0.0068"),
        (Number(0.951, 0.00049, 100.0, " %", test_error=0.0), "95.100 ± 0.049 %"),
        (Number(-3.15246, 0.02, 100.0, test_error=0.0996), "−315 ± 2 ± 10"),
    ],
)
def test_a_number_has_the_digits_that_its_errors_leave(number, shown):
    assert str(number) == shown


def test_elements_of_failed_draws_have_no_differences():
    sampled = Estimate(np.full((1, 1), 4.0), np.full((1, 1), 0.5))
    given = {"order_parameter": sampled}, {"leading": {"order_parameter": [[3.0]]}}
    sound, failed = (comparison_of(*given, names=("a",)) for _ in range(2))
    diagnostics = json.loads(failed.tree.attrs["diagnostics"]) | {"verdict": "fail"}
    failed.tree.attrs["diagnostics"] = json.dumps(diagnostics)
    ((_, leading, exact),) = elements_table(failed, "order_parameter").rows
    assert (leading.value, exact.value, exact.error) == (3.0, 4.0, 0.5)
    assert len(elements_table(sound, "order_parameter").columns) == 4


def test_of_many_elements_the_diagonal_stands_with_its_own_errors(rng):
    """Six paths have 21 pairs; differences are relative to the diagonal of the samples."""
    sampled, theory = (np.diag(rng.uniform(1.0, 3.0, 6)) for _ in range(2))
    mcse = rng.uniform(0.01, 0.02, (6, 6))
    given = {"order_parameter": Estimate(sampled, mcse)}, {"leading": {"order_parameter": theory}}
    rows = elements_table(comparison_of(*given, names=tuple("abcdef")), "order_parameter").rows
    assert [row[0] for row in rows] == list("abcdef")
    for at, (_, leading, exact, gap) in enumerate(rows):
        assert leading.value == theory[at, at]
        assert (exact.value, exact.error) == (sampled[at, at], mcse[at, at])
        assert gap.value == pytest.approx(1.0 - theory[at, at] / sampled[at, at], rel=1e-12)


@pytest.mark.parametrize(("paths", "counted"), [(2, []), (6, [("6", "21")]), (16, [("15", "136")])])
def test_printed_elements_are_counted_where_some_are_left_out(paths, counted, rng):
    overlap = np.diag(rng.uniform(1.0, 3.0, paths))
    names = tuple("abcdefghijklmnop"[:paths])
    given = {"order_parameter": Estimate(overlap, np.full_like(overlap, 0.01))}
    comparison = comparison_of(given, {"leading": {"order_parameter": 1.1 * overlap}}, names)
    axes = ("path", "path_")
    theory = theory_of({"leading": {"order_parameter": (axes, 1.1 * overlap)}})
    text = comparison_text(held(theory, comparison=comparison))
    assert re.findall(r"(\d+) of (\d+) elements", text) == counted
    assert sum(line.split()[:1] == [name] for line in text.splitlines() for name in names) == (
        3 if paths == 2 else min(paths, 15)
    )


HAMILTONIAN = {
    "bfmi": [0.9, 0.4, 0.7], "divergences": 6, "leapfrog_steps_per_draw": 12.5,
    "saturated_share": 0.03,
}  # fmt: skip
TEMPERED = {
    "temperatures": [7, 9, 8], "lowest_acceptance": 0.4, "acceptance": 0.6,
    "ancestors": [30, 20, 40], "log_evidence_of_repetitions": [-3.5, -4.5, -2.5],
    "log_evidence_prior": -3.25, "log_evidence_prior_error": 0.5, "starts_apart": 1.5,
    "starts_apart_limit": 4.0, "weights_of_modes": [0.75, 0.25],
}  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        # The worst chain; divergences of all draws of all chains.
        (HAMILTONIAN, [(0.4, ""), (6, ""), (6 / 600, "%"), (12.5, ""), (0.03, "%")]),
        # The longest ladder, the fewest ancestors, and both ends of the evidence.
        (
            TEMPERED,
            [(9, ""), (0.4, "%"), (0.6, "%"), (20, ""), (-4.5, ""), (-2.5, ""), (-3.25, "", 0.5),
             (1.5, ""), (0.75, "%"), (0.25, "%")],
        ),
    ],
    ids=["chains", "repetitions"],
)  # fmt: skip
def test_the_course_of_a_sampler_is_told_by_its_worst_numbers(numbers, told):
    rows = sampler_table(Diagnostics("pass", (), (), {}, 3, 200, numbers), {"seconds": 8.5}).rows
    expected = [(3, ""), (200, ""), *told, (8.5, "")]
    for row, (value, unit, *errors) in zip(rows, expected, strict=True):
        assert_shows(str(row[1]), value, errors, unit, str(row[0]))


def test_numbers_of_learned_heads_have_their_own_errors_and_priors():
    names = ("value", "error", "prior", "prior_deviation", "r_hat")
    numbers = [[1.5, 0.25, 1.25, 0.5, 1.001], [0.75, 0.125, 0.5, 0.0625, 1.002]]
    rows = [dict(zip(names, of, strict=True)) for of in numbers]
    table = pd.DataFrame(rows).assign(layer=1, head=[0, 2], name="learned", quantity="entropy")

    class Heads(SampledHeads):
        kind_of_errors = ""

        def to_dataframe(self) -> pd.DataFrame:
            return table

    for (_, exact, *others), of in zip(
        heads_table(Heads(xr.DataTree())).rows, numbers, strict=True
    ):
        assert [exact.value, exact.error, *(one.value for one in others)] == of


@pytest.mark.parametrize("paths", [5, 6, 17])
def test_matched_paths_stand_with_their_own_errors(paths, rng):
    """Fifteen pairs at most, else the diagonal, of which fifteen elements are counted."""
    value, mcse = rng.uniform(0.1, 1.0, (2, paths, paths))

    class Heads(SampledHeads):
        path_names = tuple(f"p{path}" for path in range(paths))
        kind_of_errors = ""
        order_parameter = Estimate(value, mcse)

    pairs = list(combinations_with_replacement(range(paths), 2))
    if paths > 5:
        pairs = [(i, i) for i in range(min(paths, 15))]
    table = matched_paths_table(Heads(xr.DataTree()))
    for (name, exact), (i, j) in zip(table.rows, pairs, strict=True):
        assert set(re.findall(r"p\d+", name)) == {f"p{i}", f"p{j}"}
        assert (exact.value, exact.error) == (value[i, j], mcse[i, j])
    assert re.findall(r"\d+", table.caption) == ([f"{len(pairs)}", f"{paths}"] if paths > 5 else [])


def test_a_quantity_is_within_limits_by_all_of_its_numbers():
    """R-hat of at most 1.01, and 400 effective draws of the bulk and of the tails."""
    sound = 1.01, 400.0, 400.0
    missed = [(1.02, 4e3, 4e3), (1.0, 399.0, 4e3), (1.0, 4e3, 399.0), (np.nan, 4e3, 4e3)]
    quantities = {
        f"quantity {place}": QuantityDiagnostics(*numbers)
        for place, numbers in enumerate((sound, *missed))
    }
    rows = diagnostics_table(Diagnostics("fail", (), (), quantities, 4, 1000, {})).rows
    assert [row[-1] == rows[0][-1] for row in rows] == [True, False, False, False, False]


def test_no_number_is_cut_off_where_names_and_texts_are_long():
    """Names make room, down to their least width; sentences break beside their numbers."""
    columns = "point", "relative error", "accuracy, leading order", "exact posterior"
    row = "widths=[8, 6, 4], temperature=0.1", "not trusted", (0.583, 0.02), (0.6333, 0.00213)
    for width in range(65, 120):
        text = Table("Points", columns, [row]).text(width)
        assert max(map(len, text.splitlines())) <= width
        assert "not trusted" in text
        assert re.search(r"0\.583 ± 0\.020 +0\.6333 ± 0\.0021$", text, re.MULTILINE), text
        sentence = "U₁ off by 3.59 ± 0.29 %; next order: no difference left above 1.1 % at N = 10."
        lines = wrapped(sentence, width)
        assert max(map(len, lines.splitlines())) <= width
        assert " ".join(lines.split()) == sentence
        assert "3.59 ± 0.29 %" in lines


@pytest.mark.parametrize("width", [40, 60, 120])
def test_columns_without_room_are_left_out_and_are_on_the_page(width):
    columns = "element", "leading", "exact posterior", Column("apart", unit=" %", dropped=1)
    table = Table(
        "Order parameter", columns, [[LONG, 1.23456, (1.2, 0.0345), 3.21], ["<b>", 0.5, None, None]]
    )
    lines = table.text(width, elsewhere="report.html").splitlines()
    assert max(map(len, lines)) <= width
    assert any("hidden" in line for line in lines) == (width < 60)
    page = table._repr_html_()
    assert '<data value="1.23456">' in page
    assert "&lt;b&gt;" in page


def test_columns_and_rows_that_are_hidden_are_counted():
    names = [f"column{place}" for place in range(8)]
    columns = ["name", *(Column(name, dropped=place + 1) for place, name in enumerate(names))]
    rows = [[f"row{row}", *np.full(8, 1.25)] for row in range(7)]
    text = Table("", columns, rows).text(60, most=4)
    hidden = [sum(name not in text for name in of) for of in (names, [row[0] for row in rows])]
    *_, last = text.splitlines()
    assert list(map(int, re.findall(r"\d+", last))) == hidden
    assert hidden[0] > 0
    assert hidden[1] == 3
    shown = [name for name in names if name in text]
    assert shown == names[: len(shown)], "the least important go first"


def test_each_score_of_a_chosen_temperature_stands_in_its_own_column():
    """Accuracies in per cent, their difference in points, each with its own error."""
    numbers = {
        "accuracy": (0.75, 0.125), "log_predictive_density": (-1.5, 0.25),
        "ahead_accuracy": (0.0625, 0.03125), "infinite_tuned_accuracy": (0.5, 0.0625),
    }  # fmt: skip
    row = {"settings": {"network.widths": 10}, "temperature": 0.3, "next_best": 0.6}
    row |= {name: value for name, (value, _) in numbers.items()}
    row |= {f"{name}_error": error for name, (_, error) in numbers.items()}
    ((_, *cells),) = selection_table({"": row | {"infinite_tuned_temperature": 0.2}}).rows
    score, density, ahead, infinite = numbers.values()
    expected = [
        (0.3, None, ""), (*score, "%"), (*density, ""), (0.6, None, ""),
        (100.0 * ahead[0], 100.0 * ahead[1], "points"), (0.2, None, ""), (*infinite, "%"),
    ]  # fmt: skip
    for cell, (value, error, unit) in zip(cells, expected, strict=True):
        assert_shows(str(cell), value, [] if error is None else [error], unit)
