"""A theory of the user's own beside that of the program: the same numbers, verdicts, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.analysis.predictors import of_predictor, predicted
from sampler.analysis.user_theories import PREDICTED
from sampler.jobs import stages
from tests.pages import STORED
from tests.told.shown import numbers_in

SAME, WRONG = "leading order again", "three times U"


@pytest.fixture(scope="module")
def results():
    """Theory and draws of the stored run."""
    run = sampler.open_results(STORED)
    return run.theory, run.draws


def leading_order(theory: xr.Dataset) -> dict[str, np.ndarray]:
    """What the theory of the program predicts, as a theory of one's own."""
    leading = of_predictor(theory, "leading")
    return {name: one.values for name, one in leading.items() if PREDICTED.fullmatch(str(name))}


@pytest.fixture
def trusted(monkeypatch):
    """Few draws pass as enough: what is said of theories does not depend on the number."""
    judge = stages.diagnose_stage
    passing = {"verdict": "pass", "reasons": ()}
    monkeypatch.setattr(stages, "diagnose_stage", lambda tree: replace(judge(tree), **passing))


@pytest.fixture
def comparison(results, trusted):
    theory, draws = results
    wrong = {"order_parameter": 3.0 * predicted(theory, "order_parameter")}
    return sampler.compare(theory, draws, own={SAME: leading_order(theory), WRONG: wrong})


def test_a_theory_that_is_the_leading_order_has_its_numbers(comparison):
    for quantity in ("order_parameter", "predictor_mean", "predictor_variance", "head_score"):
        table = comparison.elements(quantity)["predicted"]
        mine, leading = (table.sel(predictor=name).values for name in (SAME, "leading"))
        np.testing.assert_array_equal(mine, leading, err_msg=quantity)
        same, leading = (comparison.rows[quantity, name] for name in (SAME, "leading"))
        for key in ("difference", "difference_error", "state"):
            np.testing.assert_equal(same[key], leading[key])
    for score in ("accuracy", "log_predictive_density", "log_evidence"):
        same, leading = (comparison.rows[score, who]["value"] for who in (SAME, "leading"))
        assert same == leading
    # Own theories predict the test set, not what the other training examples say of each.
    assert np.isnan(comparison.rows["elpd", SAME]["value"])
    assert comparison.user_verdicts[SAME].tone == comparison.verdict.tone


def test_a_wrong_theory_is_off_by_more(comparison):
    found, leading = (comparison.rows["order_parameter", name] for name in (WRONG, "leading"))
    assert found["state"] == "resolved"
    assert found["difference"] > leading["difference"]
    verdict = comparison.user_verdicts[WRONG]
    assert verdict.tone == "caution"
    off = (found["difference"], [found["difference_error"]], "%")
    assert any(one.shows(*off) for one in numbers_in(verdict.headline))
    # What it does not predict is left open, and the verdict of the program says nothing of it.
    assert np.isnan(comparison.rows["accuracy", WRONG]["value"])
    assert WRONG not in comparison.verdict.headline + "".join(comparison.verdict.reasons)


def test_without_trusted_samples_nothing_is_said(results):
    theory, draws = results
    found = sampler.compare(theory, draws, own={SAME: leading_order(theory)})
    assert found.user_verdicts[SAME].tone == "bad"
