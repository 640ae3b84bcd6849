"""Theories against draws: every quantity by every predictor, in memory and on disk."""

import json
import re

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.comparison import ComparisonTree, compare
from sampler.analysis.difference import difference_of, statement
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.estimates import OF_CHAINS
from sampler.analysis.predictors import LEADING, SAMPLED, along_predictors
from sampler.analysis.quantities import (
    QUANTITIES,
    Quantity,
    off_diagonal_cosine,
)
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.mcmc.diagnostics import Diagnostics
from sampler.presentation.views import numbers_table, statements_table
from sampler.storage.result_files import read_comparison, write_comparison
from tests.held import held
from tests.shown import numbers_in, read, rows_of
from tests.small import (
    TEST,
    collect,
    healthy_statistics,
    random_observables,
    signs,
    small_problem,
    within,
)

PASSED = Diagnostics("pass", (), (), {}, 2, 40, {})
FAILED = Diagnostics("fail", ("why",), (), {}, 2, 40, {})
COST = {"seconds": 1.0}
SHIFT = {"leading": 0.5, "next": 0.25, "infinite": 2.0}


def draws_of(rng, outputs=1, **settings) -> TheoryAndDraws:
    """Draws, moments and labels as they come back from `draws.nc`, without a theory."""
    problem = small_problem(rng, outputs=outputs, labels_test=signs(rng, outputs))
    collected = collect(random_observables(problem, rng), healthy_statistics(rng), **settings)
    return TheoryAndDraws(None, draws_tree(problem, collected, {"algorithm": "nuts"}))


def theory_beside(given: TheoryAndDraws) -> xr.Dataset:
    """Predictors that are off by their `SHIFT` in every quantity; one of them has no U_1."""
    draws, tree = given.draws.judged, given.tree["posterior"]
    outputs = ["output"] if draws["predictor"].ndim > 3 else []
    predictor = draws["predictor"]
    exact = {n: (tree[n].dims[2:], draws[n].mean((0, 1))) for n in draws if n != "predictor"}
    axes = ("test_example", *outputs)
    moments = {
        "predictor_mean": (axes, predictor.mean((0, 1))),
        "predictor_variance": (axes, predictor.var((0, 1), ddof=1)),
    }
    predictions = {}
    for name, shift in SHIFT.items():
        known = moments if name == "infinite" else exact | moments
        predictions[name] = {n: (a, values + shift) for n, (a, values) in known.items()}
        predictions[name]["temperature"] = ((), 0.2)
    table = along_predictors(predictions)
    return table.assign_coords(path=tree["path"].values, path_=tree["path_"].values)


def compared(given: TheoryAndDraws, own=None, diagnostics=PASSED) -> ComparisonTree:
    theory = theory_beside(given)
    return compare(TheoryAndDraws(theory, given.tree, own or {}), diagnostics, COST)


@pytest.mark.parametrize("outputs", [1, 2])
def test_every_element_stands_by_every_predictor_with_its_own_error(outputs, rng):
    given = draws_of(rng, outputs)
    draws, comparison = given.draws.judged, compared(given)
    names = {"order_parameter", "order_parameter_layer_2", "readout_order_parameter"}
    expected = {name: OF_CHAINS.mean(draws[name]) for name in names}
    expected["predictor_mean"] = OF_CHAINS.mean(draws["predictor"])
    expected["predictor_variance"] = OF_CHAINS.variance(draws["predictor"])
    for name, estimate in expected.items():
        table = comparison.elements(name)
        np.testing.assert_array_equal(table["sampled"], estimate.value)
        np.testing.assert_array_equal(table["error"], estimate.mcse)
        for predictor in map(str, table["predictor"].values):
            gap = table["predicted"].sel(predictor=predictor) - table["sampled"]
            np.testing.assert_allclose(gap, SHIFT[predictor], rtol=1e-9)
    assert "infinite" not in comparison.elements("order_parameter")["predictor"].values


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_accuracy_is_that_of_the_mean_of_every_predictor(outputs, rng):
    given = draws_of(rng, outputs)
    comparison, labels = compared(given), given.draws.labels_test.values
    mean = given.draws["predictor"].values.mean(axis=(0, 1)).reshape(labels.shape)
    for predictor, shift in {SAMPLED: 0.0, **SHIFT}.items():
        one = mean + shift
        right = np.sign(one) == labels if outputs == 1 else one.argmax(1) == labels.argmax(1)
        assert comparison.rows["accuracy", predictor]["value"] == right.mean()


def test_differences_as_a_whole_are_those_of_the_elements(rng):
    given = draws_of(rng)
    comparison, sampled = compared(given), OF_CHAINS.mean(given.draws["order_parameter"])
    expected = difference_of(sampled.value.values + SHIFT[LEADING], sampled, symmetric=True)
    row = comparison.rows["order_parameter", LEADING]
    assert {name: row[name] for name in expected} == expected
    failed = compared(given, diagnostics=FAILED).rows["order_parameter", LEADING]
    assert failed["state"] == "not trusted"
    assert failed["difference"] == row["difference"]


def test_a_comparison_is_read_back_by_xarray_alone(rng, tmp_path):
    """What is not defined is NaN in one file and null in the other."""
    given = draws_of(rng)
    mine = {"order_parameter": np.full((4, 4), 0.5)}
    comparison = compared(given, own={"mine": mine})
    write_comparison(tmp_path, comparison.tree, comparison.to_json())
    with xr.open_datatree(tmp_path / "comparison.nc", engine="h5netcdf") as tree:
        sampled = tree["elements/order_parameter"]["sampled"].values
        np.testing.assert_array_equal(sampled, given.draws["order_parameter"].values.mean((0, 1)))
        xr.testing.assert_identical(tree["summary"].to_dataset().load(), comparison.summary)
    again = ComparisonTree(read_comparison(tmp_path))
    assert again.table().equals(comparison.table())
    assert again.verdict == comparison.verdict
    assert again.user_verdicts == comparison.user_verdicts

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "comparison.json").read_text()
    stored = json.loads(text, parse_constant=refuse)
    assert len(text) < 30_000
    cell = stored["summary"]["order_parameter"]["mine"]
    assert cell["difference"] == comparison.rows["order_parameter", "mine"]["difference"]
    assert stored["summary"]["accuracy"]["sampled"]["low"] is None


def test_the_tidy_frame_has_a_row_for_each_quantity_and_predictor(rng):
    """Nothing is lost on the way: the frame has every cell of the summary, and what it is about."""
    comparison = compared(draws_of(rng))
    table, summary = comparison.table(), comparison.summary
    assert table.index.names == ["quantity", "predictor"]
    assert set(table.columns) == set(map(str, summary.data_vars))
    for (quantity, predictor), row in table.iterrows():
        for name, column in summary.items():
            at = {"quantity": quantity, "predictor": predictor}
            expected = column.sel({axis: at[axis] for axis in column.dims}).item()
            assert row[name] == expected or (row[name] != row[name] and expected != expected)
    assert len(table) == len(comparison.quantities) * len(comparison.predictors)


@pytest.mark.parametrize("unit", ["%", "nats"])
def test_a_statement_has_the_numbers_of_its_row(unit):
    """A size with its error; else a bound; elements that are too far off have the largest pull."""
    numbers = {"difference": 0.03512, "difference_error": 0.00304, "below": 0.04217}
    row = numbers | {"unit": unit, "largest_mcse": 7.31, "compared": 10, "degrees": 39}
    for short in (False, True):
        told = {
            state: numbers_in(statement(row | {"state": state}, short))
            for state in ("resolved", "agrees", "differs", "not enough draws", "not trusted", "")
        }
        assert told["resolved"][0].shows(0.03512, [0.00304], unit)
        for state in ("agrees", "differs"):
            assert told[state][0].below
            assert told[state][0].shows(0.04217, (), unit)
        assert any(one.shows(7.31) for one in told["differs"])
        assert not any(told[state] for state in ("not enough draws", "not trusted", ""))
    assert not statement(row | {"state": ""})
    assert statement(row | {"state": "not trusted"})


def test_every_kth_draw_of_a_predictor_gives_its_own_mean_with_its_error(rng):
    """A third of the draws fit, a quarter is kept; other quantities are as before."""
    state = rng.bit_generator.state
    given = draws_of(rng)
    draws, expected = given.draws.judged, compared(given)
    rng.bit_generator.state = state
    limit = draws["predictor"].nbytes // 2 // 3
    reduced = draws_of(rng, limits=within(limit))
    assert reduced.draws["predictor"].sizes["draw"] == 40 // 4
    theory = theory_beside(given)
    received = compare(TheoryAndDraws(theory, reduced.tree), PASSED, COST)
    assert received.quantities == expected.quantities
    kept = OF_CHAINS.mean(draws["predictor"][:, ::4])
    table = received.elements("predictor_mean")
    np.testing.assert_allclose(table["sampled"], kept.value, rtol=1e-12)
    np.testing.assert_allclose(table["error"], kept.mcse, rtol=1e-12)
    xr.testing.assert_equal(
        received.elements("order_parameter"), expected.elements("order_parameter")
    )


def test_the_variance_of_the_predictor_is_that_within_and_between_draws(rng):
    """E[v] + Var[m], and its error that of the mean of both together."""
    shape = (2, 40, 5)
    mean, variance = 2.0 * rng.standard_normal(shape), rng.uniform(0.1, 1.0, shape)
    found = OF_CHAINS.predictor({"predictor_mean": mean, "predictor_variance": variance})
    np.testing.assert_allclose(found.mean.value, mean.mean(axis=(0, 1)), rtol=1e-13)
    total = variance.mean(axis=(0, 1)) + mean.var(axis=(0, 1), ddof=1)
    np.testing.assert_allclose(found.variance.value, total, rtol=1e-13)
    each = variance + (mean - mean.mean(axis=(0, 1))) ** 2 * 80 / 79
    np.testing.assert_allclose(found.variance.mcse, OF_CHAINS.mean(each).mcse, rtol=1e-12)


def test_cosines_are_those_of_the_elements_off_the_diagonal(rng):
    one, other = rng.standard_normal((2, 3, 3))
    pairs = [(one[i, j], other[i, j]) for i in range(3) for j in range(3) if i != j]
    product = sum(a * b for a, b in pairs)
    sizes = [np.sqrt(sum(pair[k] ** 2 for pair in pairs)) for k in (0, 1)]
    assert off_diagonal_cosine(one, other) == pytest.approx(product / np.prod(sizes), rel=1e-13)


def test_a_predictor_without_any_number_has_no_difference(rng):
    given = draws_of(rng)
    theory = theory_beside(given)
    theory = theory.where(theory["predictor"] != LEADING)
    comparison = compare(TheoryAndDraws(theory, given.tree), PASSED, COST)
    assert not any(comparison.rows[name, LEADING]["state"] for name in comparison.quantities)
    assert np.isnan(comparison.rows["accuracy", LEADING]["value"])
    assert comparison.rows["order_parameter", "next"]["state"]


def test_draws_that_are_not_finite_have_no_scores(rng):
    given = draws_of(rng)
    tree = given.tree.copy(deep=True)
    tree["predictions"]["predictor"].values[1, 3] = np.nan
    comparison = compare(TheoryAndDraws(theory_beside(given), tree), FAILED, COST)
    assert np.isnan(comparison.rows["log_predictive_density", SAMPLED]["value"])
    assert np.isfinite(comparison.rows["log_predictive_density", LEADING]["value"])


@pytest.fixture
def registered():
    """A quantity of the user's, known in this test alone: the trace of U_1."""

    def sampled(given):
        return OF_CHAINS.mean(np.trace(given.draws["order_parameter"].values, axis1=2, axis2=3))

    def predicted(of, _):
        return np.trace(of["order_parameter"]) if "order_parameter" in of else None

    QUANTITIES.register("trace", Quantity("trace of U₁", predicted, sampled))
    yield
    del QUANTITIES._entries["trace"]


@pytest.mark.usefixtures("registered")
def test_a_quantity_is_one_row_and_a_predictor_one_label(rng):
    given = draws_of(rng)
    matrix = np.diag(np.arange(1.0, 5.0))
    comparison = compared(given, own={"mine": {"order_parameter": matrix}})
    exact = np.trace(given.draws["order_parameter"].values.mean((0, 1)))
    assert comparison.rows["trace", SAMPLED]["value"] == pytest.approx(exact, rel=1e-12)
    assert comparison.rows["trace", LEADING]["value"] == pytest.approx(exact + 4 * SHIFT[LEADING])
    assert comparison.rows["trace", "mine"]["value"] == 10.0
    error = comparison.rows["trace", "mine"]["difference_error"]
    off = comparison.rows["trace", "mine"]["difference"]
    assert off == pytest.approx(abs(exact - 10.0) / exact, abs=3 * error)
    assert len(given.draws.labels_test) == TEST
    # The same number in the frame, in JSON, in the terminal, and behind a rounded one on the page.
    row = comparison.table().loc["trace", LEADING]
    assert row["value"] == comparison.rows["trace", LEADING]["value"]
    assert comparison.to_json()["summary"]["trace"][LEADING]["value"] == row["value"]
    table = numbers_table(held(comparison=comparison))
    shown = read(rows_of(table.text(300))["trace of U₁"][0])
    assert shown.shows(row["value"])
    assert row["value"] in [
        float(one) for one in re.findall(r'value="([^"]*)"', str(table.__html__()))
    ]
    assert "mine" in table.text(300)
    statements = rows_of(statements_table(comparison).text(300))["trace of U₁"]
    off = (row["difference"], [row["difference_error"]], "%")
    assert row["state"] != "resolved" or read(statements[0]).shows(*off)
