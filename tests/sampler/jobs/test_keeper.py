"""Chains in checkpoints: what was gathered comes back from them."""

import signal
from functools import partial

import numpy as np
import pytest

from sampler.errors import RequeueError
from sampler.jobs.interruption import Interruption
from sampler.jobs.keeper import DrawKeeper
from sampler.mcmc.algorithm import Algorithm, Chunk, Snapshot
from sampler.mcmc.collected_draws import LIMITS, DrawCollector, Limit
from sampler.mcmc.stopping import StoppingRule
from sampler.storage.checkpoints import Checkpoints

CHAINS, WARMUP, DRAWS, STEPS, EXAMPLES = 2, 4, 24, 4, 12
# Limits with which predictors are kept whole, and with which they are thinned.
WHOLE, THINNED = LIMITS, {**LIMITS, "predictor": Limit(6 * CHAINS * EXAMPLES * 4)}


def chunks(rng, draws: int = DRAWS):
    """Chunks of a few steps: warm-up, then draws."""
    for phase, total in (("warmup", WARMUP), ("draws", draws)):
        for done in range(STEPS, total + 1, STEPS):
            shape = CHAINS, STEPS
            statistics = {"lp": rng.standard_normal(shape), "diverging": rng.random(shape) < 0.1}
            drawn = {
                "order_parameter": rng.standard_normal((*shape, 2, 2)),
                "predictor": rng.standard_normal((*shape, EXAMPLES, 1)),
                "predictor_validation": rng.standard_normal((*shape, 3, 1)),
            }
            drawn = drawn if phase == "draws" else {}
            state = partial(Snapshot, phase, done, {"point": np.array([done])})
            yield Chunk(phase, done, total, statistics, drawn, 1.0, make_snapshot=state)


def draw(folder, some, limits=WHOLE, every: float = 0.0) -> tuple[DrawKeeper, DrawCollector]:
    """Collect and keep the chunks that a checkpoint does not hold yet."""
    collected = DrawCollector(limits)
    keeper = DrawKeeper(Checkpoints(folder, {"settings": {}}, every))
    earlier = keeper.go_on(collected)
    for chunk in some:
        before = earlier is not None and chunk.phase != "draws" and earlier.phase == "draws"
        if before or (earlier and chunk.phase == earlier.phase and chunk.done <= earlier.done):
            continue
        collected(chunk)
        keeper(chunk)
    return keeper, collected


def assert_same(one: DrawCollector, other: DrawCollector) -> None:
    """All that two collectors have gathered, bit for bit."""
    assert one.arrays.keys() == other.arrays.keys()
    for key, values in one.arrays.items():
        np.testing.assert_array_equal(other.arrays[key], values, err_msg=key)
        assert other.arrays[key].dtype == values.dtype, key


@pytest.mark.parametrize("limits", [WHOLE, THINNED], ids=["whole", "thinned"])
@pytest.mark.parametrize("stop", range(1, 1 + DRAWS // STEPS))
def test_chains_that_go_on_have_gathered_the_same(limits, stop, tmp_path, rng):
    every = list(chunks(rng))
    _, expected = draw(tmp_path / "whole", every, limits)
    draw(tmp_path / "parts", every[:stop], limits)
    keeper, received = draw(tmp_path / "parts", every, limits)
    assert keeper.seconds_before == stop
    assert received.seconds == {"warmup": 1.0, "draws": DRAWS // STEPS}
    assert_same(received, expected)


def drawn_until(folder, values, stop: int) -> StoppingRule:
    """The rule of chains [chain, draw] that are judged on the way, left at so many draws or after.

    They go on from what the folder holds, by chunks of 40 draws.
    """
    collected = DrawCollector()
    rule = StoppingRule(Algorithm(), collected, values.shape[1], np.inf)
    checkpoints = Checkpoints(folder, {"settings": {}}, every=1e9)
    keeper = DrawKeeper(checkpoints, Interruption())
    earlier = keeper.go_on(collected, rule)
    done = 0 if earlier is None else earlier.done
    while (end := min(done + 40, rule.next_end("draws", done))) > done:
        part = {"lp": -(values[:, done:end] ** 2)}, {"x": values[:, done:end]}
        state = partial(Snapshot, "draws", end, {"point": np.array([end])})
        chunk = Chunk("draws", end, values.shape[1], *part, 1.0, make_snapshot=state)
        if end >= stop:
            keeper.interruption.ask(signal.SIGTERM)
        collected(chunk)
        rule(chunk)
        try:
            keeper(chunk)
        except RequeueError:
            break
        done = end
    return rule


def stored_draws(folder) -> np.ndarray:
    """Draws of `x` in the newest checkpoint."""
    collected = DrawCollector()
    DrawKeeper(Checkpoints(folder, {"settings": {}})).go_on(collected)
    return collected.draws["x"]


def test_chains_left_between_two_checks_that_pass_end_where_they_would_have(tmp_path, rng):
    values = rng.standard_normal((4, 5000))
    undisturbed = drawn_until(tmp_path / "whole", values, 5000)
    first, second = (check.done for check in undisturbed.checks)
    assert undisturbed.ended == "trusted"
    left = drawn_until(tmp_path / "parts", values, first + 1)
    assert [check.done for check in left.checks] == [first]
    assert first < stored_draws(tmp_path / "parts").shape[1] < second
    again = drawn_until(tmp_path / "parts", values, 5000)
    assert again.checks == undisturbed.checks
    for name in ("whole", "parts"):  # what the last check ended is saved
        np.testing.assert_array_equal(stored_draws(tmp_path / name), values[:, :second])
