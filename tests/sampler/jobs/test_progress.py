"""Progress stops nothing where there is no terminal to show it."""

import os
import pty
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from sampler.jobs import progress as module
from sampler.jobs.progress import Progress, SamplingProgress
from sampler.mcmc.algorithm import Chunk
from tests import ROOT
from tests.problems import HMC

CLOSED = """
import os, sys
from sampler.jobs.progress import Progress, busy

with busy("solving"), Progress() as progress:
    progress.wait("compiling")
    progress.show("draws", 1, 2, "acceptance 0.8")
    open(sys.argv[1], "w").close()
    sys.stdin.readline()
    progress.wait("compiling")
    progress.show("draws", 2, 2, "acceptance 0.8")
    os.write(int(sys.argv[2]), b"shown")
os.write(int(sys.argv[2]), b" and left")
"""


def test_progress_stops_nothing_in_a_terminal_that_was_closed_meanwhile(tmp_path):
    """The signal that tells of it asks the program to save, and it must come so far."""
    ours, theirs = pty.openpty()
    reader, writer = os.pipe()
    begun = tmp_path / "begun"
    with subprocess.Popen(
        [sys.executable, "-c", CLOSED, str(begun), str(writer)],
        stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, pass_fds=[writer], cwd=ROOT,
    ) as process:  # fmt: skip
        os.close(theirs)
        os.close(writer)
        while not begun.exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.close(ours)
        process.stdin.close()
        with os.fdopen(reader) as said:
            assert said.read() == "shown and left"
        process.wait(60.0)


@pytest.fixture
def clock(monkeypatch):
    """The time that progress reads, and the lines that it writes into a file."""
    clock = SimpleNamespace(now=100.0, lines=[])
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(module, "print_stderr", clock.lines.append)
    monkeypatch.setattr(module, "in_terminal", lambda: False)
    return clock


@pytest.mark.parametrize(
    ("phase", "done", "left"), [("warmup", 20, 2.0 * (80 + 600)), ("draws", 40, 2.0 * 60)]
)
def test_the_time_left_is_that_until_the_last_draw(phase, done, left, clock):
    """Ten steps in twenty seconds, of 100; 200 draws of three steps each follow the warm-up."""
    names = ("lp", "step_size", "acceptance_rate", "diverging", "n_steps")
    statistics = {name: np.ones((2, 10)) for name in names}
    with Progress() as progress:
        listener = SamplingProgress(progress, HMC, steps=600)
        listener(Chunk(phase, done - 10, 100, statistics, seconds=500.0, compiled=True))
        clock.now += 20.0
        listener(Chunk(phase, done, 100, statistics, seconds=20.0))
    first, second = clock.lines
    assert first == f"{phase} {done - 10}/100, compiled in 500 s"
    assert second.startswith(f"{phase} {done}/100, {left:.0f} s left, ")
