"""A second process that draws figures beside this one: all are drawn, whatever becomes of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sampler.analysis.results import open_run
from sampler.presentation.figures import beside
from sampler.presentation.figures.draw import draw_figures
from tests import ROOT
from tests.sampler.presentation.test_report import stored_run

NAMES = ("path_kernels", "kernels", "energy")
SECONDS = 60.0


@pytest.fixture
def second(monkeypatch):
    """A second process, on any machine."""
    monkeypatch.setattr(beside, "usable_cores", lambda: 2)
    with beside.second_process() as started:
        yield started


def until(holds: Callable[[], bool]) -> bool:
    """Wait for something; whether it came."""
    end = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def gone(number: int) -> bool:
    """Whether there is no process of that number."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.heavy
def test_two_processes_draw_what_one_does(tmp_path, second):
    alone, together = (stored_run(tmp_path / name) for name in ("alone", "together"))
    expected = draw_figures(alone, open_run(alone))
    assert second.connection.poll(SECONDS)
    received = draw_figures(together, open_run(together), second=second)
    assert [path.name for path in received] == [path.name for path in expected]
    for one, other in zip(expected, received, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert second.process.poll() is not None


def test_each_process_begins_at_one_end_and_what_the_other_fails_at_is_drawn_here(tmp_path, second):
    directory, here = stored_run(tmp_path / "run"), []
    assert second.connection.poll(SECONDS)

    def draw(name: str) -> list[Path]:
        here.append(name)
        until(lambda: (directory / "figures" / "path_kernels.png").is_file())
        return [Path(name)]

    made = second.share(("mine", *NAMES), draw, directory, False, {})
    assert list(made) == ["mine", *NAMES]
    assert (here[0], here[-1]) == (NAMES[-1], "mine")
    assert made["path_kernels"] == [directory / "figures" / "path_kernels.png"]


@pytest.mark.parametrize("when", ["before", "while it draws", "hanging"])
def test_a_lost_process_costs_no_figure(tmp_path, second, when, monkeypatch):
    monkeypatch.setattr(beside, "SECONDS_FOR_LAST", 0.5)
    if when == "before":
        second.process.kill()
        second.process.wait()
    else:
        assert second.connection.poll(SECONDS)  # it waits for a first figure
        second.process.send_signal(signal.SIGSTOP)
    names, here = ("first", *NAMES), []

    def draw(name: str) -> list[Path]:
        if when == "while it draws":
            second.process.kill()
        here.append(name)
        time.sleep(0.05)
        return [Path(name)]

    made = second.share(names, draw, tmp_path, False, {})
    assert made == {name: [Path(name)] for name in names}
    assert sorted(here) == sorted(names)
    assert second.process.poll() is not None


def test_an_error_here_ends_the_other_process(monkeypatch):
    monkeypatch.setattr(beside, "usable_cores", lambda: 2)

    def interrupted(_: str) -> list[Path]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), beside.second_process() as second:
        second.share(NAMES, interrupted, Path(), False, {})
    assert gone(second.process.pid)


LEFT = """
import os, signal, time
from sampler.presentation.figures import beside
beside.usable_cores = lambda: 2
with beside.second_process() as second:
    assert second.connection.poll(60)
    print(second.process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_other_process_ends_with_a_process_that_is_killed():
    done = subprocess.run(
        [sys.executable, "-c", LEFT], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == -signal.SIGKILL
    assert until(lambda: gone(int(done.stdout)))


def test_there_is_none_on_one_core(monkeypatch):
    monkeypatch.setattr(beside, "usable_cores", lambda: 1)
    with beside.second_process() as second:
        assert second is None


def test_there_is_none_where_python_cannot_be_started(monkeypatch, tmp_path):
    monkeypatch.setattr(beside, "usable_cores", lambda: 2)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with beside.second_process() as second:
        assert second is None
