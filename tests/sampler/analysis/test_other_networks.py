"""Infinite width is another network: it is compared by scores, and no theory is a rival model."""

import re
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.comparison import compare
from sampler.analysis.model_comparison import compare_models_of
from sampler.analysis.predictors import along_predictors
from sampler.analysis.results import RunResults
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.presentation.several_runs import models_table
from sampler.presentation.views import other_networks_table, statements_table
from tests.sampler.analysis.test_comparison import COST, FAILED, PASSED, draws_of, theory_beside
from tests.shown import assert_shows, rows_of
from tests.small import TEST, TRAIN

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


def held(given: TheoryAndDraws, diagnostics=PASSED) -> RunResults:
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
    comparison = held(given).comparison
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
    comparison = held(given, FAILED).comparison
    assert comparison.table()["ahead"].isna().all()
    assert not other_networks_table(comparison)


def test_no_verdict_on_a_theory_where_infinite_width_stands_alone(rng):
    comparison = held(with_leave_one_out(draws_of(rng), rng, OTHERS)).comparison
    assert comparison.verdict.tone == "neutral"
    assert not re.search(r"\d", comparison.verdict.headline)
    assert not statements_table(comparison)


# --- models of several runs


def test_the_leading_order_is_no_rival_of_the_posterior_that_it_approximates(given):
    """One network and two of infinite width: three models, whatever the theory predicts."""
    run = held(given)
    found = compare_models_of([("one", run)])
    assert len(found) == 3
    assert not any(run.name_of("leading") in name for name in found.index)
    assert sum(run.name_of("sampled") in name for name in found.index) == 1
    assert found["weight"].sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("why", ["not sampled", "diagnostics", "k"])
def test_without_sound_samples_the_leading_order_stands_in_by_its_name(why, given, rng):
    if why == "k":
        given = with_leave_one_out(draws_of(rng), rng, k=0.9)
    run = held(given, FAILED if why == "diagnostics" else PASSED)
    if why == "not sampled":
        run = RunResults.held(None, theory=given.theory)
    found = compare_models_of([("one", run)])
    (name,) = (name for name in found.index if run.name_of("leading") in name)
    assert name.endswith(")")  # says what it stands in for
    assert name != f"one, {run.name_of('leading')}"


def test_test_scores_of_models_are_apart_by_the_paired_error(given):
    found = compare_models_of([("one", held(given))])
    who = {
        name: next(p for p in ("infinite_tuned", "infinite", "sampled")
                   if held(given).name_of(p) in name)
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
    other = held(replace(given, tree=tree))
    found = compare_models_of([("one", held(given)), ("other", other)])
    of_other = [name for name in found.index if name.startswith("other")]
    best_is_other = found.index[0].startswith("other")
    for name in found.index:
        paired = (name in of_other) == best_is_other
        assert np.isfinite(found.loc[name, "accuracy_diff"]) == paired


def test_the_table_of_models_shows_the_compared_numbers(given, rng, monkeypatch):
    """Every cell of the printed table, with its error and unit."""
    monkeypatch.setenv("COLUMNS", "300")
    other = held(with_leave_one_out(given, rng))
    models = compare_models_of([("one", held(given)), ("other", other)])
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
