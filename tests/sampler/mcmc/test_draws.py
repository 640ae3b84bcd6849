"""Draws gathered chunk by chunk, whole or as moments of batches."""

import numpy as np

from sampler.analysis.estimate import mean_of_batches, variance_of_batches
from sampler.mcmc.draws import BATCHES_PER_CHAIN
from tests.assertions import assert_equal_to_rounding
from tests.small import collect, healthy_statistics


def some_draws(rng, draws=60):
    shape = (2, draws)
    observables = {
        "order_parameter": rng.standard_normal((*shape, 2, 2)),
        "predictor": 3.0 + rng.standard_normal((*shape, 5, 1)),
    }
    return observables, healthy_statistics(rng, shape)


def test_chunks_are_joined_in_order(rng):
    observables, statistics = some_draws(rng)
    for pieces in (1, 4, 7):
        collected = collect(observables, statistics, pieces=pieces)
        assert not collected.moments
        for expected, received in (
            (observables, collected.draws),
            (statistics, collected.statistics),
            (statistics, collected.warmup_statistics),
        ):
            assert set(received) == set(expected)
            for name, values in expected.items():
                np.testing.assert_array_equal(received[name], values)
        assert collected.seconds == {"warmup": 1.0, "draws": 0.5 * pieces}


def test_a_predictor_above_the_limit_becomes_moments_and_nothing_else_does(rng):
    observables, statistics = some_draws(rng)
    size = observables["predictor"].nbytes
    assert "predictor" in collect(observables, statistics, kept_bytes=size).draws
    collected = collect(observables, statistics, kept_bytes=size - 1)
    assert set(collected.draws) == {"order_parameter"}
    assert set(collected.moments) == {"predictor"}
    # the limit does not touch what the diagnostics need
    assert set(collect(observables, statistics, kept_bytes=0).draws) == {"order_parameter"}


def test_batch_moments_do_not_depend_on_chunks_and_are_those_of_the_draws(rng):
    draws = 3 * BATCHES_PER_CHAIN
    observables, statistics = some_draws(rng, draws)
    batches = observables["predictor"].reshape(2, BATCHES_PER_CHAIN, 3, 5, 1)
    for pieces in (1, 4, 7):
        moments = collect(observables, statistics, pieces=pieces, kept_bytes=0).moments["predictor"]
        assert moments.batch_size == 3
        assert_equal_to_rounding(moments.mean, batches.mean(axis=2), operations=4)
        assert_equal_to_rounding(moments.mean_square, (batches**2).mean(axis=2), operations=5)
    rounding = {"operations": 2 * draws, "scale": (observables["predictor"] ** 2).max()}
    expected = observables["predictor"].mean(axis=(0, 1))
    assert_equal_to_rounding(mean_of_batches(moments).value, expected, **rounding)
    expected = observables["predictor"].var(axis=(0, 1), ddof=1)
    assert_equal_to_rounding(variance_of_batches(moments).value, expected, **rounding)


def test_an_incomplete_last_batch_is_left_out(rng):
    draws = 3 * BATCHES_PER_CHAIN + 2
    observables, statistics = some_draws(rng, draws)
    moments = collect(observables, statistics, kept_bytes=0).moments["predictor"]
    assert moments.mean.shape == (2, BATCHES_PER_CHAIN, 5, 1)
    expected = observables["predictor"][:, : draws - 2].mean(axis=(0, 1))
    received = mean_of_batches(moments).value
    assert_equal_to_rounding(received, expected, operations=2 * draws)


def test_single_precision_draws_are_summed_in_double_precision(rng):
    observables, statistics = some_draws(rng)
    single = {name: values.astype(np.float32) for name, values in observables.items()}
    moments = collect(single, statistics, kept_bytes=0).moments["predictor"]
    expected = single["predictor"].astype(float).mean(axis=(0, 1))
    assert moments.mean.dtype == np.float64
    assert_equal_to_rounding(mean_of_batches(moments).value, expected, operations=120)


def test_totals_are_those_of_warmup_and_draws(rng):
    observables, statistics = some_draws(rng)
    statistics["diverging"][0, :5] = True
    collected = collect(observables, statistics, pieces=4)
    # Warm-up has the same statistics as the draws here.
    assert collected.total("n_steps") == 2 * statistics["n_steps"].sum()
    assert collected.total("diverging") == 10
    assert collected.total(None) == collected.total("absent") == 0
