"""Theories against draws: every quantity by every predictor, in memory and on disk."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.calibration import calibration_error, probability_of_positive
from sampler.analysis.comparison import ComparisonTree, compare
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.estimates import OF_CHAINS
from sampler.analysis.model_comparison import compare_models_of
from sampler.analysis.predictors import LEADING, SAMPLED, along_predictors
from sampler.analysis.quantities import (
    QUANTITIES,
    Quantity,
)
from sampler.analysis.results import RunResults
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.mcmc.diagnostics import Diagnostics
from sampler.presentation.several_runs import models_table
from sampler.presentation.views import numbers_table, other_networks_table, statements_table
from sampler.storage.result_files import read_comparison, write_comparison
from tests.held import held
from tests.small import (
    TEST,
    TRAIN,
    collect,
    healthy_statistics,
    random_observables,
    signs,
    small_problem,
    within,
)
from tests.told.shown import assert_shows, read, rows_of

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


# --- draws and tables of the theory meet by the names of their axes; a predictor is one label


OVERLAP = "order_parameter"


def test_predictions_for_other_paths_are_refused(rng):
    given = draws_of(rng)
    theory = theory_beside(given)[OVERLAP].assign_coords(path=list("abcd"))
    with pytest.raises(xr.AlignmentError):
        given.draws.mean(OVERLAP) - theory


# --- infinite width is another network: it is compared by scores, and no theory is a rival model


OTHERS = ("infinite", "infinite_tuned")
OFF = {"leading": 0.1, "next": 0.05, "infinite": 0.7, "infinite_tuned": 0.9}


def with_leave_one_out(given: TheoryAndDraws, rng, predictors=tuple(OFF), k: float = 0.1):
    """The same, with leave-one-out densities of the draws and of these predictors."""
    tree = given.tree.copy()
    columns = {
        "elpd": -1.0 + 0.1 * rng.standard_normal(TRAIN),
        "pareto_k": np.full(TRAIN, k),
        "mcse": np.full(TRAIN, 0.01),
    }
    about = {"draws": 80, "labels": "of these", "mcse_of_sum": 0.02}
    tree["leave_one_out"] = xr.Dataset({n: ("example", v) for n, v in columns.items()}, attrs=about)
    beside = theory_beside(given)
    predictions = {}
    for name in predictors:
        stored = "infinite" if name in OTHERS else name
        of = beside.sel(predictor=stored).drop_vars("predictor")
        shifted = {
            str(n): (values.dims, values.values + rng.normal(0.0, OFF[name], values.shape))
            for n, values in of.items()
            if n in ("order_parameter", "predictor_mean") and name not in OTHERS
        }
        if name in OTHERS:
            mean = of["predictor_mean"].values
            shifted = {"predictor_mean": (of["predictor_mean"].dims, -0.4 * mean + OFF[name])}
        shifted["predictor_variance"] = (
            of["predictor_variance"].dims, np.full(of["predictor_variance"].shape, OFF[name]),
        )  # fmt: skip
        shifted["temperature"] = ((), 0.2 if name != "infinite_tuned" else 0.6)
        shifted["elpd_by_example"] = (("example",), -1.2 + 0.1 * rng.standard_normal(TRAIN))
        shifted["elpd"] = ((), float(shifted["elpd_by_example"][1].sum()))
        predictions[name] = shifted
    theory = along_predictors(predictions)
    theory["elpd_by_example"].attrs["labels"] = "of these"
    paths = tree["posterior"]["path"].values
    if "order_parameter" in theory:
        theory = theory.assign_coords(path=paths, path_=paths)
    return TheoryAndDraws(theory, tree)


def run_of(given: TheoryAndDraws, diagnostics=PASSED) -> RunResults:
    comparison = compare(given, diagnostics, COST)
    return RunResults.held(None, theory=given.theory, draws=given.tree, comparison=comparison)


def moments_of(given: TheoryAndDraws, who: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the test labels, by a predictor of the table or from the draws."""
    if who in OFF:
        of = given.theory.sel(predictor=who)
        return of["predictor_mean"].values, of["predictor_variance"].values + float(of.temperature)
    drawn = given.draws["predictor"].values
    return drawn.mean((0, 1)), drawn.var((0, 1), ddof=1) + given.draws.temperature


def headers(table) -> list[str]:
    return [getattr(column, "header", column) for column in table.columns]


def scores_by_example(given: TheoryAndDraws, who: str) -> dict[str, np.ndarray]:
    """Scores of each test example by their definitions."""
    mean, variance = moments_of(given, who)
    labels = given.draws.labels_test.values[:, 0]
    right = [float(np.sign(m) == y) for m, y in zip(mean, labels, strict=True)]
    density = [
        -0.5 * np.log(2 * np.pi * v) - (y - m) ** 2 / (2 * v)
        for m, v, y in zip(mean, variance, labels, strict=True)
    ]
    return {"accuracy": np.array(right), "log_predictive_density": np.array(density)}


@pytest.fixture
def given(rng) -> TheoryAndDraws:
    return with_leave_one_out(draws_of(rng), rng)


def test_nothing_is_said_of_how_far_infinite_width_is_off(given):
    comparison = run_of(given).comparison
    for quantity in ("order_parameter", "predictor_mean"):
        assert comparison.rows[quantity, "leading"]["state"]
    table = comparison.table()
    for other in OTHERS:
        of = table.xs(other, level="predictor")
        assert of["difference"].isna().all()
        assert not of["state"].any()
    names = {comparison.names[other] for other in OTHERS}
    assert not names & set(headers(statements_table(comparison)))


def test_draws_that_fail_are_ahead_of_nothing(given):
    comparison = run_of(given, FAILED).comparison
    assert comparison.table()["ahead"].isna().all()
    assert not other_networks_table(comparison)
    row = comparison.rows["order_parameter", "leading"]
    assert row["state"] == "not trusted"
    assert (
        row["difference"]
        == run_of(given).comparison.rows["order_parameter", "leading"]["difference"]
    )


def test_no_verdict_on_a_theory_where_infinite_width_stands_alone(rng):
    comparison = run_of(with_leave_one_out(draws_of(rng), rng, OTHERS)).comparison
    assert comparison.verdict.tone == "neutral"
    assert not re.search(r"\d", comparison.verdict.headline)
    assert not statements_table(comparison)


# --- models of several runs


def test_the_leading_order_is_no_rival_of_the_posterior_that_it_approximates(given):
    """One network and two of infinite width: three models, whatever the theory predicts."""
    run = run_of(given)
    found = compare_models_of([("one", run)])
    assert len(found) == 3
    assert not any(run.name_of("leading") in name for name in found.index)
    assert sum(run.name_of("sampled") in name for name in found.index) == 1
    assert found["weight"].sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("why", ["not sampled", "diagnostics", "k"])
def test_without_sound_samples_the_leading_order_stands_in_by_its_name(why, given, rng):
    if why == "k":
        given = with_leave_one_out(draws_of(rng), rng, k=0.9)
    run = run_of(given, FAILED if why == "diagnostics" else PASSED)
    if why == "not sampled":
        run = RunResults.held(None, theory=given.theory)
    found = compare_models_of([("one", run)])
    (name,) = (name for name in found.index if run.name_of("leading") in name)
    assert name.endswith(")")  # says what it stands in for
    assert name != f"one, {run.name_of('leading')}"


def test_test_scores_of_models_are_apart_by_the_paired_error(given):
    found = compare_models_of([("one", run_of(given))])
    who = {
        name: next(p for p in ("infinite_tuned", "infinite", "sampled")
                   if run_of(given).name_of(p) in name)
        for name in found.index
    }  # fmt: skip
    scores = {name: scores_by_example(given, predictor) for name, predictor in who.items()}
    best = found.index[0]
    for name, row in found.iterrows():
        for score in ("accuracy", "log_predictive_density"):
            assert row[score] == pytest.approx(np.mean(scores[name][score]), rel=1e-9)
            apart = scores[best][score] - scores[name][score]
            assert row[f"{score}_diff"] == pytest.approx(np.mean(apart), rel=1e-9, abs=1e-15)
            expected = np.std(apart, ddof=1) / np.sqrt(TEST)
            assert row[f"{score}_dse"] == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert best in models_table(found).text()


def test_scores_on_other_test_labels_are_not_paired(given):
    tree = given.tree.copy()
    labels = tree["predictions_constant_data"].to_dataset()
    tree["predictions_constant_data"] = labels.assign(labels_test=-labels["labels_test"])
    other = run_of(replace(given, tree=tree))
    found = compare_models_of([("one", run_of(given)), ("other", other)])
    of_other = [name for name in found.index if name.startswith("other")]
    best_is_other = found.index[0].startswith("other")
    for name in found.index:
        paired = (name in of_other) == best_is_other
        assert np.isfinite(found.loc[name, "accuracy_diff"]) == paired


def test_the_table_of_models_shows_the_compared_numbers(given, rng, monkeypatch):
    """Every cell of the printed table, with its error and unit."""
    monkeypatch.setenv("COLUMNS", "300")
    other = run_of(with_leave_one_out(given, rng))
    models = compare_models_of([("one", run_of(given)), ("other", other)])
    assert len(models) >= 4
    rows = rows_of(models_table(models).text())
    points = {"accuracy": "%", "accuracy_diff": "points"}
    pairs = {
        "elpd": "se", "elpd_diff": "dse", "weight": None, "unreliable": None,
        "log_evidence": "log_evidence_error", "accuracy": "accuracy_error",
        "accuracy_diff": "accuracy_dse", "log_predictive_density": "log_predictive_density_error",
        "log_predictive_density_diff": "log_predictive_density_dse",
    }  # fmt: skip
    # A column without any number is left out.
    pairs = {number: error for number, error in pairs.items() if models[number].notna().any()}
    for name, model in models.astype(float).iterrows():
        cells = rows[str(name)]
        assert len(cells) == len(pairs)
        for text, (number, error) in zip(cells, pairs.items(), strict=True):
            errors = [] if error is None or np.isnan(model[number]) else [model[error]]
            if number == "elpd_diff" and model["dse"] == 0.0:
                errors = []
            scale = 100.0 if number == "accuracy_diff" else 1.0
            assert_shows(
                text, scale * model[number], [scale * e for e in errors],
                points.get(number, ""), f"{name}, {number}",
            )  # fmt: skip


# --- whatever averages over repetitions weighs them by their evidence, wherever it is shown


REPETITIONS, PARTICLES = 5, 48
PASSED_WEIGHTED_MEANS = Diagnostics("pass", (), (), {}, REPETITIONS, PARTICLES, {})


@pytest.fixture(params=[{}, {"limits": within(8 * 4 * 5 * TEST)}])
def run(rng, request) -> RunResults:
    """Repetitions whose evidence goes with their predictors and temperatures; predictors thinned.

    The evidences differ by up to e², so that equal weights would give other numbers.
    """
    logs = np.linspace(-1.0, 1.0, REPETITIONS) - 40.0
    problem = small_problem(rng, labels_test=rng.choice([-1.0, 1.0], (TEST, 1)))
    shape = REPETITIONS, PARTICLES
    shift = (logs + 40.0)[:, None]
    rows = problem.architecture.order_parameter_sizes[0]
    factor = rng.standard_normal((*shape, rows, rows + 2)) + shift[..., None, None]
    observables = {
        "order_parameter": factor @ np.swapaxes(factor, -1, -2),
        "predictor_mean": 0.5 * rng.standard_normal((*shape, TEST, 1)) + shift[..., None, None],
        "predictor_variance": rng.uniform(0.1, 0.3, (*shape, TEST, 1)),
        "temperature": np.exp(0.3 * rng.standard_normal(shape) + shift),
    }
    ones = np.ones(shape)
    of_repetitions = {
        "log_evidence": logs[:, None] * ones,
        "log_evidence_prior": np.nan * ones,
        "temperatures": 5.0 * ones,
        "lowest_acceptance": 0.8 * ones,
        "lost": 0 * ones,
        "ancestor": np.arange(PARTICLES) * ones,
        "mode": 0.0 * ones,
    }
    collected = collect(
        observables, healthy_statistics(rng, shape) | of_repetitions, **request.param
    )
    tree = draws_tree(problem, collected, {"algorithm": "tempered"})
    comparison = compare(TheoryAndDraws(None, tree), PASSED_WEIGHTED_MEANS, {"seconds": 1.0})
    return RunResults.held(None, draws=tree, comparison=comparison)


def weights_of(run: RunResults) -> np.ndarray:
    logs = run.draws["sample_stats"]["log_evidence"].values[:, 0]
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def test_the_calibration_error_is_that_of_weighted_moments(run):
    probability = probability_of_positive(*run.label_moments(SAMPLED))
    shown = calibration_error(probability, run.labels_test > 0)
    stored = run.comparison.rows["expected_calibration_error", SAMPLED]["value"]
    assert float(shown) == pytest.approx(stored, rel=1e-10)
    # By its definition, from the draws whose predictors were kept.
    table, weights = run.draws["predictions"].to_dataset(), weights_of(run)
    temperature = run.draws["posterior"]["temperature"].sel(draw=table["draw"]).values
    mean, variance = table["predictor_mean"].values, table["predictor_variance"].values
    whole = np.einsum("r,rdx->x", weights, mean) / mean.shape[1]
    count = mean.shape[0] * mean.shape[1]
    within = variance + temperature[..., None] + (mean - whole) ** 2 * count / (count - 1)
    total = np.einsum("r,rdx->x", weights, within) / mean.shape[1]
    expected = 1.0 / (1.0 + np.exp(-2.0 * whole / total))
    np.testing.assert_allclose(probability[:, 0], expected, rtol=1e-10)
