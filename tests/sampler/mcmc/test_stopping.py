"""Checks at fixed numbers of draws: when chains end. That their means are covered: calibration."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from sampler.mcmc.algorithm import Algorithm, Chunk
from sampler.mcmc.collected_draws import LIMITS, DrawCollector, Limit, evenly_spaced
from sampler.mcmc.diagnostics import diagnose
from sampler.mcmc.stopping import (
    CHECKED_ESS,
    FIRST_CHECK,
    JUDGED_FIRST,
    InterimVerdict,
    StoppingRule,
    next_check,
)
from tests.assertions import assert_equal_to_rounding
from tests.problems import autoregressive
from tests.sampler.mcmc.laws import checked


def test_checks_are_at_fixed_numbers_of_draws():
    numbers = [FIRST_CHECK]
    while numbers[-1] < 20_000:
        numbers.append(next_check(numbers[-1], 20_000))
    assert numbers[:6] == [400, 520, 676, 879, 1143, 1486]
    assert numbers[-1] == 20_000
    for one, other in pairwise(numbers[:-1]):
        assert other - 1 < 1.3 * one <= other
        assert {next_check(done, 20_000) for done in range(one, other, 7)} == {other}
    assert next_check(0, 300) == 300


def test_chains_end_where_two_checks_pass_whatever_the_pieces(rng):
    draws = autoregressive(rng, 0.6, (4, 5000))
    lp = rng.standard_normal(draws.shape)
    rule = checked(draws, lp)
    assert rule.ended == "trusted"
    assert [one.passed for one in rule.checks[-2:]] == [True, True]
    assert not any(one.passed for one in rule.checks[:-2])
    assert all(one.ess >= CHECKED_ESS for one in rule.checks[-2:])
    assert rule.checks[-1].of == "x"
    for pieces in (range(0, 5000, 64), (390, 521, 600)):
        again = checked(draws, lp, pieces=pieces)
        assert [replace(a, seconds=0.0) for a in again.checks] == [
            replace(a, seconds=0.0) for a in rule.checks
        ]


@pytest.mark.parametrize("name", ["x", "lp"])
def test_chains_that_are_not_finite_end_at_the_first_check(rng, name):
    draws = {one: rng.standard_normal((4, 5000)) for one in ("x", "lp")}
    draws[name][2, 300:] = np.nan
    rule = checked(draws["x"], draws["lp"])
    assert (rule.ended, len(rule.checks)) == ("not_finite", 1)


def test_chains_end_where_more_draws_would_not_help():
    """As divergences, which do not become fewer."""
    rule = StoppingRule(Algorithm(), DrawCollector(), 5000, np.inf)
    failed = InterimVerdict(400, False, 1.0, 1.001, 2500.0, "x")
    short, stuck = replace(failed, ess=1500.0), replace(failed, r_hat=1.02)
    for found, ended in (
        ([failed], None),
        ([failed, failed], "failed"),
        ([failed, short], None),
        ([stuck, failed], None),
        ([failed, replace(failed, passed=True)], None),
        ([failed, replace(failed, r_hat=None)], None),
    ):
        rule.checks = found
        assert rule.ended == ended


def test_one_check_that_passes_is_not_enough():
    rule = StoppingRule(Algorithm(), DrawCollector(), 5000, 0.25)
    fine = InterimVerdict(400, True, 1.0, 1.001, 900.0, "x")
    first, second, third = (replace(fine, done=draws) for draws in (400, 520, 676))
    for found, ended in (
        ([first], None),
        ([first, replace(second, passed=False), third], None),
        ([replace(first, passed=False), second, third], "trusted"),
    ):
        rule.checks = found
        assert rule.ended == ended
    rule.fewest = 677
    assert rule.ended is None
    rule.fewest = 1
    rule.checks = [replace(fine, done=5000, passed=False)]
    assert rule.ended == "max_draws"


def test_minutes_end_warmup_and_draws_after_the_chunk_in_which_they_are_over(rng):
    """Chunks of a second each, of 100 draws or up to the next check."""
    draws = rng.standard_normal((4, 1000)) + np.arange(4)[:, None]
    lp = rng.standard_normal(draws.shape)
    for pieces, expected in (((), 520), (range(100, 1000, 100), 200)):
        rule = checked(draws, lp, seconds=1.5, pieces=pieces)
        assert (rule.ended, rule.checks[-1].done) == ("max_minutes", expected)
    rule = StoppingRule(Algorithm(), DrawCollector(), 5000, 1.5 / 60.0, warmup=30)
    for done, end in ((10, 30), (20, 20)):
        rule(Chunk("warmup", done, 30, {"lp": lp[:, :10]}, seconds=1.0))
        assert rule.next_end("warmup", done) == end


def test_a_check_judges_every_element_where_the_first_ones_pass(rng):
    """Of sixty, the one that stands apart is none of the fifty that are judged first."""
    values = rng.standard_normal((4, FIRST_CHECK, 60))
    (left_out, *_) = sorted(set(range(60)) - set(evenly_spaced(60, JUDGED_FIRST)))
    values[1, :, left_out] += 1.0
    statistics = {"lp": rng.standard_normal((4, FIRST_CHECK))}
    rule = StoppingRule(Algorithm(), DrawCollector(), 5000, np.inf)
    chunk = Chunk("draws", FIRST_CHECK, 5000, statistics, {"x": values}, 1.0)
    rule.collected(chunk)
    assert rule.judge(JUDGED_FIRST).passed
    rule(chunk)
    (found,) = rule.checks
    assert not found.passed
    alone = diagnose({"x": values[:, :, [left_out]]}, statistics, Algorithm()).quantities["x"]
    assert_equal_to_rounding(found.r_hat, alone.r_hat, operations=1e4)
    assert found.r_hat > 1.05


@pytest.mark.parametrize(
    ("judged", "apart", "passed"),
    [
        (("predictor", "weight"), 0.0, False),
        (("predictor",), 0.0, True),
        (("predictor",), 3.0, False),
    ],
)
def test_what_is_not_judged_does_not_keep_chains_going(judged, apart, passed, rng):
    """Such as weights, which may stand apart; of what is large the draws that are kept count."""
    values = {name: rng.standard_normal((4, FIRST_CHECK, 40)) for name in ("predictor", "weight")}
    values["weight"] += np.arange(4)[:, None, None]
    values["predictor"][1, :, ::5] += apart
    limits = {"predictor": Limit(values["predictor"].nbytes // 8)} if apart else LIMITS
    collected = DrawCollector(limits)
    rule = StoppingRule(Algorithm(), collected, 5000, np.inf, judged.__contains__)
    lp = {"lp": rng.standard_normal((4, FIRST_CHECK))}
    chunk = Chunk("draws", FIRST_CHECK, 5000, lp, values, 1.0)
    collected(chunk)
    rule(chunk)
    assert ("predictor" in collected.draws) is (apart == 0.0)
    assert rule.checks[0].passed is passed
