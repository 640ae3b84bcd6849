"""Signals that ask to leave: what the last message names is saved, whenever they arrive.

The first sets a flag, one that comes later ends the process.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sampler.jobs.keeper
from sampler.errors import ExitCode, RequeueError
from sampler.jobs.interruption import MOMENT, SIGNALS, Interruption, listening
from sampler.jobs.keeper import DrawKeeper
from sampler.mcmc.algorithm import Algorithm, Chunk, Snapshot
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.stopping import StoppingRule
from sampler.storage.checkpoints import Checkpoints

STEPS, CHUNKS = 4, 4
COUNTED = np.arange(STEPS * CHUNKS) * np.ones((2, 1))


def chunk(end: int, values: np.ndarray = COUNTED, size: int = STEPS) -> Chunk:
    """The draws of chains [chain, draw] up to one of them."""
    state = partial(Snapshot, "draws", end, {"point": np.array([end])})
    drawn = values[:, end - size : end]
    made = {"lp": -(drawn**2)}, {"x": drawn}, 1.0
    return Chunk("draws", end, values.shape[1], *made, make_snapshot=state)


def keeper_of(folder: Path, interruption: Interruption, every: float) -> DrawKeeper:
    return DrawKeeper(Checkpoints(folder, {"settings": {}}, every), interruption)


def stored(folder: Path) -> np.ndarray:
    """The draws in the newest checkpoint."""
    collected = DrawCollector()
    keeper_of(folder, Interruption(), 0.0).go_on(collected)
    return collected.draws["x"]


@contextmanager
def before_line(number: int, path: str, ask: Callable[[], None]) -> Iterator[None]:
    """Inside, `ask` is called before the n-th line of a file that is carried out."""
    left, before = number, sys.gettrace()

    def in_file(frame, event, _):
        nonlocal left
        left -= event == "line"
        if event == "line" and left == 0:
            ask()
        return in_file

    sys.settrace(lambda frame, *_: in_file if frame.f_code.co_filename == path else None)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.slow
@pytest.mark.parametrize("every", [0.0, 1e9], ids=["each", "none"])
def test_draws_that_are_said_to_be_saved_are(every, tmp_path):
    """The signal arrives before any line of the keeper: between a save and the look for it, too."""
    number, seen, left = 0, set(), True
    while left:
        number, left, interruption = number + 1, False, Interruption()
        folder, collected, ask = tmp_path / f"{number}", DrawCollector(), interruption.ask
        keeper = keeper_of(folder, interruption, every)
        with before_line(number, sampler.jobs.keeper.__file__, partial(ask, signal.SIGTERM)):
            try:
                keeper.go_on(collected)
                for done in range(STEPS, CHUNKS * STEPS + 1, STEPS):
                    collected(chunk(done))
                    keeper(chunk(done))
            except RequeueError as problem:
                left, text = True, str(problem)
        if left:
            assert text == f"SIGTERM received: draws {done} of {CHUNKS * STEPS} is saved"
            np.testing.assert_array_equal(stored(folder), COUNTED[:, :done])
            seen.add(done)
    assert seen == set(range(STEPS, CHUNKS * STEPS + 1, STEPS))


def drawn_until(folder: Path, values: np.ndarray, stop: int) -> StoppingRule:
    """The rule of chains that are judged on the way, left at so many draws or after.

    They go on from what the folder holds, by chunks of 40 draws.
    """
    collected = DrawCollector()
    rule = StoppingRule(Algorithm(), collected, values.shape[1], np.inf)
    keeper = keeper_of(folder, Interruption(), 1e9)
    earlier = keeper.go_on(collected, rule)
    done = 0 if earlier is None else earlier.done
    while (end := min(done + 40, rule.next_end("draws", done))) > done:
        made = chunk(end, values, end - done)
        if end >= stop:
            keeper.interruption.ask(signal.SIGTERM)
        for listen in (collected, rule, keeper):
            try:
                listen(made)
            except RequeueError:
                return rule
        done = end
    return rule


def test_chains_left_between_two_checks_that_pass_end_where_they_would_have(tmp_path, rng):
    values = rng.standard_normal((4, 5000))
    undisturbed = drawn_until(tmp_path / "whole", values, 5000)
    first, second = (check.done for check in undisturbed.checks)
    assert undisturbed.ended == "trusted"
    left = drawn_until(tmp_path / "parts", values, first + 1)
    assert [check.done for check in left.checks] == [first]
    assert first < stored(tmp_path / "parts").shape[1] < second
    again = drawn_until(tmp_path / "parts", values, 5000)
    assert again.checks == undisturbed.checks
    for name in ("whole", "parts"):  # what the last check ended is saved
        np.testing.assert_array_equal(stored(tmp_path / name), values[:, :second])


# --- the first and the second signal


def test_what_arrives_within_a_moment_is_one_signal_and_a_later_one_ends_the_process(monkeypatch):
    """As from a scheduler and from the script of its job."""
    ended, clock = [], SimpleNamespace(now=100.0)
    monkeypatch.setattr("sampler.jobs.interruption.time.monotonic", lambda: clock.now)
    monkeypatch.setattr("sampler.jobs.interruption.os._exit", ended.append)
    interruption = Interruption()
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
        interruption(number, None)
        clock.now += 0.4 * MOMENT
    with pytest.raises(RequeueError, match="SIGTERM received: this is saved"):
        interruption.leave_if_asked("this")
    assert not ended
    interruption(signal.SIGTERM, None)
    assert ended == [ExitCode.REQUEUE]


def test_handlers_are_those_of_the_main_thread_and_put_back():
    """And what was ignored from the beginning stays so, as under nohup."""

    def handlers() -> list:
        return [signal.getsignal(each) for each in SIGNALS]

    def theirs(_number, _frame) -> None:
        """The handler of the program around."""

    def work() -> list:
        with listening():
            return handlers()

    def is_caught(handler) -> bool:
        return isinstance(handler, Interruption)

    before = {each: signal.signal(each, theirs) for each in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    expected = [signal.SIG_IGN if each == signal.SIGHUP else theirs for each in SIGNALS]
    try:
        with ThreadPoolExecutor(1) as thread:  # which Python lets have none
            assert thread.submit(work).result() == expected
        assert [is_caught(one) for one in work()] == [one is theirs for one in expected]
        assert handlers() == expected
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
