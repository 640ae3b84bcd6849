"""Draws observed and gathered chunk by chunk, whole or every k-th of them."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampler.mcmc.algorithm import Chunk
from sampler.mcmc.collected_draws import EVERY, LIMITS, MANY_NUMBERS, DrawCollector, Limit
from sampler.mcmc.observer import Observer
from sampler.streams import Stream, jax_key
from tests.assertions import assert_equal_to_rounding
from tests.problems import chain_settings, collect, healthy_statistics, random_problem, space_of
from theory import Architecture


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


DRAWS = 60


def stride_for(draws: int, most: int) -> int:
    """The smallest power of two of which at most so many draws are left, or two of them."""
    return next(2**k for k in range(10) if -(-draws // 2**k) <= max(2, most))


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.sets(st.integers(1, DRAWS - 1), max_size=10),
    kept=st.integers(0, DRAWS + 5),
    wanted=st.integers(1, DRAWS),
    stored=st.booleans(),
)
def test_what_is_kept_depends_on_no_chunk(cuts, kept, wanted, stored):
    """Everything of what is small, every k-th draw of what is large, the smallest k that fits.

    Also where every chunk goes to another collector, which goes on from what is stored. Of what is
    limited by a number of draws there are never all.
    """
    observables, statistics = some_draws(np.random.default_rng(3), DRAWS)
    observables["predictor_validation"] = single(observables["predictor"] + 1.0)
    of_draw = observables["predictor"].nbytes // 2 // DRAWS
    limits = {"predictor": Limit(kept * of_draw), "predictor_validation": Limit(most=wanted)}
    collected, ends = DrawCollector(limits), [0, *sorted(cuts), DRAWS]
    for start, end in pairwise(ends):
        parts = [
            {name: values[:, start:end] for name, values in one.items()}
            for one in (statistics, observables)
        ]
        collected(Chunk("draws", end, DRAWS, *parts, 0.5))
        if stored:
            other = DrawCollector(limits)
            other.restore({key: values.copy() for key, values in collected.arrays.items()})
            collected = other
    strides = {
        "order_parameter": None,
        "predictor": stride if (stride := stride_for(DRAWS, kept)) > 1 else None,
        "predictor_validation": stride_for(DRAWS, wanted),
    }
    for name, stride in strides.items():
        if stride is None:
            values = collected.draws[name]
        else:
            assert name not in collected.draws
            values = collected.thinned[name].values
            assert collected.thinned[name].draws.tolist() == list(range(0, DRAWS, stride))
        np.testing.assert_array_equal(values, observables[name][:, ::stride], err_msg=name)
    for name, values in statistics.items():
        np.testing.assert_array_equal(collected.statistics[name], values)
    assert collected.seconds == {"warmup": 0.0, "draws": 0.5 * (len(ends) - 1)}


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


# --- what is observed: everything of all draws, large predictors of every eighth


LARGE, CHAINS, OBSERVED, FIRST = 150, 2, 21, 300
SETTINGS = chain_settings(chains=CHAINS, warmup=12, draws=OBSERVED, seed=3)
ARCHITECTURE = Architecture((2,), (3, 4), (1.1, 0.8, 1.2), channels=3, outputs=2)


def space_named(name):
    rng = np.random.default_rng(4)
    problem = random_problem(ARCHITECTURE, rng, temperature=0.3)
    test = jnp.asarray(rng.standard_normal((LARGE, 2, 3)))
    return space_of(problem, name, test, whitened=False)


def points_of(space) -> np.ndarray:
    return 0.5 * np.random.default_rng(5).standard_normal((CHAINS, OBSERVED, space.size))


def one_by_one(space, points, numbers):
    """Name → [chain, draw, …] of every draw, as the space itself observes it."""
    keys = jax.random.split(jax_key(SETTINGS.seed, Stream.OBSERVATIONS), CHAINS)
    observe = jax.jit(lambda key, point: space.observe(key, space.unflatten(point)))
    rows = [
        [observe(jax.random.fold_in(key, n), x) for n, x in zip(numbers, of_chain, strict=True)]
        for key, of_chain in zip(keys, points, strict=True)
    ]
    return {
        name: np.array([[draw[name] for draw in of_chain] for of_chain in rows])
        for name in rows[0][0]
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["order_parameters", "hidden_weights", "weights"])
def test_what_overlaps_do_not_tell_is_observed_of_all_draws(name):
    """Where they do, large predictors are those of every eighth draw from the first of a chain."""
    space, first, begins = space_named(name), FIRST, FIRST - 3
    points, numbers = points_of(space), first + np.arange(OBSERVED)
    assert LARGE * ARCHITECTURE.outputs >= MANY_NUMBERS
    found = Observer.of(space, SETTINGS)(points, first, begins)
    expected, due = one_by_one(space, points, numbers), (numbers - begins) % EVERY == 0
    thinned = ["predictor", "predictor_mean", "predictor_variance"]
    thinned = thinned if name == "order_parameters" else []
    predictors = {n: expected.pop(n) for n in thinned}
    assert set(found.observables) == set(expected)
    assert set(found.thinned) == set(predictors)
    for of, values in expected.items():
        assert_equal_to_rounding(found.observables[of], values, operations=1e4)
    for of, values in predictors.items():
        assert_equal_to_rounding(found.thinned[of], values[:, due], operations=1e4)


@pytest.mark.parametrize("lengths", [(1, 4, 3, 13), (8, 8, 5), (20, 1)])
def test_nothing_depends_on_the_chunks_in_which_draws_come(lengths):
    space = space_named("order_parameters")
    points, observe = points_of(space), Observer.of(space, SETTINGS)
    whole, ends = observe(points, FIRST), np.cumsum((0, *lengths))
    pieces = [observe(points[:, a:b], FIRST + int(a)) for a, b in pairwise(ends)]
    for part in whole._fields:
        for name, values in getattr(whole, part).items():
            joined = np.concatenate([getattr(piece, part)[name] for piece in pieces], axis=1)
            np.testing.assert_array_equal(joined, values, err_msg=f"{part} {name}")


def test_a_collector_of_thinned_draws_is_that_of_all(rng):
    """Of every eighth draw it keeps what it keeps of all, where there are too many: every 16th."""
    draws, numbers = 1000, 4 * MANY_NUMBERS
    values = rng.standard_normal((2, draws, numbers, 1)).astype(np.float32)
    statistics = healthy_statistics(rng, (2, draws))
    limits = {**LIMITS, "predictor": Limit(values[:, : draws // EVERY].nbytes - 1)}
    every, thinned = DrawCollector(limits), DrawCollector(limits)
    for start, end in pairwise((0, 1, 5, 21, 85, 149, 500, 1000)):
        lp = {name: v[:, start:end] for name, v in statistics.items()}
        due = np.arange(start, end) % EVERY == 0
        part = values[:, start:end]
        every(Chunk("draws", end, draws, lp, {"predictor": part}))
        thinned(Chunk("draws", end, draws, lp, thinned={"predictor": part[:, due]}))
    one, other = every.thinned["predictor"], thinned.thinned["predictor"]
    np.testing.assert_array_equal(one.draws, other.draws)
    np.testing.assert_array_equal(one.values, other.values)
    assert one.draws[1] == 2 * EVERY
    # What follows from order parameters is not judged.
    assert "predictor" in every.judged
    assert "predictor" not in thinned.judged
