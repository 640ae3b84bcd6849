"""Signals to a program in one long step of Python's, which hears none of them until its end."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from sampler.errors import ExitCode, RequeueError
from sampler.jobs.interruption import (
    FIRST,
    MOMENT,
    SIGNALS,
    listening,
    second_signal_ends,
    step_in_work,
)
from tests.problems import all_but

pytestmark = pytest.mark.usefixtures("interruptible")
# As in a compilation, Python is not held meanwhile, and no signal cuts the step short.
DEAF = """
import hashlib
from sampler.jobs.interruption import listening
with listening(lambda: "here is more") as interruption:
    print("deaf", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", {rounds})
    print("heard", interruption.received.name, flush=True)
"""
SHORT, LONG = 3_000_000, 300_000_000


@contextmanager
def deaf_program(rounds: int, *before: str):
    """The program in its step; `before` are words of another one that starts it."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", DEAF.format(rounds=rounds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout.readline() == "deaf\n"
            time.sleep(0.2)  # in the step by now
            yield process
        finally:
            process.kill()


@pytest.mark.heavy
def test_the_second_one_ends_it_and_says_so():
    with deaf_program(LONG) as process:
        process.send_signal(signal.SIGUSR1)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(MOMENT + 0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == ExitCode.REQUEUE
        assert process.stdout.read() == ""
        assert process.stderr.read() == (
            FIRST.format(name="SIGUSR1", work=step_in_work())
            + "SIGTERM received for the second time: ended at once; here is more\n"
        )


@pytest.mark.heavy
def test_it_ends_where_nobody_reads_stderr():
    with deaf_program(LONG) as process:
        process.stderr.close()
        process.send_signal(signal.SIGUSR1)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(MOMENT + 0.5)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(20.0) == ExitCode.REQUEUE


def test_what_is_finished_first_is_said_at_once():
    """Long before the step is over, and the program could say anything."""
    with deaf_program(LONG) as process:
        process.send_signal(signal.SIGUSR1)
        received = process.stderr.readline()
        assert process.poll() is None
    expected = "SIGUSR1 received: finishing the step in work; if it is killed before, only that is"
    assert received == f"{expected} lost\n"


# Those that schedulers and people send; the others go the same way.
FEW = (signal.SIGTERM, signal.SIGUSR1)


@pytest.mark.heavy
@pytest.mark.parametrize("number", all_but(SIGNALS, FEW, pytest.mark.long))
def test_a_single_one_is_heard_after_the_step(number):
    with deaf_program(SHORT) as process:
        process.send_signal(number)
        assert process.wait(60.0) == 0
        assert process.stdout.read() == f"heard {number.name}\n"
        assert process.stderr.read() == FIRST.format(name=number.name, work=step_in_work())


def ignoring(number: signal.Signals) -> list[str]:
    """Words that start a program which ignores a signal from its beginning."""
    name = number.name.removeprefix("SIG")
    return ["sh", "-c", f"trap '' {name}; exec \"$@\"", "sh"]


HUNG_UP = pytest.param(
    signal.SIGHUP,
    ["nohup"],
    id="nohup",
    marks=pytest.mark.skipif(shutil.which("nohup") is None, reason="there is no nohup"),
)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("number", "before"),
    [
        HUNG_UP,
        *(
            pytest.param(
                each, ignoring(each), id=each.name, marks=[] if each in FEW else pytest.mark.long
            )
            for each in SIGNALS
        ),
    ],
)
def test_one_that_was_ignored_from_the_beginning_stays_so(number, before):
    """However often it comes; the others are heard."""
    other = next(each for each in SIGNALS if each is not number)
    with deaf_program(SHORT, *before) as process:
        for _ in range(2):
            process.send_signal(number)
            time.sleep(0.1)
        process.send_signal(other)
        assert process.wait(60.0) == 0
        assert process.stdout.read() == f"heard {other.name}\n"
        said = process.stderr.read()
        assert said.endswith(FIRST.format(name=other.name, work=step_in_work()))
        assert number.name not in said


def handlers() -> dict[int, Any]:
    return {each: signal.getsignal(each) for each in (*SIGNALS, signal.SIGINT)}


def test_a_thread_goes_on_without_handlers():
    """Python lets none but the main thread have them."""
    before = handlers()

    def work() -> tuple[bool, dict]:
        with listening() as interruption:
            interruption.leave_if_asked("this")
            return interruption.asked, handlers()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(work).result() == (False, before)
    assert handlers() == before


@pytest.mark.heavy
def test_a_thread_is_told_what_the_main_one_hears():
    """The program is asked to stop, whichever thread is at work."""
    heard = threading.Event()

    def work(begun: threading.Event) -> None:
        with listening() as interruption:
            begun.set()
            heard.wait(60.0)
            interruption.leave_if_asked("this")

    with ThreadPoolExecutor(1) as thread, listening():
        begun = threading.Event()
        working = thread.submit(work, begun)
        begun.wait(60.0)
        signal.raise_signal(signal.SIGHUP)
        heard.set()
        with pytest.raises(RequeueError, match="SIGHUP received: this is saved"):
            working.result()


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGINT])
def test_a_handler_outside_python_is_left_alone(number, monkeypatch):
    """Python has no handler of such a signal, and could not put it back."""
    heard, known = [], signal.getsignal
    before = signal.signal(number, lambda number, _: heard.append(number))
    theirs = signal.getsignal(number)
    try:
        monkeypatch.setattr(signal, "getsignal", lambda n: None if n == number else known(n))
        with listening() as interruption:
            signal.raise_signal(number)
            assert not interruption.asked
        assert heard == [number]
        assert known(number) is theirs
    finally:
        signal.signal(number, before)


def test_handlers_are_put_back():
    def theirs(_number, _frame) -> None:
        """The handler of the program around."""

    before = {each: signal.signal(each, theirs) for each in handlers()}
    try:
        with listening():
            assert theirs not in handlers().values()
        assert set(handlers().values()) == {theirs}
        with pytest.raises(ZeroDivisionError), listening():
            raise ZeroDivisionError
        assert set(handlers().values()) == {theirs}
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.heavy
def test_one_signal_from_scheduler_and_script_is_one():
    """Twice within a moment; the program goes on to the end of its step, and then of the moment."""
    with deaf_program(SHORT) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60.0) == 0
        assert process.stdout.read() == "heard SIGTERM\n"
        assert process.stderr.read() == FIRST.format(name="SIGTERM", work=step_in_work())


@pytest.mark.heavy
def test_the_same_signal_does_no_harm_when_everything_is_saved():
    """The program has left its work when the script of the job passes the signal on."""
    step = '    hashlib.pbkdf2_hmac("sha256", b"", b"", {rounds})'
    program = DEAF.replace(step, "    while not interruption.received: time.sleep(0.01)")
    program = program.replace("import hashlib", "import time")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "deaf\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "heard SIGTERM\n"
        time.sleep(0.5 * MOMENT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == 0


def test_nothing_is_left_behind():
    threads = threading.active_count()
    outer = signal.set_wakeup_fd(-1)
    try:
        one = second_signal_ends((signal.SIGUSR1,), str, str)
        with one, second_signal_ends((signal.SIGUSR1,), str, str):
            assert threading.active_count() == threads + 2
        assert threading.active_count() == threads
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(outer)
