"""Verdicts on theory and draws follow from the numbers that are stored."""

import numpy as np
import pytest
from scipy.stats import norm

from sampler.analysis.comparison import read_diagnostics
from sampler.analysis.difference import Difference, difference_of
from sampler.analysis.estimates import Estimate
from sampler.analysis.verdict import theory_verdict, trust_verdict, user_verdict

LABELS = {"predictor_mean": "m(x)", "order_parameter": "U₁"}


def compared(gap: float, mcse: float) -> dict[str, Difference]:
    """Quantities whose samples are by `gap` beside a theory of ones."""
    estimate = Estimate(np.array([[1.0 + gap]]), np.array([[mcse]]), None, 39)
    return {key: difference_of(np.ones((1, 1)), estimate) for key in LABELS}


def test_a_difference_in_one_element_alone_is_no_agreement():
    """Of 400 elements one is off by 6 errors, which the interval of all together does not see."""
    value = np.full((20, 20), 20.0)
    noise = norm.ppf((np.arange(value.size) + 0.5) / value.size).reshape(value.shape)
    noise[0, 0] = 6.0
    estimate = Estimate(value, np.ones(value.shape), np.eye(400).reshape(400, 20, 20), 39)
    found = {"order_parameter": difference_of(value - noise, estimate)}
    assert found["order_parameter"].low == 0.0
    alone = theory_verdict(True, True, {"leading": found}, LABELS)
    both = theory_verdict(True, True, {"leading": found, "next": found}, LABELS)
    assert alone.tone == both.tone == "caution"
    # The theory has an error of a known order.
    assert len(alone.reasons) == len(both.reasons) == 1
    assert user_verdict("mine", True, found, LABELS).tone == "caution"


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
    found = {"leading": compared(gap, mcse)}
    assert theory_verdict(trusted, converged, found, LABELS).tone == expected


def test_the_headline_is_about_the_order_parameter_whatever_the_others_are():
    found = compared(0.0, 0.01)
    alone = theory_verdict(True, True, {"leading": found}, LABELS)
    found["predictor_mean"] = compared(0.5, 0.01)["predictor_mean"]
    assert theory_verdict(True, True, {"leading": found}, LABELS).headline == alone.headline


PASSED = {
    "verdict": "pass",
    "quantities": {"a": {"r_hat": 1.0021, "ess_bulk": 812.7, "ess_tail": 900.0}},
    "bfmi": [0.91, 0.87],
    "chains": 2,
    "draws": 500,
    "divergences": 1,
}


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
