"""Verdicts follow from the numbers that are stored; reasons to doubt these are said."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

from sampler.analysis.comparison import ComparisonTree, read_diagnostics
from sampler.analysis.cross_validation import count_unreliable, limit_of_k, pointwise_elpd
from sampler.analysis.difference import difference_of
from sampler.analysis.draws_table import draws_tree
from sampler.analysis.estimates import Estimate
from sampler.analysis.results import RunResults
from sampler.analysis.verdict import theory_verdict, trust_verdict, user_verdict
from sampler.jobs.stages import compare_tables, diagnose_stage
from tests.failures import FAILURES, UNTRUSTED, stored
from tests.small import collect, healthy_statistics, random_observables, small_problem, within
from tests.told.shown import numbers_in

QUANTITIES = {"predictor_mean": "m(x)", "order_parameter": "U₁"}
PASSED = {
    "verdict": "pass",
    "reasons": [],
    "remarks": [],
    "quantities": {"a": {"r_hat": 1.0021, "ess_bulk": 812.7, "ess_tail": 900.0}},
    "bfmi": [0.91, 0.87],
    "chains": 2,
    "draws": 500,
    "divergences": 1,
}
FAILED = PASSED | {"verdict": "fail", "reasons": ["why"]}
DIAGNOSTICS = {True: read_diagnostics(PASSED), False: read_diagnostics(FAILED), None: None}


def rows_of(found: dict, *predictors: str) -> dict:
    """Rows of a table: quantity → what is found of these predictors."""
    return {
        (name, who): difference | {"label": QUANTITIES[name], "unit": "%"}
        for name, difference in found.items()
        for who in predictors
    }


def compared(gap: float, mcse: float) -> dict[str, dict]:
    """Quantities whose samples are by `gap` beside a theory of ones."""
    estimate = Estimate(np.array([[1.0 + gap]]), np.array([[mcse]]), None, 39)
    return {name: difference_of(np.ones((1, 1)), estimate) for name in QUANTITIES}


def verdict_on(found: dict, *predictors: str, trusted=True, converged=True, **others):
    return theory_verdict(DIAGNOSTICS[trusted], converged, rows_of(found, *predictors), **others)


def test_a_difference_in_one_element_alone_is_no_agreement():
    """Of 400 elements one is off by 6 errors, which the interval of all together does not see."""
    value = np.full((20, 20), 20.0)
    noise = norm.ppf((np.arange(value.size) + 0.5) / value.size).reshape(value.shape)
    noise[0, 0] = 6.0
    estimate = Estimate(value, np.ones(value.shape), np.eye(400).reshape(400, 20, 20), 39)
    found = {"order_parameter": difference_of(value - noise, estimate)}
    assert found["order_parameter"]["low"] == 0.0
    alone, both = verdict_on(found, "leading"), verdict_on(found, "leading", "next")
    assert alone.tone == both.tone == "caution"
    # The theory has an error of a known order.
    assert len(alone.reasons) == len(both.reasons) == 1
    assert user_verdict("mine", True, rows_of(found, "mine")).tone == "caution"


@pytest.mark.parametrize(
    ("trusted", "converged", "gap", "mcse", "expected"),
    [
        (True, True, 0.00, 0.01, "good"),
        (True, True, 0.25, 0.01, "caution"),
        (True, True, 0.05, 0.90, "neutral"),
        (False, True, 0.05, 0.01, "bad"),
        (True, False, 0.05, 0.01, "bad"),
        (None, True, 0.05, 0.01, "neutral"),
        (True, None, 0.05, 0.01, "neutral"),
    ],
)
def test_the_verdict_on_the_theory_follows_from_the_differences(
    trusted, converged, gap, mcse, expected
):
    found = compared(gap, mcse)
    assert verdict_on(found, "leading", trusted=trusted, converged=converged).tone == expected


def test_the_headline_is_about_the_order_parameter_whatever_the_others_are():
    found = compared(0.0, 0.01)
    alone = verdict_on(found, "leading", width=10)
    found["predictor_mean"] = compared(0.5, 0.01)["predictor_mean"]
    assert verdict_on(found, "leading", width=10).headline == alone.headline


@pytest.mark.parametrize(("gap", "below"), [(0.25, False), (0.0, True)])
def test_the_headline_has_the_relative_error_and_that_times_the_width(gap, below):
    """‖U₁ − theory‖/‖U₁‖ and N times it; of no scaling, without a width, is anything said."""
    found = compared(gap, 0.01)
    row = found["order_parameter"]
    value, errors = row["difference"], [row["difference_error"]]
    if below:
        value, errors = row["below"], []
    for width in (10, None):
        first, *others = numbers_in(verdict_on(found, "leading", width=width).headline)
        assert first.shows(value, errors, "%")
        assert first.below is below
        times = [one for one in others if one.shows(10 * value, [10 * e for e in errors])]
        assert bool(times) == (width is not None)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "good"),
        ({"verdict": "fail", "reasons": ["why"]}, "bad"),
        ({"warning": "Two starts disagree."}, "caution"),
        ({"warning": "Two starts disagree.", "verdict": "fail", "reasons": ["why"]}, "bad"),
    ],
)
def test_the_verdict_on_the_draws_follows_from_their_diagnostics(change, expected):
    received = trust_verdict(read_diagnostics(PASSED | change))
    assert received.tone == expected
    assert ("why" in received.reasons) == (change.get("verdict") == "fail")


# --- reasons to doubt what is compared are said, and numbers that fail their own check are marked


def test_a_doubt_about_the_next_order_is_a_reason_of_the_verdict():
    """Where the samples allow to say anything of the theory at all."""
    doubted, fine = stored(status="large"), stored(status="fine")
    explanation = doubted.theory.attrs["next_order_explanation"]
    for run, expected in ((doubted, 1), (fine, 0)):
        reasons = run.comparison.verdict.reasons
        assert sum(explanation.lower() in reason.lower() for reason in reasons) == expected
        assert (
            run.comparison.tree.attrs["doubt_of_next_order"].lower().count(explanation) == expected
        )
    assert doubted.comparison.verdict.headline == fine.comparison.verdict.headline


@pytest.mark.parametrize("spoil", [None, FAILURES["chain_alone"]])
def test_a_warning_of_the_algorithm_comes_before_every_other_reason(spoil):
    """Whether the draws pass or not, and there only."""
    run = stored(spoil)
    warned = run.comparison.tree.copy()
    diagnostics = replace(run.comparison.diagnostics, warning="Two starts.")
    warned.attrs = warned.attrs | {"diagnostics": json.dumps(diagnostics.to_json())}
    plain, found = run.comparison.verdict, ComparisonTree(warned).verdict
    assert found.reasons == ("Two starts.", *plain.reasons)
    assert "Two starts." not in plain.reasons
    assert replace(found, reasons=()) == replace(plain, reasons=())


def test_draws_that_alone_were_kept_are_judged_when_they_are_read_back(rng):
    """Of a predictor that is too large for all its draws; one chain stands apart."""
    problem = small_problem(rng)
    observables = random_observables(problem, rng, draws=1500)
    drawn = {name: observables[name] for name in ("order_parameter", "predictor")}
    verdicts = {}
    for apart in (0.0, 3.0):
        drawn["predictor"][1] += apart
        statistics = healthy_statistics(rng, (2, 1500))
        limit = drawn["predictor"].nbytes // 2 // 2
        collected = collect(drawn, statistics, limits=within(limit))
        attributes = {"algorithm": "nuts", "target_acceptance": 0.8, "max_tree_depth": 10}
        tree = draws_tree(problem, collected, attributes)
        assert tree["predictions"].attrs["thinned"] > 1
        found = diagnose_stage(tree)
        assert "predictor" in found.quantities
        verdicts[apart] = found.passed
    assert verdicts == {0.0: True, 3.0: False}


# --- numbers with a check of their own


def test_examples_whose_k_is_above_the_limit_or_unknown_are_counted():
    """The limit is min(1 − 1/log₁₀ S, 0.7) for S draws."""
    shapes = np.array([-0.3, 0.2, 0.49, 0.51, 0.69, 0.71, 3.0, np.inf, np.nan])
    for draws, limit, above in ((10**4, 0.7, 4), (10**2, 0.5, 6)):
        assert limit_of_k(draws) == pytest.approx(limit)
        assert count_unreliable(shapes, draws) == above
    assert count_unreliable(np.zeros(3), 10**4) == 0


def test_a_leave_one_out_density_is_trusted_only_where_every_k_is_small(rng):
    """Weights e^{tE} of exponential numbers E have a tail of shape t."""
    tails = np.array([0.1, 0.2, 1.2, 0.3])
    terms, _ = pointwise_elpd(-1.0 - tails * rng.standard_exponential((2, 5000, 4)))
    np.testing.assert_array_equal(terms["pareto_k"] > 0.7, tails > 0.7)
    heavy, fine = stored(UNTRUSTED["tail_of_one_example"][0]), stored()
    for run, trusted in ((heavy, False), (fine, True)):
        shapes = run.draws["leave_one_out"]["pareto_k"].values
        assert (shapes <= 0.7).all() == trusted
        assert (run.comparison.rows["elpd", "sampled"]["state"] == "") is trusted


@pytest.mark.parametrize("kind", ["evidence_not_trusted", "tail_of_one_example"])
def test_the_mark_of_a_number_is_stored(kind, tmp_path):
    spoil, number = UNTRUSTED[kind]
    directory = stored(spoil).write(tmp_path / "run")
    read = RunResults(directory).comparison
    states = {name: read.rows[name, "sampled"]["state"] for name in read.quantities}
    assert {name: state for name, state in states.items() if state} == {number: "not trusted"}
    with xr.open_dataset(directory / "comparison.nc", group="summary", engine="h5netcdf") as table:
        states = table["state"].sel(predictor="sampled")
        marked = states["quantity"].values[states.values == "not trusted"]
    assert marked.tolist() == [number]
    again = compare_tables(RunResults(directory).theory, RunResults(directory).draws)
    assert again.rows[number, "sampled"]["state"] == "not trusted"
