"""Chains on disk: only segments that hold what a checkpoint counts are used."""

import logging
import signal
from contextlib import contextmanager

import numpy as np
import pytest

from sampler.errors import InputError, RequeueError
from sampler.jobs import keeper as module
from sampler.jobs.interruption import Interruption
from sampler.jobs.keeper import (
    MOST_WAITING,
    ChainKeeper,
    load_chains,
    segment_arrays,
    settle,
)
from sampler.mcmc.algorithm import Algorithm
from sampler.mcmc.chains import Chunk
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.stopping import StoppingRule
from sampler.storage.checkpoint import read_sealed, write_sealed
from sampler.storage.run_directory import CHECKPOINT_SLOTS

CHAINS, WARMUP, DRAWS, STEPS = 2, 4, 12, 4


@pytest.fixture
def folder(tmp_path, rng):
    """Four segments of four steps, and the two newest checkpoints."""
    collected, folder = DrawCollector(), tmp_path / "checkpoint"
    keeper = ChainKeeper(folder, {"settings": {}}, Interruption())
    assert keeper.go_on(collected, every=0.0) is None
    for phase, total in (("warmup", WARMUP), ("draws", DRAWS)):
        for done in range(STEPS, total + 1, STEPS):
            values = {"lp": rng.standard_normal((CHAINS, STEPS))}
            drawn = {"predictor": rng.standard_normal((CHAINS, STEPS, 3))}
            state = {}, {"point": np.array([done])}
            chunk = Chunk(phase, done, total, values, drawn if phase == "draws" else {}, 1.0,
                          state=state)  # fmt: skip
            collected(chunk)
            keeper(chunk)
    return folder


def test_chains_that_go_on_leave_the_newest_checkpoint_and_count_the_seconds_before(folder, rng):
    newest = newest_slot(folder)
    before = (folder / newest).read_bytes()
    collected, keeper = DrawCollector(), ChainKeeper(folder, {"settings": {}}, Interruption())
    assert keeper.go_on(collected, every=0.0).done == DRAWS
    assert keeper.seconds_before == 1 + DRAWS // STEPS
    assert collected.seconds == {"warmup": 1.0, "draws": DRAWS // STEPS}
    drawn = (
        {"lp": np.zeros((CHAINS, STEPS))},
        {"predictor": rng.standard_normal((CHAINS, STEPS, 3))},
    )
    chunk = Chunk("draws", DRAWS + STEPS, DRAWS + STEPS, *drawn, 1.0, state=({}, {}))
    collected(chunk)
    keeper(chunk)
    assert newest_slot(folder) != newest
    assert (folder / newest).read_bytes() == before
    assert load_chains(folder).snapshot.done == DRAWS + STEPS


def test_draws_of_much_memory_are_saved_before_their_time(folder):
    collected = DrawCollector(predictor_bytes=2**40)
    keeper = ChainKeeper(folder, {"settings": {}}, Interruption())
    keeper.go_on(collected, every=1e9)
    numbers = MOST_WAITING // (3 * CHAINS * 4)  # in single precision, a third of the limit
    for count, saved in ((1, 0), (2, 0), (3, 3), (4, 3)):
        drawn = {"lp": np.zeros((CHAINS, 1))}, {"predictor": np.zeros((CHAINS, 1, numbers + 1))}
        chunk = Chunk("draws", DRAWS + count, 100, *drawn, 1.0, state=({}, {}))
        collected(chunk)
        keeper(chunk)
        assert load_chains(folder).snapshot.done == DRAWS + saved


def drawn_until(folder, values, stop: int) -> StoppingRule:
    """The rule of chains [chain, draw] that are judged on the way, left at so many draws or after.

    They go on from what the folder holds, by chunks of 40 draws.
    """
    collected = DrawCollector()
    rule = StoppingRule(Algorithm(), collected, values.shape[1], np.inf)
    keeper = ChainKeeper(folder, {"settings": {}}, Interruption())
    found = keeper.go_on(collected, every=1e9, rule=rule)
    done = 0 if found is None else found.done
    while (end := min(done + 40, rule.next_end("draws", done))) > done:
        part = {"lp": -(values[:, done:end] ** 2)}, {"x": values[:, done:end]}
        state = {}, {"point": np.array([end])}
        chunk = Chunk("draws", end, values.shape[1], *part, 1.0, state=state)
        if end >= stop:
            keeper.interruption.received = signal.SIGTERM
        collected(chunk)
        rule(chunk)
        try:
            keeper(chunk)
        except RequeueError:
            break
        done = end
    return rule


def test_chains_left_between_two_checks_that_pass_end_where_they_would_have(tmp_path, rng):
    values = rng.standard_normal((4, 5000))
    undisturbed = drawn_until(tmp_path / "whole", values, 5000)
    first, second = (one.draws for one in undisturbed.checks)
    assert undisturbed.ended == "trusted"
    left = drawn_until(tmp_path / "parts", values, first + 1)
    assert [one.draws for one in left.checks] == [first]
    assert first < load_chains(tmp_path / "parts").snapshot.done < second
    again = drawn_until(tmp_path / "parts", values, 5000)
    assert again.checks == undisturbed.checks
    for name in ("whole", "parts"):  # what the last check ended is saved
        stored = load_chains(tmp_path / name)
        assert stored.snapshot.done == second
        held = np.concatenate([chunk.observables["x"] for chunk in stored.chunks], axis=1)
        np.testing.assert_array_equal(held, values[:, :second])


def cut(folder, name: str, keys: str = "") -> str:
    """Leave out the last step of a segment; its seal is right. Returns the new checksum."""
    sealed = read_sealed(folder / name)
    shorter = {
        key: values[:, :-1] if key.startswith(keys) else values
        for key, values in sealed.arrays.items()
    }
    return write_sealed(folder / name, sealed.header, shorter)


def counted_again(folder, slot: str, name: str, checksum: str) -> None:
    """Let a checkpoint count the segment as it is now."""
    sealed = read_sealed(folder / slot)
    for entry in sealed.header["segments"]:
        if entry["file"] == name:
            entry["checksum"] = checksum
    write_sealed(folder / slot, sealed.header, sealed.arrays)


def newest_slot(folder) -> str:
    return max(CHECKPOINT_SLOTS, key=lambda name: read_sealed(folder / name).header["sequence"])


@contextmanager
def heard(caplog):
    """What the log says inside is in `caplog`."""
    logger = logging.getLogger("attention_posterior")
    with caplog.at_level(logging.WARNING, logger="attention_posterior"):
        logger.addHandler(caplog.handler)
        try:
            yield
        finally:
            logger.removeHandler(caplog.handler)


def loaded(folder, caplog):
    """What is found, and what the log says."""
    with heard(caplog):
        return load_chains(folder)


@pytest.mark.parametrize(
    ("keys", "counted"), [("", False), ("observable", True)], ids=["another seal", "its own seal"]
)
def test_a_sealed_segment_with_too_few_draws_is_not_used(keys, counted, folder, caplog):
    name = "segment-000003.bin"
    checksum = cut(folder, name, keys)
    if counted:
        counted_again(folder, newest_slot(folder), name, checksum)
    found = loaded(folder, caplog)
    assert found.snapshot.done == DRAWS - STEPS
    assert sum(chunk.draws for chunk in found.chunks if chunk.phase == "draws") == DRAWS - STEPS
    assert name in caplog.text
    assert ("steps instead of 4" if counted else "is not the segment that was counted") in (
        caplog.text
    )
    assert "going on from the checkpoint before it: draws, 8 of 12" in caplog.text


def test_a_checkpoint_that_lacks_a_segment_is_not_used(folder, caplog):
    slot = newest_slot(folder)
    sealed = read_sealed(folder / slot)
    header = {**sealed.header, "segments": sealed.header["segments"][:-1]}
    write_sealed(folder / slot, header, sealed.arrays)
    assert loaded(folder, caplog).snapshot.done == DRAWS - STEPS
    assert "segments hold 8 of 12 steps (draws)" in caplog.text


def test_draws_that_are_read_back_must_be_there_whole(folder, monkeypatch, caplog):
    """Segments were removed; what `draws.nc` has of a quantity may be moments of its draws."""
    expected = load_chains(folder).chunks
    steps = {"warmup": slice(0, 1), "draws": slice(1, None)}
    whole = {}
    for phase, part in steps.items():
        joined = segment_arrays(list(expected[part]), DrawCollector())
        tables = ({n.partition("/")[2]: v for n, v in joined.items() if n.startswith(kind)}
                  for kind in ("statistic", "observable"))  # fmt: skip
        done = expected[part][-1].done
        whole[phase] = Chunk(phase, done, done, *tables, 0.0)
    settle(folder)
    reduced = frozenset()
    monkeypatch.setattr(module, "_stored_draws", lambda _: module._StoredDraws(whole, reduced, {}))
    for one, other in zip(load_chains(folder).chunks, expected, strict=True):
        assert (one.phase, one.done) == (other.phase, other.done)
        for name, values in {**other.observables, **other.statistics}.items():
            np.testing.assert_array_equal({**one.observables, **one.statistics}[name], values)
    reduced = frozenset({"predictor"})
    with pytest.raises(InputError, match=r"draws\.nc holds some draws alone of predictor"):
        loaded(folder, caplog)


def test_a_segment_that_both_checkpoints_need_ends_the_run(folder, caplog):
    name = "segment-000001.bin"
    checksum = cut(folder, name)
    for slot in CHECKPOINT_SLOTS:
        counted_again(folder, slot, name, checksum)
    with pytest.raises(InputError, match=r"no checkpoint can be used \(.*segment-000001\.bin"):
        loaded(folder, caplog)
