"""A theory of the user's own beside that of the program: the same numbers, verdicts, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import sampler
from sampler.analysis.text import Number
from sampler.analysis.user_theories import PREDICTED
from sampler.errors import InputError
from sampler.jobs import stages
from tests.sampler.api.test_results import CHAINS, NETWORK, TASK

SAME, WRONG = "leading order again", "three times U"

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def chosen():
    return sampler.markov_chain_task(**TASK), sampler.make_network(**NETWORK)


@pytest.fixture(scope="module")
def results(chosen):
    chains = CHAINS | {"draws": 60}
    return sampler.solve(*chosen, starts=1), sampler.sample(*chosen, **chains, progress=False)


def leading_order(theory: xr.Dataset) -> dict[str, np.ndarray]:
    """What the theory of the program predicts, as a theory of one's own."""
    return {str(name): one.values for name, one in theory.items() if PREDICTED.fullmatch(str(name))}


@pytest.fixture
def trusted(monkeypatch):
    """Six draws pass as enough: what is said of theories does not depend on the number."""
    judge = stages.diagnose_stage
    passing = {"verdict": "pass", "reasons": ()}
    monkeypatch.setattr(stages, "diagnose_stage", lambda tree: replace(judge(tree), **passing))


@pytest.fixture
def comparison(results, trusted):
    theory, draws = results
    wrong = {"order_parameter": 3.0 * theory["order_parameter"].values}
    return sampler.compare(theory, draws, own={SAME: leading_order(theory), WRONG: wrong})


def test_a_theory_that_is_the_leading_order_has_its_numbers(comparison):
    compared = dict(comparison.result.compared)
    assert {"order_parameter", "predictor_mean", "predictor_variance", "head_score"} <= set(
        compared
    )
    alignment = compared.pop("kernel_alignment")  # of the kernel, which own theories say nothing of
    assert alignment.own is None
    for key, one in compared.items():
        np.testing.assert_array_equal(one.own[SAME], one.theory, err_msg=key)
    table = comparison.to_dataframe()
    assert {"U₁ good", "accuracy", "log predictive density"} <= set(table.index)
    # Own theories predict the test set, not what the other training examples say of each.
    assert np.isnan(table.loc["elpd, leave one out", SAME])
    told = table.drop("elpd, leave one out")
    np.testing.assert_array_equal(told[SAME], told["theory"])
    for key in ("order_parameter", "predictor_mean", "accuracy", "predictive_quality"):
        expected, received = (comparison.differences[k] for k in (key, f"{key}: {SAME}"))
        # as text, where undefined numbers are equal
        assert repr(received) == repr(replace(expected, name=f"{expected.name}, {SAME}"))
    finding = comparison.differences["order_parameter"].finding
    verdict = comparison.own_verdicts[SAME]
    assert verdict.headline == f"{SAME}: {finding}."


def test_a_wrong_theory_is_told_so(comparison, results):
    theory, _ = results
    found, leading = (
        comparison.differences[key] for key in (f"order_parameter: {WRONG}", "order_parameter")
    )
    assert found.resolved
    assert found.value > leading.value
    verdict = comparison.own_verdicts[WRONG]
    assert verdict.tone == "caution"
    assert f"{WRONG}: U₁ off by" in verdict.headline
    assert verdict.reasons == (f"{found_scores(comparison).finding}.",)
    text = repr(comparison)
    assert verdict.headline in text
    assert Number(3.0 * float(theory["order_parameter"][0, 0])).text in text
    # What it does not predict is left open, and no other verdict depends on it.
    assert np.isnan(comparison.to_dataframe()[WRONG]["accuracy"])
    assert WRONG not in comparison.verdict.headline + "".join(comparison.verdict.reasons)


def found_scores(comparison):
    return replace(comparison.differences[f"head_score: {WRONG}"], name="head score")


def test_without_trusted_samples_nothing_is_said(results):
    theory, draws = results
    found = sampler.compare(theory, draws, own={SAME: leading_order(theory)})
    assert found.own_verdicts[SAME].headline.startswith(f"No conclusion about {SAME}")


def test_what_follows_from_an_order_parameter_is_the_prediction_there(chosen, results):
    theory, _ = results
    problem = sampler.make_problem(*chosen)
    received = problem.predictions_at(theory["order_parameter"].values)
    for name in ("predictor_mean", "predictor_variance"):
        np.testing.assert_allclose(received[name], theory[name].values, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    "own",
    [
        {"order_parameter": np.eye(3)},
        {"order_parameter": [[1.0, 0.5], [0.0, 1.0]]},
        {"order_parameter": [[1.0, np.nan], [np.nan, 1.0]]},
        {"predictor_variance": -np.ones(10)},
        {"predictor": np.ones(10)},
        {},
        np.eye(2),
    ],
)
def test_predictions_that_do_not_fit_are_refused(results, own, without_annotation_checks):
    with pytest.raises(InputError) as caught:
        sampler.compare(*results, own={"mine": own})
    assert caught.value.field.startswith('own theory "mine')


@pytest.mark.slow
def test_a_network_outside_the_theory_can_have_one(chosen):
    """Of its predictor: such a network has no order parameter."""
    network = sampler.make_network(**NETWORK, norm="before")
    draws = sampler.sample(chosen[0], network, **CHAINS | {"draws": 6}, progress=False)
    own = {"zero": xr.Dataset({"predictor_mean": ("test_example", np.zeros(10))})}
    found = sampler.compare(None, draws, own=own).result.get("predictor_mean")
    assert found.theory is None
    np.testing.assert_array_equal(found.own["zero"], np.zeros(10))
