"""Signals that ask to stop: the first sets a flag, one that comes later ends the process."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from sampler.errors import ExitCode
from sampler.jobs.interruption import MOMENT, SIGNALS, listening

# It works for some seconds after a first signal.
PROGRAM = """
import time
from sampler.jobs.interruption import listening
with listening() as interruption:
    print("listens", flush=True)
    while interruption.received is None:
        time.sleep(0.01)
    print(interruption.received.name, flush=True)
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        time.sleep(0.01)
"""


@contextmanager
def program(seconds: float, *before: str):
    """The program; `before` are words of another one that starts it."""
    with subprocess.Popen(
        [*before, sys.executable, "-c", PROGRAM.format(seconds=seconds)],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == "listens\n"
            yield process
        finally:
            process.kill()


@pytest.mark.heavy
def test_one_signal_from_scheduler_and_script_is_one():
    """It may come when everything is saved already."""
    with program(0.0) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "SIGTERM\n"
        time.sleep(0.25 * MOMENT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == 0


@pytest.mark.heavy
def test_a_later_signal_ends_the_process_at_once():
    with program(1000.0) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "SIGUSR1\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(MOMENT + 0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == ExitCode.REQUEUE


@pytest.mark.heavy
def test_one_that_was_ignored_from_the_beginning_stays_so():
    """As under nohup; the others are heard."""
    with program(0.0, "sh", "-c", "trap '' HUP; exec \"$@\"", "sh") as process:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "SIGTERM\n"
        assert process.wait(20.0) == 0


def handlers() -> dict[int, Any]:
    return {each: signal.getsignal(each) for each in SIGNALS}


def test_a_thread_goes_on_without_handlers():
    """Python lets none but the main thread have them."""
    before = handlers()

    def work() -> tuple[Any, dict]:
        with listening() as interruption:
            interruption.leave_if_asked("this")
            return interruption.received, handlers()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(work).result() == (None, before)


def test_handlers_are_put_back():
    def theirs(_number, _frame) -> None:
        """The handler of the program around."""

    before = {each: signal.signal(each, theirs) for each in handlers()}
    try:
        with listening():
            assert theirs not in handlers().values()
        assert set(handlers().values()) == {theirs}
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
