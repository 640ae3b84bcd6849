"""Signals that ask to leave: what the last message names is saved, whenever they arrive.

The first sets a flag, one that comes later ends the process.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

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
from tests import ROOT

CHAINS, STEPS, CHUNKS = 2, 4, 4


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


def chunk(done: int, total: int = CHUNKS * STEPS) -> Chunk:
    values = np.arange(done - STEPS, done) * np.ones((CHAINS, 1))
    state = partial(Snapshot, "draws", done, {"point": np.array([done])})
    made = {"lp": -values}, {"predictor": values}, 1.0
    return Chunk("draws", done, total, *made, make_snapshot=state)


def keeper_of(folder: Path, interruption: Interruption, every: float) -> DrawKeeper:
    return DrawKeeper(Checkpoints(folder, {"settings": {}}, every), interruption)


def stored(folder: Path, name: str = "predictor") -> np.ndarray:
    """The draws in the newest checkpoint."""
    collected = DrawCollector()
    keeper_of(folder, Interruption(), 0.0).go_on(collected)
    return collected.draws[name]


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
            expected = np.arange(done) * np.ones((CHAINS, 1))
            np.testing.assert_array_equal(stored(folder), expected)
            seen.add(done)
    assert seen == set(range(STEPS, CHUNKS * STEPS + 1, STEPS))


def drawn_until(folder, values, stop: int) -> StoppingRule:
    """The rule of chains [chain, draw] that are judged on the way, left at so many draws or after.

    They go on from what the folder holds, by chunks of 40 draws.
    """
    collected = DrawCollector()
    rule = StoppingRule(Algorithm(), collected, values.shape[1], np.inf)
    keeper = keeper_of(folder, Interruption(), 1e9)
    earlier = keeper.go_on(collected, rule)
    done = 0 if earlier is None else earlier.done
    while (end := min(done + 40, rule.next_end("draws", done))) > done:
        part = {"lp": -(values[:, done:end] ** 2)}, {"x": values[:, done:end]}
        state = partial(Snapshot, "draws", end, {"point": np.array([end])})
        made = Chunk("draws", end, values.shape[1], *part, 1.0, make_snapshot=state)
        if end >= stop:
            keeper.interruption.ask(signal.SIGTERM)
        collected(made)
        rule(made)
        try:
            keeper(made)
        except RequeueError:
            break
        done = end
    return rule


def test_chains_left_between_two_checks_that_pass_end_where_they_would_have(tmp_path, rng):
    values = rng.standard_normal((4, 5000))
    undisturbed = drawn_until(tmp_path / "whole", values, 5000)
    first, second = (check.done for check in undisturbed.checks)
    assert undisturbed.ended == "trusted"
    left = drawn_until(tmp_path / "parts", values, first + 1)
    assert [check.done for check in left.checks] == [first]
    assert first < stored(tmp_path / "parts", "x").shape[1] < second
    again = drawn_until(tmp_path / "parts", values, 5000)
    assert again.checks == undisturbed.checks
    for name in ("whole", "parts"):  # what the last check ended is saved
        np.testing.assert_array_equal(stored(tmp_path / name, "x"), values[:, :second])


# --- processes

# Chains whose second chunk is written slowly: the file has another name until it is complete.
SAVING = """
import os, sys, time
from pathlib import Path
from sampler.errors import RequeueError
from sampler.jobs.interruption import listening
from sampler.mcmc.collected_draws import DrawCollector
from tests.processes.test_signals import STEPS, chunk, keeper_of

replace = os.replace
def slowly(*paths):
    print("listens", flush=True)
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        time.sleep(0.01)
    replace(*paths)

with listening() as interruption:
    collected = DrawCollector()
    keeper = keeper_of(Path(sys.argv[1]), interruption, 0.0)
    keeper.go_on(collected)
    for done in (STEPS, 2 * STEPS):
        collected(chunk(done))
        try:
            keeper(chunk(done))
        except RequeueError as left:
            print(left, flush=True)
            sys.exit(75)
        os.replace = slowly
"""
# Waits for a signal, and ends.
WAITING = """
import time
from sampler.jobs.interruption import listening
with listening() as interruption:
    print("listens", flush=True)
    while interruption.received is None:
        time.sleep(0.01)
    print(interruption.received.name, flush=True)
"""


@contextmanager
def program(text: str, *arguments: object, before: tuple[str, ...] = ()):
    """A program that listens; `before` are words of another one that starts it."""
    with subprocess.Popen(
        [*before, sys.executable, "-c", text, *map(str, arguments)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == "listens\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGUSR1])
def test_a_second_signal_in_a_save_ends_it_with_all_files_whole(first, tmp_path):
    folder = tmp_path / "chains"
    with program(SAVING.format(seconds=1000.0), folder) as process:
        process.send_signal(first)
        time.sleep(MOMENT + 0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == ExitCode.REQUEUE
    keeper, collected = keeper_of(folder, Interruption(), 0.0), DrawCollector()
    assert keeper.go_on(collected).done == STEPS
    collected(chunk(2 * STEPS))
    keeper(chunk(2 * STEPS))
    assert stored(folder).shape[1] == 2 * STEPS


@pytest.mark.slow
def test_one_signal_from_scheduler_and_script_is_one(tmp_path):
    """And what was ignored from the beginning stays so, as under nohup."""
    ignoring = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")
    with program(SAVING.format(seconds=1.0), tmp_path / "chains", before=ignoring) as process:
        process.send_signal(signal.SIGHUP)
        for _ in range(2):
            time.sleep(0.25 * MOMENT)
            process.send_signal(signal.SIGTERM)
        assert process.stdout.readline().startswith("SIGTERM received: draws 8 of ")
        assert process.wait(20.0) == 75
    with program(WAITING) as process:  # everything may be done already
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "SIGTERM\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == 0


def test_handlers_are_those_of_the_main_thread_and_put_back():
    def handlers() -> dict[int, Any]:
        return {each: signal.getsignal(each) for each in SIGNALS}

    def theirs(_number, _frame) -> None:
        """The handler of the program around."""

    def work() -> tuple[Any, dict]:
        with listening() as interruption:
            interruption.leave_if_asked("this")
            return interruption.received, handlers()

    before = {each: signal.signal(each, theirs) for each in SIGNALS}
    try:
        with ThreadPoolExecutor(1) as thread:  # which Python lets have none
            assert thread.submit(work).result() == (None, dict.fromkeys(SIGNALS, theirs))
        with listening():
            assert theirs not in handlers().values()
        assert set(handlers().values()) == {theirs}
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
