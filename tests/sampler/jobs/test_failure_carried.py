"""What fails counts nowhere: carried from the draws through everything that is told of them.

The standard is what is told where the same points were not sampled at all.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sampler.analysis.difference import NOT_TRUSTED, TOO_FEW
from sampler.analysis.model_comparison import compare_models_of
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_dataset import gathered, swept_points
from sampler.analysis.sweep_results import sweep_trend, sweep_trust
from sampler.settings.recipe import load_recipe
from tests.told.failures import FAILURES, UNTRUSTED, repetitions_agree, repetitions_few, stored

RECIPE = """
name = "sweep"
[task]
kind = "markov_chain"
[network]
widths = 30
[sampler]
space = "order_parameters"
[sweep]
{swept}
"""
WIDTHS = '"network.widths" = [30, 40, 50, 60]'
SEEDS = '"network.widths" = [30, 40]\n"task.seed" = [0, 1]'
# The first point fails: it would be the best by far, and an end of every trend.
BETTER = {"scale": 1.5, "evidence": -1.0}


@pytest.fixture(scope="module")
def sound():
    """Runs that pass their diagnostics, by the places of their points."""
    return {
        place: stored(seed=place, scale=1.0 + 0.05 * place, evidence=-7.0 - place)
        for place in (1, 2, 3)
    }


def sweep_of(folder: Path, sound, first, sampled: bool = True, swept: str = WIDTHS):
    """A sweep whose first point is another run, sampled or not."""
    folder.mkdir()
    (folder / "recipe.toml").write_text(RECIPE.format(swept=swept))
    recipe, points = load_recipe(folder / "recipe.toml"), []
    for place, point in enumerate(swept_points(folder, recipe)):
        point.run.directory.mkdir()
        (point.run.directory / "theory.nc").touch()  # what it holds is in memory
        of_point = (sound | {0: first})[place]
        run = of_point.held(point.run.directory, sampled or place > 0)
        points.append(replace(point, run=run))
    sweep = gathered(folder, recipe, points)
    vars(sweep)["runs"] = [point.run for point in points]
    return sweep


@pytest.fixture(scope="module")
def unsampled(sound, tmp_path_factory):
    """The same of which the first point was not sampled."""
    return sweep_of(tmp_path_factory.mktemp("swept") / "a", sound, stored(**BETTER), False)


def of_samples(table: pd.DataFrame) -> list[str]:
    return [name for name in table if re.search(r"_sampled(_error|_test_error)?$", name)]


@pytest.mark.parametrize("kind", FAILURES)
def test_nothing_is_said_by_draws_that_fail(kind, tmp_path):
    run = RunResults(stored(FAILURES[kind]).write(tmp_path / "run"))
    comparison = run.comparison
    assert run.trusted is False
    assert not run.diagnostics.passed
    assert run.diagnostics.reasons
    assert {run.verdict.tone, run.reliability.tone, comparison.verdict.tone} == {"bad"}
    assert {verdict.tone for verdict in comparison.user_verdicts.values()} == {"bad"}
    said = comparison.table().query("state != ''")["state"]
    assert {("order_parameter", "leading"), ("predictor_mean", "next")} <= set(said.index)
    assert set(said) == {NOT_TRUSTED}
    assert set(said.xs("sampled", level="predictor").index) == set(comparison.quantities)
    content = json.loads((tmp_path / "run" / "comparison.json").read_text())
    assert content["diagnostics"]["verdict"] == "fail"
    states = {
        cell["state"]
        for of_quantity in content["summary"].values()
        for who, cell in of_quantity.items()
        if who == "sampled" or cell["difference"] is not None
    }
    assert states == {NOT_TRUSTED}


@pytest.mark.parametrize("spoil", [None, repetitions_agree])
def test_draws_that_pass_are_trusted(spoil):
    run = stored(spoil).held()
    assert run.trusted
    assert run.verdict.tone in ("good", "caution")
    comparison = run.comparison
    assert not any(comparison.rows[name, "sampled"]["state"] for name in comparison.quantities)


CARRIED = ("chain_alone", "repetitions_apart")


@pytest.mark.parametrize("kind", CARRIED)
def test_a_sweep_goes_by_the_points_whose_draws_pass(kind, sound, unsampled, tmp_path):
    sweep = sweep_of(tmp_path / "a", sound, stored(FAILURES[kind], **BETTER))
    without = unsampled
    # What fails is marked.
    assert [point.trusted for point in sweep.points] == [False, True, True, True]
    assert [point.trusted for point in without.points] == [None, True, True, True]
    assert sweep.table["diagnostics"].tolist() == ["fail", "pass", "pass", "pass"]
    assert [sweep_trust(one.points).tone for one in (sweep, without)] == ["bad", "good"]
    # The rest is that of the points that pass.
    trend, expected = (sweep_trend(one.points) for one in (sweep, without))
    assert trend == expected
    columns = of_samples(sweep.table)
    pd.testing.assert_frame_equal(sweep.table.loc[1:, columns], without.table.loc[1:, columns])


@pytest.mark.parametrize(
    ("spoil", "tone"), [(repetitions_few, "neutral"), (repetitions_agree, "caution")]
)
def test_no_trend_ends_where_draws_are_too_few_for_a_difference(spoil, tone, sound, tmp_path):
    """Theory and samples differ by 0.5 · 1, which is a smaller share of a larger U₁."""
    sweep = sweep_of(tmp_path / "a", sound, stored(spoil, scale=4.0))
    narrow, *_, wide = (point.compared("order_parameter") for point in sweep.points)
    assert sweep_trust(sweep.points).tone == "good"
    assert narrow["high"] < wide["low"]
    assert (narrow["state"] == TOO_FEW) is (tone == "neutral")
    assert sweep_trend(sweep.points).tone == tone


@pytest.mark.parametrize("kind", UNTRUSTED)
def test_a_number_that_is_not_trusted_is_in_no_table(kind, sound, tmp_path):
    """The other numbers of the same draws stay, as their diagnostics pass."""
    spoil, number = UNTRUSTED[kind]
    bad = stored(spoil, **BETTER)
    comparison = bad.comparison
    assert comparison.diagnostics.passed
    states = {name: comparison.rows[name, "sampled"]["state"] for name in comparison.quantities}
    assert {name: state for name, state in states.items() if state} == {number: NOT_TRUSTED}
    assert comparison.to_json()["summary"][number]["sampled"]["state"] == NOT_TRUSTED
    sweep = sweep_of(tmp_path / "a", sound, bad)
    assert set(sweep.table["diagnostics"]) == {"pass"}
    for name in of_samples(sweep.table):
        missing = np.flatnonzero(sweep.table[name].isna()).tolist()
        assert missing == ([0] if name.startswith(f"{number}_sampled") else [])


def test_averages_over_seeds_are_those_of_the_points_that_pass(sound, tmp_path):
    bad = stored(FAILURES["chain_alone"], **BETTER)
    found = sweep_of(tmp_path / "a", sound, bad, swept=SEEDS).seed_averages
    assert found["points"].tolist() == [2, 2]
    assert found["failed"].tolist() == [1, 0]
    name = "log_predictive_density_sampled"
    quantity = name.removesuffix("_sampled")
    values = [sound[place].comparison.rows[quantity, "sampled"]["value"] for place in (1, 2, 3)]
    assert found[name].tolist() == pytest.approx([values[0], np.mean(values[1:])], rel=1e-12)
    errors = found[f"{name}_error"]
    assert np.isnan(errors[0])
    assert errors[1] == pytest.approx(abs(values[1] - values[2]) / 2, rel=1e-12)


# --- models of several runs


@pytest.mark.parametrize("kind", [*CARRIED, "tail_of_one_example"])
def test_models_are_compared_without_draws_that_fail(kind, sound):
    spoil = FAILURES[kind] if kind in FAILURES else UNTRUSTED[kind][0]
    bad, first = stored(spoil, seed=9, **BETTER), sound[1].held()
    found = compare_models_of([("first", first), ("bad", bad.held())])
    theory = bad.held(sampled=False)
    expected = compare_models_of([("first", first), ("bad", theory)])
    # The leading order stands in for samples that are not there, and for those that fail.
    (stands_in,) = (name for name in expected.index if "leading order" in name)
    (named,) = (name for name in found.index if "leading order" in name)
    expected = expected.rename(index={stands_in: named})
    (failed,) = set(found.index) - set(expected.index)
    assert found.index[-1] == failed
    compared = ["rank", "elpd_diff", "dse", "weight"]
    assert found.loc[failed, [*compared, "accuracy_diff", "accuracy_dse"]].isna().all()
    pd.testing.assert_frame_equal(
        found.loc[expected.index, compared].astype(float), expected[compared].astype(float)
    )
    assert found["weight"].sum() == pytest.approx(1.0, abs=1e-6)
    scores = ["log_evidence", "log_evidence_error", "accuracy", "accuracy_error"]
    if kind in FAILURES:
        assert found.loc[failed, scores].isna().all()
    else:
        assert found.loc[failed, "unreliable"] == 1
        assert found.loc[failed, scores].notna().all()


def test_where_no_model_counts_none_is_ranked(sound):
    bad = stored(FAILURES["chain_alone"]).held()
    alone = RunResults.held(None, draws=bad.draws, comparison=bad.comparison)
    found = compare_models_of([("bad", alone)])
    assert len(found) == 1
    assert found[["rank", "weight", "elpd_diff"]].isna().all(axis=None)
    assert np.isfinite(found["elpd"]).all()


def test_an_evidence_that_is_not_trusted_stands_beside_no_model(sound):
    bad = stored(UNTRUSTED["evidence_not_trusted"][0], seed=9).held()
    found = compare_models_of([("first", sound[1].held()), ("bad", bad)])
    first, second = (name for name in found.index if "exact" in name)
    by_run = {name.split(",")[0]: name for name in (first, second)}
    known = found["log_evidence"].notna()
    assert known[by_run["first"]]
    assert not known[by_run["bad"]]
    assert found.loc[by_run["bad"], "rank"] >= 0
