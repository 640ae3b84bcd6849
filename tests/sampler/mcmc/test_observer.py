"""What is observed of draws: everything of all, large predictors of every eighth."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sampler.mcmc import observer as observer_of
from sampler.mcmc.algorithm import Chunk
from sampler.mcmc.collected_draws import EVERY, LIMITS, MANY_NUMBERS, DrawCollector, Limit
from sampler.mcmc.observer import Observer
from sampler.streams import Stream, jax_key
from tests.assertions import assert_equal_to_rounding
from tests.problems import SPLIT_HMC, chain_settings, random_problem, space_of
from tests.small import healthy_statistics
from theory import Architecture

LARGE, SMALL, CHAINS, DRAWS = 150, 5, 2, 21
MORE = 70
FIRST = 300
SETTINGS = chain_settings(chains=CHAINS, warmup=12, draws=DRAWS, seed=3)
ARCHITECTURE = Architecture((2,), (3, 4), (1.1, 0.8, 1.2), channels=3, outputs=2)
SPACES = ("order_parameters", "hidden_weights", "weights")


def space_named(name, tests=LARGE):
    rng = np.random.default_rng(4)
    problem = random_problem(ARCHITECTURE, rng, temperature=0.3)
    test = jnp.asarray(rng.standard_normal((tests, 2, 3)))
    return space_of(problem, name, test, whitened=False)


def points_of(space) -> np.ndarray:
    return 0.5 * np.random.default_rng(5).standard_normal((CHAINS, DRAWS, space.size))


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
@pytest.mark.parametrize("name", SPACES)
def test_what_overlaps_do_not_tell_is_observed_of_all_draws(name):
    """Where they do, large predictors are those of every eighth draw."""
    space, first = space_named(name), FIRST
    points, numbers = points_of(space), first + np.arange(DRAWS)
    assert LARGE * ARCHITECTURE.outputs >= MANY_NUMBERS
    found = Observer.of(space, SETTINGS)(points, first)
    expected, due = one_by_one(space, points, numbers), numbers % EVERY == 0
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


def test_chains_that_begin_later_are_thinned_from_their_own_first_draw():
    space = space_named("order_parameters")
    points, observe = points_of(space), Observer.of(space, SETTINGS)
    shifted, whole = observe(points, 1003, begins=1003), observe(points, 0)
    np.testing.assert_allclose(
        shifted.thinned["predictor_variance"], whole.thinned["predictor_variance"], rtol=1e-12
    )


def gathered(space, resume=None, collected=None) -> tuple[DrawCollector, list]:
    """What a run gathers, and for every chunk its snapshot with what was gathered by then."""
    collected, stops = DrawCollector() if collected is None else collected, []

    def on_chunk(chunk):
        collected(chunk)
        stops.append((chunk.snapshot, collected.arrays))

    SPLIT_HMC.draw(space, replace(SETTINGS, draws=MORE), on_chunk, resume)
    return collected, stops


@pytest.mark.slow
def test_chains_gather_the_same_in_chunks_of_odd_lengths_and_where_they_go_on(monkeypatch):
    space = space_named("order_parameters")
    whole, _ = gathered(space)
    monkeypatch.setattr(observer_of, "CHUNK_DRAWS", 3)
    monkeypatch.setattr("sampler.mcmc.chains.CHUNK_SECONDS", 1e3)
    pieces, stops = gathered(space)
    assert whole.thinned["predictor_variance"].draws.tolist() == list(range(0, MORE, EVERY))
    snapshot, arrays = next(s for s in stops if (s[0].phase, s[0].done) == ("draws", 46))
    rest = DrawCollector()
    rest.restore(arrays)
    gathered(space, snapshot, rest)
    for other in (pieces, rest):
        assert_same_arrays(other.arrays, whole.arrays)


def assert_same_arrays(received, expected):
    assert set(received) == set(expected)
    for name, values in expected.items():
        if not name.startswith("seconds"):
            np.testing.assert_array_equal(received[name], values, err_msg=name)


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
