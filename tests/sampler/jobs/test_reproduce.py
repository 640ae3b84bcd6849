"""What a reproduction is held against: every array, by errors that may be believed."""

from dataclasses import replace

import numpy as np
import pytest

from sampler.analysis.estimates import OF_CHAINS
from sampler.jobs.reproduce import THEORY_TOLERANCE, Agreement, agreements, relative_difference
from tests.told.failures import FAILURES, Stored, repetitions_agree, stored


def compared(one: Stored, other: Stored) -> dict[str, Agreement]:
    """The agreements of two runs that are held in memory."""
    return agreements(one.held(), other.held())


def moved(run: Stored, by: float, name: str = "order_parameter", element=(1, 2)) -> Stored:
    """The run with an element of a quantity in `posterior` moved by so much in every draw."""
    tree = run.draws.copy(deep=True)
    values = tree["posterior"][name].values.copy()
    values[(..., *element)] += by
    tree["posterior"][name].values = values
    return replace(run, draws=tree)


@pytest.mark.parametrize("spoil", [None, repetitions_agree])
@pytest.mark.parametrize(("errors", "agrees"), [(4.9, True), (5.1, False), (100.0, False)])
def test_means_agree_within_five_errors_of_their_difference(errors, agrees, spoil):
    """Of repetitions by their spread: particles of one have ancestors in common."""
    run = stored(spoil)
    values = run.draws["posterior"]["order_parameter"].values
    if spoil is None:
        error = OF_CHAINS.mean(values).mcse[1, 2]
    else:
        of_one = values[..., 1, 2].mean(axis=1)
        error = of_one.std(ddof=1) / np.sqrt(len(of_one))
    found = compared(run, moved(run, errors * np.sqrt(2.0) * error))
    assert found["theory"] == Agreement(None, 0.0, THEORY_TOLERANCE, True)
    one = found["draws"]
    assert (one.array, one.limit, one.agrees) == ("order_parameter", 5.0, agrees)
    assert one.difference == pytest.approx(errors, rel=1e-6)


def test_one_number_of_the_draws_that_moved_is_seen():
    """Moved by A, the mean moves by A/n, and its error is A/n where A is large: one error."""
    run = stored()
    tree = run.draws.copy(deep=True)
    tree["predictions"]["predictor"].values[0, 7, 1] += 1e3
    one = compared(run, replace(run, draws=tree))["draws"]
    assert one.array == "predictor"
    assert one.difference == pytest.approx(1.0, abs=0.1)


def test_the_largest_difference_is_named():
    """Of two arrays that moved that which moved farther."""
    run = stored()
    posterior = run.draws["posterior"]
    error = np.sqrt(2.0) * OF_CHAINS.mean(posterior["order_parameter"].values).mcse[1, 2]
    readout = np.sqrt(2.0) * OF_CHAINS.mean(posterior["readout_order_parameter"].values).mcse[0, 0]
    one = moved(run, 3.0 * error)
    other = moved(one, 4.0 * readout, "readout_order_parameter", (0, 0))
    found = [compared(run, each)["draws"] for each in (one, other)]
    assert [each.array for each in found] == ["order_parameter", "readout_order_parameter"]
    assert [each.difference for each in found] == pytest.approx([3.0, 4.0], rel=1e-6)


@pytest.mark.parametrize(("by", "agrees"), [(1e-8, True), (1e-4, False)])
def test_a_number_of_the_theory_that_moved_is_not_reproduced(by, agrees):
    run = stored()
    theory = run.theory.copy(deep=True)
    values = theory["order_parameter"].values
    values[np.unravel_index(np.nanargmax(np.abs(values)), values.shape)] *= 1.0 + by
    found = compared(run, replace(run, theory=theory))
    assert (found["theory"].array, found["theory"].agrees) == ("order_parameter", agrees)
    assert found["theory"].difference == pytest.approx(by, rel=1e-6)
    assert found["draws"].array is None


def test_a_number_that_one_of_two_theories_lacks_is_no_agreement():
    one = np.array([2.0, -4.0, np.nan])
    assert relative_difference(one, one) == 0.0
    assert relative_difference(one, np.array([2.2, -4.0, np.nan])) == (2.2 - 2.0) / 4.0
    for other in ([2.0, -4.0, 1.0], [np.nan, -4.0, np.nan]):
        assert relative_difference(one, np.array(other)) == np.inf


@pytest.mark.parametrize("kind", ["chain_alone", "repetitions_apart"])
def test_draws_that_fail_agree_with_the_same_bits_alone(kind):
    """Their errors say nothing: means within them are no evidence of anything."""
    run = stored(FAILURES[kind])
    assert all(one.agrees for one in compared(run, stored(FAILURES[kind])).values())
    other = moved(run, 1e-9)
    for pair in ((run, other), (other, run)):
        one = compared(*pair)["draws"]
        assert (one.array, one.agrees) == ("order_parameter", False)


def test_draws_that_one_of_both_lacks_are_not_reproduced():
    run = stored()
    tree = run.draws.copy(deep=True)
    tree["posterior"] = tree["posterior"].to_dataset().drop_vars("readout_order_parameter")
    other = replace(run, draws=tree)
    for pair in ((run, other), (other, run)):
        one = compared(*pair)["draws"]
        assert (one.array, one.agrees) == ("readout_order_parameter", False)
