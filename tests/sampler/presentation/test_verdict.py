"""Verdicts on theory and draws follow from the numbers that are stored."""

import numpy as np
import pytest
from scipy.stats import norm

from sampler.analysis.comparison import read_diagnostics
from sampler.analysis.difference import difference_of
from sampler.analysis.estimates import Estimate
from sampler.analysis.verdict import theory_verdict, trust_verdict, user_verdict
from tests.shown import numbers_in

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
