"""Verdicts follow from the numbers that are stored, and the headline is fixed in advance."""

import numpy as np
import pytest
from scipy.stats import norm

from sampler.analysis.comparison import read_diagnostics
from sampler.analysis.difference import difference_of
from sampler.analysis.estimates import Estimate
from sampler.analysis.verdict import theory_verdict, trust_verdict, user_verdict
from tests.told.shown import numbers_in

QUANTITIES = {"predictor_mean": "m(x)", "order_parameter": "U₁"}
PASSED = {
    "verdict": "pass", "reasons": [], "remarks": [], "bfmi": [0.91, 0.87], "divergences": 1,
    "quantities": {"a": {"r_hat": 1.0021, "ess_bulk": 812.7, "ess_tail": 900.0}},
    "chains": 2, "draws": 500,
}  # fmt: skip
FAILED = PASSED | {"verdict": "fail", "reasons": ["why"]}
WARNED = {"warning": "Two starts disagree."}


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


def verdict_on(found: dict, *predictors: str, diagnostics=PASSED, converged=True, **others):
    judged = diagnostics and read_diagnostics(diagnostics)
    return theory_verdict(judged, converged, rows_of(found, *predictors), **others)


@pytest.mark.parametrize(
    ("diagnostics", "converged", "gap", "mcse", "expected"),
    [
        (PASSED, True, 0.00, 0.01, "good"),
        (PASSED, True, 0.25, 0.01, "caution"),
        (PASSED, True, 0.05, 0.90, "neutral"),
        (FAILED, True, 0.05, 0.01, "bad"),
        (PASSED, False, 0.05, 0.01, "bad"),
        (None, True, 0.05, 0.01, "neutral"),
        (PASSED, None, 0.05, 0.01, "neutral"),
    ],
)
def test_the_verdict_on_the_theory_follows_from_the_differences(
    diagnostics, converged, gap, mcse, expected
):
    found = compared(gap, mcse)
    received = verdict_on(found, "leading", diagnostics=diagnostics, converged=converged)
    assert received.tone == expected


def test_a_difference_in_one_element_alone_is_no_agreement():
    """Of 400 elements one is off by 6 errors, which the interval of all together does not see."""
    value = np.full((20, 20), 20.0)
    noise = norm.ppf((np.arange(value.size) + 0.5) / value.size).reshape(value.shape)
    noise[0, 0] = 6.0
    estimate = Estimate(value, np.ones(value.shape), np.eye(400).reshape(400, 20, 20), 39)
    found = {"order_parameter": difference_of(value - noise, estimate)}
    assert found["order_parameter"]["low"] == 0.0
    assert verdict_on(found, "leading").tone == "caution"
    assert verdict_on(found, "leading", "next").tone == "caution"
    assert user_verdict("mine", True, rows_of(found, "mine")).tone == "caution"


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
    ("diagnostics", "expected"),
    [(PASSED, "good"), (FAILED, "bad"), (PASSED | WARNED, "caution"), (FAILED | WARNED, "bad")],
)
def test_the_verdict_on_the_draws_follows_from_their_diagnostics(diagnostics, expected):
    """A warning of the algorithm also comes before every other reason of that on the theory."""
    received = trust_verdict(read_diagnostics(diagnostics))
    assert received.tone == expected
    assert ("why" in received.reasons) == (diagnostics["verdict"] == "fail")
    plain = diagnostics | {"warning": ""}
    warned, unwarned = (
        verdict_on(compared(0.25, 0.01), "leading", diagnostics=one, doubt="Doubted.")
        for one in (diagnostics, plain)
    )
    warning = (diagnostics["warning"],) if "warning" in diagnostics else ()
    assert warned.reasons == warning + unwarned.reasons
    assert ("Doubted." in warned.reasons) == (diagnostics["verdict"] == "pass")


def test_a_temperature_that_was_sampled_is_told():
    found = compared(0.25, 0.01)
    given, sampled = (verdict_on(found, "leading", temperature_sampled=of) for of in (False, True))
    assert len(sampled.reasons) == len(given.reasons) + 1
