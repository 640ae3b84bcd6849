"""Progress fits the terminal, and is one live line in a notebook, where figures show themselves."""

import os
import pty
import re
import subprocess
import sys
import time

import pytest

from tests import ROOT

CELL = """
from sampler.jobs.progress import ProgressDisplay
from sampler.presentation.style import new_figure

with ProgressDisplay() as progress:
    for done in range(1, 4):
        progress.show("draws", done, 3, f"{3 - done} s left")
new_figure(1.0, 1.0)
"""


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


@pytest.mark.parametrize("columns", [60, 80])
def test_progress_fits_the_terminal(columns):
    lines = re.split(r"[\r\n]+", in_terminal(LONG, columns))
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    assert "compiling" in text
    for whole in ("1000000000/1000000000", "123456 s left", "step size 0.000562", "R-hat 1.001"):
        assert whole in text, whole


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


def test_without_a_terminal_progress_is_lines():
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    first, second, *others = done.stderr.splitlines()
    assert (first, second) == ("solving", "compiling")
    assert [line[:26] for line in others] == [
        "reading examples 1/1000000",
        "reading examples 100000000",
    ]


@pytest.fixture(scope="module")
def messages():
    """Type and content of what the kernel answers to one cell."""
    jupyter_client = pytest.importorskip("jupyter_client", reason="notebooks need Jupyter")
    pytest.importorskip("ipykernel", reason="notebooks need Jupyter")
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(ROOT))
    client = manager.client()
    found = []
    try:
        client.start_channels()
        client.wait_for_ready(timeout=120)
        reply = client.execute_interactive(
            CELL,
            timeout=300,
            output_hook=lambda one: found.append((one["msg_type"], one["content"])),
        )
        assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return found


@pytest.mark.slow
def test_progress_is_one_line_that_changes(messages):
    assert [kind for kind, _ in messages].count("display_data") == 1
    assert "draws" not in "".join(one["text"] for kind, one in messages if kind == "stream")
    lines = [one["data"]["text/plain"] for kind, one in messages if kind == "update_display_data"]
    assert lines == ["draws 1/3 2 s left", "draws 2/3 1 s left", "draws 3/3 0 s left"]
    shown = {one["transient"]["display_id"] for kind, one in messages if "display_data" in kind}
    assert len(shown) == 1


@pytest.mark.slow
def test_a_figure_shows_itself(messages):
    results = [one for kind, one in messages if kind == "execute_result"]
    assert "image/png" in results[0]["data"]
