"""Slow: a sweep on workers that is stopped, and then loses one of them."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.jobs.workers import FOLDER
from sampler.storage.directory import LOCK_FILE, is_held
from tests.commands import TINY_SAMPLED, Command, assert_same_bits, command, finish, start

WORKERS = 2
GRID = ("--over", "posterior.temperature=0.5,1.0")


def workers_of(process: Command) -> list[int]:
    """The commands that a command has begun to do its points."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [n for n in map(int, children) if b"--worker" in Path(f"/proc/{n}/cmdline").read_bytes()]


def begun(recipe: Path, out: Path) -> Command:
    """A sweep whose workers are all at work."""
    process = start("sweep", recipe, "--out", out, *GRID, "--workers", WORKERS)
    while process.poll() is None and len(held_in(out)) < WORKERS:
        time.sleep(0.02)
    return process


def held_in(out: Path) -> list[Path]:
    return [path for path in out.glob(f"*/{LOCK_FILE}") if is_held(path.parent)]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are not listed")
def test_a_sweep_that_is_stopped_and_loses_a_worker_is_that_of_one_process(tmp_path):
    """Bit for bit."""
    recipe, whole, out = tmp_path / "tiny.toml", tmp_path / "whole", tmp_path / "sweep"
    recipe.write_text(TINY_SAMPLED)
    # In a process of its own: this one may have begun on one device, and would round otherwise.
    code, errors = command("sweep", recipe, "--out", whole, *GRID)
    assert code == ExitCode.DIAGNOSTICS_FAILED, errors
    process = begun(recipe, out)
    process.send_signal(signal.SIGTERM)  # the command alone, which passes it on
    code, errors = finish(process)
    assert code == ExitCode.REQUEUE, errors
    assert not held_in(out)
    process = begun(recipe, out)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    code, errors = finish(process)
    assert code == ExitCode.DIAGNOSTICS_FAILED, errors
    outcomes = [path for path in (out / FOLDER).glob("*.json") if path.stem.isdigit()]
    assert sorted(json.loads(path.read_text())["attempts"] for path in outcomes) == [1, 2]
    assert (out / "sweep.csv").read_text() == (whole / "sweep.csv").read_text()
    for name in ("0.5", "1.0"):
        point = f"posterior.temperature={name}"
        assert_same_bits(out / point, whole / point)
