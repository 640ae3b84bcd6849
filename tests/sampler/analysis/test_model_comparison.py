"""Models of several runs by leave-one-out: which there are, their differences, and their table."""

import numpy as np
import pytest

from sampler.analysis.model_comparison import (
    Model,
    best_first,
    compare_models_of,
    names_of_runs,
)
from sampler.analysis.results import RunResults
from sampler.errors import InputError
from sampler.jobs.stages import compare_tables
from sampler.presentation.several_runs import models_table
from tests.told import expected
from tests.told.run import TEST, Told, draws_of, made, theory_of
from tests.told.shown import assert_shows, rows_of

SCORES = ("accuracy", "log_predictive_density")


def run_of(told: Told, sampled: bool = True, labels: str = "of these labels") -> RunResults:
    """The results of plain arrays in memory, or their theory alone."""
    theory = theory_of(told)
    theory["elpd_by_example"].attrs["labels"] = labels
    if not sampled:
        return RunResults.held(None, theory=theory)
    draws = draws_of(told)
    comparison = compare_tables(theory, draws, {})
    return RunResults.held(None, theory=theory, draws=draws, comparison=comparison)


@pytest.fixture(scope="module")
def told() -> Told:
    return made("repetitions", temperature_sampled=True)


@pytest.fixture(scope="module")
def run(told) -> RunResults:
    return run_of(told)


def test_the_leading_order_is_no_rival_of_the_posterior_that_it_approximates(run):
    """One network and two of infinite width: three models, whatever the theory predicts."""
    found = compare_models_of([("one", run)])
    assert len(found) == 3
    assert not any(run.name_of("leading") in name for name in found.index)
    assert sum(run.name_of("sampled") in name for name in found.index) == 1
    assert found["weight"].sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "sound", "sampled"),
    [
        ("repetitions", True, False),
        ("repetitions", False, True),
        ("chains", True, True),  # whose k is too large
    ],
)
def test_without_sound_samples_the_leading_order_stands_in_by_its_name(kind, sound, sampled):
    told = made(kind, sound=sound)
    run = run_of(told, sampled)
    found = compare_models_of([("one", run)])
    if sampled:  # last, and not compared with the others
        last = found.iloc[-1]
        assert found.index[-1] == f"one, {run.name_of('sampled')}"
        assert last[["rank", "elpd_diff", "weight", "accuracy_diff"]].isna().all()
        assert last["elpd"] == pytest.approx(told.left_out["elpd"].sum())
        assert last["unreliable"] == (3 if kind == "chains" else 0)
    (name,) = (name for name in found.index if run.name_of("leading") in name)
    assert name.endswith(")")  # says what it stands in for
    assert name != f"one, {run.name_of('leading')}"


def scores_of(told: Told, predictor: str) -> dict[str, np.ndarray]:
    """Scores of each test example by their definitions."""
    labels = told.labels["test"]
    if predictor == "sampled":
        mean = expected.mean_of(told.drawn["predictor_mean"], told.weights).value
        return expected.scores_by_example(mean, expected.label_variance(told), labels)
    of = told.predictions[predictor]
    noise = of["predictor_variance"] + of["temperature"]
    return expected.scores_by_example(of["predictor_mean"], noise, labels)


def test_test_scores_of_models_are_apart_by_the_paired_error(run, told):
    found = compare_models_of([("one", run)])
    names = {f"one, {run.name_of(p)}": p for p in ("sampled", "infinite", "infinite_tuned")}
    scores = {name: scores_of(told, names[name]) for name in found.index}
    best = scores[found.index[0]]
    for name, row in found.iterrows():
        evidence, error = told.evidence[:2]
        if names[name] != "sampled":
            evidence, error = told.predictions[names[name]]["log_evidence"], 0.0
        numbers = row[["log_evidence", "log_evidence_error"]].astype(float)
        np.testing.assert_allclose(numbers, [evidence, error], rtol=1e-9)
        for score in SCORES:
            assert row[score] == pytest.approx(np.mean(scores[name][score]), rel=1e-9)
            apart = best[score] - scores[name][score]
            assert row[f"{score}_diff"] == pytest.approx(np.mean(apart), rel=1e-9, abs=1e-15)
            error = np.std(apart, ddof=1) / np.sqrt(TEST)
            assert row[f"{score}_dse"] == pytest.approx(error, rel=1e-9, abs=1e-15)


def test_an_evidence_that_is_not_trusted_stands_beside_no_model():
    run = run_of(made("repetitions", evidence_trusted=False))
    found = compare_models_of([("one", run)])["log_evidence"].isna()
    assert found.index[found].tolist() == [f"one, {run.name_of('sampled')}"]


def test_runs_have_the_shortest_names_that_tell_them_apart(tmp_path):
    """The same directory has one name, however often it is named."""
    one, other, third = (tmp_path / name for name in ("a/run", "b/run", "b/other"))
    assert names_of_runs([one, third]) == ["run", "other"]
    assert names_of_runs([one, other, third]) == ["a/run", "b/run", "b/other"]
    assert names_of_runs([one, one]) == ["run", "run"]


def test_scores_on_other_test_labels_are_not_paired(run):
    draws = run.draws.copy()
    labels = draws["predictions_constant_data"].to_dataset()
    draws["predictions_constant_data"] = labels.assign(labels_test=-labels["labels_test"])
    other = RunResults.held(None, theory=run.theory, draws=draws, comparison=run.comparison)
    found = compare_models_of([("one", run), ("other", other)])
    of_other = np.array([name.startswith("other") for name in found.index])
    assert set(of_other) == {True, False}
    paired = of_other == of_other[0]
    np.testing.assert_array_equal(np.isfinite(found["accuracy_diff"]), paired)


def test_differences_of_models_are_paired(rng):
    base, run = rng.normal(-1.0, 0.5, 60), RunResults.held(None)
    models = [
        Model("worse", run, "infinite", base - 0.5 + 0.1 * rng.normal(size=60), "a"),
        Model("good", run, "sampled", base + 0.3 * rng.normal(size=60), "a", 0, draws=100),
        Model("as good", run, "infinite_tuned", base + 0.3 * rng.normal(size=60), "a"),
    ]
    found = best_first(models)
    elpd = {one.name: one.elpd for one in models}
    assert found.index[0] == max(elpd, key=lambda name: elpd[name].sum())
    assert found["elpd_diff"].iloc[0] == 0.0
    for name, row in found.iloc[1:].iterrows():
        difference = elpd[found.index[0]] - elpd[name]
        assert row["elpd_diff"] == pytest.approx(difference.sum(), rel=1e-12)
        assert row["dse"] == pytest.approx(np.sqrt(60 * difference.var()), rel=1e-12)  # as of ArviZ
    assert found["weight"].sum() == pytest.approx(1.0, abs=1e-6)


def test_runs_with_other_training_labels_are_not_compared(told):
    one, other = (run_of(told, False, labels) for labels in ("a", "b"))
    for runs in ([("one", one), ("other", other)], [("empty", RunResults.held(None))]):
        with pytest.raises(InputError):
            compare_models_of(runs)
    # The same twice: models without draws appear once, the theory and both of infinite width.
    assert len(compare_models_of([("one", one), ("again", one)])) == 3


def test_the_table_of_models_shows_the_compared_numbers(run):
    """Every cell of the printed table, with its error and unit."""
    models = compare_models_of([("one", run), ("other", run_of(made("repetitions", seed=1)))])
    assert len(models) == 6
    rows = rows_of(models_table(models).text(300))
    units = {"accuracy": "%", "accuracy_diff": "points"}
    pairs = {
        "elpd": "se", "elpd_diff": "dse", "weight": None, "unreliable": None,
        "log_evidence": "log_evidence_error", "accuracy": "accuracy_error",
        "accuracy_diff": "accuracy_dse", "log_predictive_density": "log_predictive_density_error",
        "log_predictive_density_diff": "log_predictive_density_dse",
    }  # fmt: skip
    for name, model in models.astype(float).iterrows():
        for text, (number, error) in zip(rows[str(name)], pairs.items(), strict=True):
            errors = [] if error is None or np.isnan(model[number]) else [model[error]]
            if number == "elpd_diff" and model["dse"] == 0.0:
                errors = []
            scale = 100.0 if number == "accuracy_diff" else 1.0
            unit, errors = units.get(number, ""), [scale * one for one in errors]
            assert_shows(text, scale * model[number], errors, unit, f"{name}, {number}")
