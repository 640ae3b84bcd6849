"""What a reproduction is held against: every array, by errors that may be believed."""

from dataclasses import replace

import numpy as np
import pytest

from sampler.analysis.estimates import OF_CHAINS
from sampler.jobs.reproduce import THEORY_TOLERANCE, Agreement, agreements
from tests.failures import FAILURES, Stored, repetitions_agree, stored


def compared(one: Stored, other: Stored) -> dict[str, Agreement]:
    """The agreements of two runs that are held in memory."""
    return agreements(one.held(), other.held())


def changed(run: Stored, name: str, change) -> Stored:
    """The run with other draws of a quantity in `posterior`."""
    tree = run.draws.copy(deep=True)
    values = tree["posterior"][name].values
    tree["posterior"][name].values = change(values.copy())
    return Stored(run.theory, tree, run.own)


def shifted(run: Stored, errors: float) -> Stored:
    """One element of U₁ off by so many errors of the difference of two such means."""
    error = OF_CHAINS.mean(run.draws["posterior"]["order_parameter"].values).mcse[1, 2]

    def change(values):
        values[..., 1, 2] += errors * np.sqrt(2.0) * error
        return values

    return changed(run, "order_parameter", change)


@pytest.mark.parametrize(("errors", "agrees"), [(4.9, True), (5.1, False), (100.0, False)])
def test_means_of_repetitions_agree_within_errors_of_their_spread(errors, agrees):
    """Not by the number of their particles, which have ancestors in common."""
    run = stored(repetitions_agree)
    values = run.draws["posterior"]["order_parameter"].values[..., 1, 2]
    error = values.mean(axis=1).std(ddof=1) / np.sqrt(len(values))

    def change(drawn):
        drawn[..., 1, 2] += errors * np.sqrt(2.0) * error
        return drawn

    one = compared(run, changed(run, "order_parameter", change))["draws"]
    assert (one.array, one.agrees) == ("order_parameter", agrees)
    assert one.difference == pytest.approx(errors, rel=1e-6)


@pytest.mark.parametrize(("errors", "agrees"), [(4.9, True), (5.1, False), (100.0, False)])
def test_means_of_draws_agree_within_five_errors_of_their_difference(errors, agrees):
    run = stored()
    found = compared(run, shifted(run, errors))
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
    """Of two elements that moved, in two arrays, that which moved farther."""
    run = stored()
    tree = shifted(run, 3.0).draws
    one = compared(run, replace(run, draws=tree))["draws"]
    drawn = run.draws["posterior"]["readout_order_parameter"].values
    moved = 4.0 * np.sqrt(2.0) * OF_CHAINS.mean(drawn).mcse
    tree["posterior"]["readout_order_parameter"].values = drawn + moved
    other = compared(run, replace(run, draws=tree))["draws"]
    assert (one.array, other.array) == ("order_parameter", "readout_order_parameter")
    assert [one.difference, other.difference] == pytest.approx([3.0, 4.0], rel=1e-6)


def test_a_number_of_the_theory_that_moved_is_not_reproduced():
    run = stored()
    for by, agrees in ((1e-8, True), (1e-4, False)):
        theory = run.theory.copy(deep=True)
        values = theory["order_parameter"].values
        place = np.unravel_index(np.nanargmax(np.abs(values)), values.shape)
        values[place] *= 1.0 + by
        found = compared(run, replace(run, theory=theory))
        assert (found["theory"].array, found["theory"].agrees) == ("order_parameter", agrees)
        assert found["theory"].difference == pytest.approx(by, rel=1e-6)
        assert found["draws"].array is None


@pytest.mark.parametrize("kind", ["chain_alone", "number_not_finite", "repetitions_apart"])
def test_draws_that_fail_agree_with_the_same_bits_alone(kind):
    """Their errors say nothing: means within them are no evidence of anything."""
    run = stored(FAILURES[kind])
    assert all(one.agrees for one in compared(run, stored(FAILURES[kind])).values())
    other = changed(run, "order_parameter", lambda values: values * (1.0 + 1e-9))
    for pair in ((run, other), (other, run)):
        found = compared(*pair)
        assert found["theory"].agrees
        assert (found["draws"].array, found["draws"].agrees) == ("order_parameter", False)


def test_draws_that_one_of_both_lacks_are_not_reproduced():
    run = stored()
    tree = run.draws.copy(deep=True)
    tree["posterior"] = tree["posterior"].to_dataset().drop_vars("readout_order_parameter")
    for pair in ((run, replace(run, draws=tree)), (replace(run, draws=tree), run)):
        found = compared(*pair)["draws"]
        assert (found.array, found.agrees) == ("readout_order_parameter", False)
