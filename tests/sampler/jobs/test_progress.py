"""Progress stops nothing where there is no terminal to show it."""

import os
import pty
import re
import subprocess
import sys
import time

import pytest

from tests import ROOT

LONG = """
import sys
from sampler.jobs.progress import ProgressDisplay, busy

assert "jax" not in sys.modules
with busy("solving"):
    pass
with ProgressDisplay() as progress:
    progress.wait("compiling")
    for done in (1, 123456789, 1000000000):
        progress.show(
            "reading examples", done, 1000000000,
            "123456 s left, step size 0.000562, at 123456789: R-hat 1.001, ESS 12345 of predictor, "
            "123456789 divergences, 1023 leapfrog steps per draw",
        )
"""


def in_terminal(program: str, columns: int, kind: str = "xterm") -> str:
    """What a program writes to a terminal of so many columns, without what moves the cursor."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": kind}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT,
    ) as process:  # fmt: skip
        os.close(theirs)
        written = b""
        while True:
            try:
                written += os.read(ours, 65536)
            except OSError:  # nobody writes any more
                break
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    assert process.returncode == 0, text
    return text


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


@pytest.mark.parametrize(("columns", "kind"), [(1, "xterm"), (1, "dumb"), (80, "dumb")])
def test_progress_stops_nothing_in_a_terminal_that_cannot_show_it(columns, kind):
    in_terminal(LONG, columns, kind)
