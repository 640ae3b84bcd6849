"""What a reproduction is held against: every array, by errors that may be believed."""

from dataclasses import replace

import numpy as np
import pytest

from sampler.analysis.estimates import OF_CHAINS
from sampler.jobs import reproduce
from sampler.jobs.reproduce import agreements
from tests.failures import FAILURES, Stored, repetitions_agree, stored


@pytest.fixture
def compared(monkeypatch, tmp_path):
    """The agreements of two runs that are held in memory."""

    def found(one: Stored, other: Stored):
        runs = {"one": one.held(), "other": other.held()}
        monkeypatch.setattr(reproduce, "RunResults", lambda directory: runs[directory.name])
        return agreements(tmp_path / "one", tmp_path / "other")

    return found


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
def test_means_of_repetitions_agree_within_errors_of_their_spread(errors, agrees, compared):
    """Not by the number of their particles, which have ancestors in common."""
    run = stored(repetitions_agree)
    values = run.draws["posterior"]["order_parameter"].values[..., 1, 2]
    error = values.mean(axis=1).std(ddof=1) / np.sqrt(len(values))

    def change(drawn):
        drawn[..., 1, 2] += errors * np.sqrt(2.0) * error
        return drawn

    one = compared(run, changed(run, "order_parameter", change))["draws: order_parameter"]
    assert one.agrees is agrees
    assert one.difference == pytest.approx(errors, rel=1e-6)


@pytest.mark.parametrize(("errors", "agrees"), [(4.9, True), (5.1, False), (100.0, False)])
def test_means_of_draws_agree_within_five_errors_of_their_difference(errors, agrees, compared):
    run = stored()
    found = compared(run, shifted(run, errors))
    for name, one in found.items():
        if name != "draws: order_parameter":
            assert one.identical, name
    one = found["draws: order_parameter"]
    assert (one.identical, one.agrees) == (False, agrees)
    assert one.difference == pytest.approx(errors, rel=1e-6)


def test_a_number_of_the_theory_that_moved_is_not_reproduced(compared):
    run = stored()
    for by, agrees in ((1e-8, True), (1e-4, False)):
        theory = run.theory.copy(deep=True)
        theory["order_parameter"].values[0] *= 1.0 + by
        found = compared(run, replace(run, theory=theory))
        one = found["theory: order_parameter"]
        assert (one.identical, one.agrees) == (False, agrees)
        assert all(other.identical for name, other in found.items() if other is not one)


@pytest.mark.parametrize("kind", ["chain_alone", "number_not_finite", "repetitions_apart"])
def test_draws_that_fail_agree_with_the_same_bits_alone(kind, compared):
    """Their errors say nothing: means within them are no evidence of anything."""
    run = stored(FAILURES[kind])
    assert all(one.agrees for one in compared(run, stored(FAILURES[kind])).values())
    other = changed(run, "order_parameter", lambda values: values * (1.0 + 1e-9))
    for pair in ((run, other), (other, run)):
        found = compared(*pair)
        failed = [name for name, one in found.items() if not one.agrees]
        assert failed == ["draws: order_parameter"]


def test_draws_that_one_of_both_lacks_are_not_reproduced(compared):
    run = stored()
    tree = run.draws.copy(deep=True)
    tree["posterior"] = tree["posterior"].to_dataset().drop_vars("readout_order_parameter")
    found = compared(run, Stored(run.theory, tree, run.own))
    failed = [name for name, one in found.items() if not one.agrees]
    assert failed == ["draws: readout_order_parameter"]
