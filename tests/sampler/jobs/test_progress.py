"""Progress stops nothing where there is no terminal to show it."""

import os
import pty
import subprocess
import sys
import time

import numpy as np
import pytest

from sampler.jobs.progress import SamplingProgress
from sampler.mcmc.chains import Chunk
from tests import ROOT
from tests.problems import HMC

CLOSED = """
import os, sys
from sampler.jobs.progress import ProgressDisplay, busy

with busy("solving"), ProgressDisplay() as progress:
    progress.wait("compiling")
    progress.show("draws", 1, 2, "1 s left")
    open(sys.argv[1], "w").close()
    sys.stdin.readline()
    progress.wait("compiling")
    progress.show("draws", 2, 2, "0 s left")
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


@pytest.mark.parametrize(
    ("phase", "done", "total", "left"),
    [("warmup", 20, 100, 0.5 * (80 + 600)), ("draws", 50, 200, 0.5 * 150), ("draws", 200, 200, 0)],
)
def test_the_time_left_is_that_until_the_last_draw(phase, done, total, left):
    """Ten steps in five seconds; 200 draws of three steps each follow the warm-up."""
    progress = SamplingProgress(HMC, steps=600)
    names = ("lp", "step_size", "acceptance_rate", "diverging", "n_steps")
    statistics = {name: np.ones((2, 10)) for name in names}
    shown = []
    progress.show = lambda *arguments: shown.append(arguments[3])
    progress(Chunk(phase, done, total, statistics, seconds=5.0))
    assert shown[0].startswith(f"{left:.0f} s left")
