"""Streams and terminals as a user has them: closed, full, of another encoding, gone meanwhile."""

import errno
import io
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from tests import ROOT
from tests.commands import environment, in_process
from tests.pages import STORED

pytestmark = pytest.mark.slow


def started(words: list, **variables: str) -> subprocess.CompletedProcess:
    words = list(map(str, words))
    return subprocess.run(
        words, env=environment(None) | variables, capture_output=True, cwd=ROOT, timeout=120
    )


class Stops(io.StringIO):
    """A stream that takes so many texts."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return super().write(text)


def test_a_reader_that_goes_away_costs_a_run_nothing(tmp_path, monkeypatch):
    """After the first line, and its end."""
    run = Path(shutil.copytree(STORED, tmp_path / "run"))
    (run / "comparison.nc").unlink()
    monkeypatch.setattr(sys, "stdout", Stops(2))
    assert in_process("resume", run, "--no-figures") == ExitCode.DIAGNOSTICS_FAILED
    assert (run / "report.html").is_file()


def test_a_reader_that_has_enough_is_no_error():
    line = f"{sys.executable} -m sampler status {STORED} | true"
    done = started(["bash", "-o", "pipefail", "-c", line], PYTHONUNBUFFERED="1")
    assert (done.returncode, done.stderr) == (ExitCode.OK, b"")


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed):
    """And no file has their numbers, where libraries print to."""
    program = (
        "import sys; from sampler.__main__ import open_streams; open_streams();"
        "file = open(sys.argv.pop(), 'rb'); assert file.fileno() > 2;"
        "from sampler.__main__ import console; console()"
    )
    words = [sys.executable, "-c", program, "status", STORED, STORED / "draws.nc"]
    done = started(["sh", "-c", f'exec "$@" {closed}', "sh", *words])
    assert done.returncode == ExitCode.OK, done.stderr
    assert bool(done.stdout) == (closed == "2>&-")


def test_a_command_prints_in_any_encoding():
    recipe = ROOT / "runs" / "quickstart.toml"
    done = started([sys.executable, "-m", "sampler", "check", recipe], PYTHONIOENCODING="ascii")
    assert done.returncode == ExitCode.OK, done.stderr
    assert b"?" in done.stdout


SHOWN = """
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
        [sys.executable, "-c", SHOWN, str(begun), str(writer)],
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
