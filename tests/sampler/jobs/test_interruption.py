"""Signals to a program in one long step of Python's, which hears none of them until its end."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from sampler.errors import ExitCode
from sampler.jobs.interruption import FIRST, MOMENT, second_signal_ends, step_in_work

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
def deaf_program(rounds: int):
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF.format(rounds=rounds)],
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


def test_a_single_one_is_heard_after_the_step():
    with deaf_program(SHORT) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.wait(60.0) == 0
        assert process.stdout.read() == "heard SIGUSR1\n"
        assert process.stderr.read() == FIRST.format(name="SIGUSR1", work=step_in_work())


def test_one_signal_from_scheduler_and_script_is_one():
    """Twice within a moment; the program goes on to the end of its step, and then of the moment."""
    with deaf_program(SHORT) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60.0) == 0
        assert process.stdout.read() == "heard SIGTERM\n"
        assert process.stderr.read() == FIRST.format(name="SIGTERM", work=step_in_work())


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
