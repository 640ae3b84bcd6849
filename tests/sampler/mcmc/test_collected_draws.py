"""Draws gathered chunk by chunk, whole or every k-th of them."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sampler.mcmc.algorithm import Chunk
from sampler.mcmc.collected_draws import DrawCollector, Limit
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


def test_what_is_kept_of_a_large_predictor_is_diagnosed(rng):
    """Every fourth of 200 draws; a chain that stands elsewhere in one element is found there."""
    observables, statistics = some_draws(rng, 200)
    wide = single(rng.standard_normal((2, 200, 30, 1)))
    wide[1, :, -1] = single(wide[1, :, -1] + 1.0)
    limits = {"predictor": Limit(wide.nbytes // 2 // 3)}
    collected = collect({**observables, "predictor": wide}, statistics, limits=limits)
    np.testing.assert_array_equal(collected.judged["predictor"], wide[:, ::4])
    found = diagnose(collected.judged, statistics, NUTS)
    expected = diagnose({"predictor": wide[:, ::4, -1:]}, statistics, NUTS)
    received = found.quantities["predictor"].r_hat
    assert_equal_to_rounding(received, expected.quantities["predictor"].r_hat, operations=1e4)
    assert not found.passed


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
