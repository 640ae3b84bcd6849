"""Draws gathered chunk by chunk, whole or every k-th of them."""

import numpy as np

from sampler.mcmc.algorithm import Chunk
from sampler.mcmc.collected_draws import LIMITS, MOST_THINNED, DrawCollector, Limit
from sampler.mcmc.diagnostics import diagnose
from tests.assertions import assert_equal_to_rounding
from tests.problems import NUTS
from tests.small import collect, healthy_statistics


def single(values):
    """The same numbers, rounded as predictors are."""
    return values.astype(np.float32).astype(np.float64)


def some_draws(rng, draws=60):
    shape = (2, draws)
    observables = {
        "order_parameter": rng.standard_normal((*shape, 2, 2)),
        "predictor": single(3.0 + rng.standard_normal((*shape, 5, 1))),
    }
    return observables, healthy_statistics(rng, shape)


def test_chunks_are_joined_in_order(rng):
    observables, statistics = some_draws(rng)
    for pieces in (1, 4, 7):
        collected = collect(observables, statistics, pieces=pieces)
        assert not collected.thinned
        for expected, received in (
            (observables, collected.draws),
            (statistics, collected.statistics),
            (statistics, collected.warmup_statistics),
        ):
            assert set(received) == set(expected)
            for name, values in expected.items():
                np.testing.assert_array_equal(received[name], values)
        assert collected.seconds == {"warmup": 1.0, "draws": 0.5 * pieces}


def test_of_a_predictor_above_the_limit_every_kth_draw_is_kept_and_of_nothing_else(rng):
    """Of 60 draws as many as are within the limit, after halvings."""
    observables, statistics = some_draws(rng)
    values = observables["predictor"]
    of_draw = values.nbytes // 2 // 60
    enough = {"predictor": Limit(60 * of_draw)}
    assert "predictor" in collect(observables, statistics, limits=enough).draws
    for draws, stride in ((59, 2), (30, 2), (29, 4), (14, 8), (0, 32)):
        for pieces in (1, 7):
            limits = {"predictor": Limit(draws * of_draw)}
            collected = collect(observables, statistics, pieces=pieces, limits=limits)
            assert set(collected.draws) == {"order_parameter"}
            thinned = collected.thinned["predictor"]
            assert thinned.draws.tolist() == list(range(0, 60, stride))
            np.testing.assert_array_equal(thinned.values, values[:, ::stride])


def test_what_is_kept_of_a_large_predictor_is_diagnosed(rng):
    """Every fourth of 200 draws; a chain that stands elsewhere in one element is found there."""
    observables, statistics = some_draws(rng, 200)
    wide = single(rng.standard_normal((2, 200, 30, 1)))
    wide[1, :, -1] = single(wide[1, :, -1] + 1.0)
    for pieces in (1, 7):
        limits = {"predictor": Limit(wide.nbytes // 2 // 3)}
        both = {**observables, "predictor": wide}
        collected = collect(both, statistics, pieces=pieces, limits=limits)
        np.testing.assert_array_equal(collected.judged["predictor"], wide[:, ::4])
        found = diagnose(collected.judged, statistics, NUTS)
        expected = diagnose({"predictor": wide[:, ::4, -1:]}, statistics, NUTS)
        received = found.quantities["predictor"].r_hat
        assert_equal_to_rounding(received, expected.quantities["predictor"].r_hat, operations=1e4)
        assert not found.passed


def test_a_predictor_of_which_few_draws_are_wanted_is_thinned(rng):
    draws = 3 * MOST_THINNED
    values = single(rng.standard_normal((2, draws, 5, 1)))
    statistics = healthy_statistics(rng, (2, draws))
    for pieces in (1, 6):
        collected = collect({"predictor_validation": values}, statistics, pieces=pieces)
        assert not collected.draws
        thinned = collected.thinned["predictor_validation"]
        assert thinned.draws.tolist() == list(range(0, draws, 4))
        np.testing.assert_array_equal(thinned.values, values[:, thinned.draws])


def test_what_draws_say_of_examples_is_thinned_to_what_is_kept(rng):
    """A hundred draws fit: of 250 every fourth is left, after two halvings."""
    values = rng.standard_normal((2, 250, 6)).astype(np.float32)
    limits = {"log_likelihood": Limit(values[:, :100].nbytes)}
    for pieces in (1, 9):
        statistics = healthy_statistics(rng, (2, 250))
        collected = collect({"log_likelihood": values}, statistics, pieces=pieces, limits=limits)
        thinned = collected.thinned["log_likelihood"]
        assert thinned.draws.tolist() == list(range(0, 250, 4))
        np.testing.assert_array_equal(thinned.values, values[:, ::4])


def test_a_collector_goes_on_from_what_another_one_stored(rng):
    """At every chunk, before, while and after quantities grow too large: the same bits."""
    draws, pieces, each = 480, 12, 40
    observables, statistics = some_draws(rng, draws)
    observables["predictor_validation"] = observables["predictor"] + 1.0
    limits = {**LIMITS, "predictor": Limit(observables["predictor"].nbytes // 6)}
    expected = collect(observables, statistics, pieces=pieces, limits=limits)
    first = DrawCollector(limits)
    for end in range(each, draws + 1, each):
        cut = slice(end - each, end)
        parts = [{n: v[:, cut] for n, v in p.items()} for p in (statistics, observables)]
        first(Chunk("draws", end, draws, *parts, 0.5))
        # As another process finds it.
        second = DrawCollector(limits)
        second.restore({key: values.copy() for key, values in first.arrays.items()})
        first = second
    for one, other in (
        (expected.draws["order_parameter"], first.draws["order_parameter"]),
        (expected.thinned["predictor"].values, first.thinned["predictor"].values),
        (expected.thinned["predictor_validation"].values,
         first.thinned["predictor_validation"].values),
        (expected.statistics["lp"], first.statistics["lp"]),
    ):  # fmt: skip
        np.testing.assert_array_equal(one, other)


def test_totals_are_those_of_warmup_and_draws(rng):
    observables, statistics = some_draws(rng)
    statistics["diverging"][0, :5] = True
    collected = collect(observables, statistics, pieces=4)
    # Warm-up has the same statistics as the draws here.
    assert collected.total("n_steps") == 2 * statistics["n_steps"].sum()
    assert collected.total("diverging") == 10
    assert collected.total(None) == collected.total("absent") == 0


def test_chains_that_come_one_after_the_other_are_rows(rng):
    """Whatever is kept, it is what is kept of all of them side by side."""
    observables, statistics = some_draws(rng, 40)
    both = {name: np.concatenate([values] * 3) for name, values in observables.items()}
    lps = np.concatenate([statistics["lp"]] * 3)
    limits = {"predictor": Limit(both["predictor"].nbytes // 7)}
    expected = collect(both, {"lp": lps}, limits=limits)
    received = DrawCollector(limits)
    for first in range(0, 6, 2):
        steps = rng.integers(1, 9, (2, first + 1))
        received(Chunk("warmup", 0, 1, {"n_steps": steps, "power": steps / 2}, first=first))
        cut = slice(first, first + 2)
        drawn = {name: values[cut] for name, values in both.items()}
        received(Chunk("draws", 1, 3, {"lp": lps[cut]}, drawn, first=first))
        again = DrawCollector(limits)
        again.restore(received.arrays)
        received = again
    assert expected.thinned["predictor"].draws.tolist() == list(range(0, 40, 4))
    for one, other in (
        (expected.thinned["predictor"].values, received.thinned["predictor"].values),
        (expected.draws["order_parameter"], received.draws["order_parameter"]),
        (expected.statistics["lp"], received.statistics["lp"]),
    ):
        np.testing.assert_array_equal(one, other)
    # Of warm-ups of one, three and five steps the longest has a number in every column.
    path = received.warmup_statistics
    assert np.isnan(path["power"]).sum() == 2 * (4 + 2)
    assert path["n_steps"].sum() == 2 * np.nansum(path["power"]) == received.total("n_steps")


def test_what_belongs_to_no_kept_chain_counts_in_totals_alone():
    received = DrawCollector()
    received(Chunk("warmup", 0, 1, {"n_steps": np.array([[40]])}, seconds=2.0, first=None))
    received(Chunk("warmup", 0, 1, {"n_steps": np.array([[2]])}, seconds=1.0))
    again = DrawCollector()
    again.restore(received.arrays)
    for collected in (received, again):
        assert collected.total("n_steps") == 42
        assert collected.seconds["warmup"] == 3.0
        assert collected.warmup_statistics["n_steps"].tolist() == [[2]]
