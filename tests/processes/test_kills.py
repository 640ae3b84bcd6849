"""A run that is killed, stopped and interrupted in its stages, and a sweep that loses a worker.

They end with the same bits as what nothing disturbed.
"""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.errors import ExitCode
from sampler.jobs.workers import FOLDER
from sampler.storage.archives import read_archive
from sampler.storage.checkpoints import newest_header
from sampler.storage.directory import LOCK_FILE, is_held
from sampler.storage.files import UNFINISHED
from sampler.storage.manifest import read_manifest
from tests.commands import (
    TINY,
    TINY_SAMPLED,
    UNDRAWN,
    Command,
    assert_same_bits,
    command,
    finish,
    start,
)
from tests.problems import all_but

pytestmark = pytest.mark.slow
RECIPE = f"""{TINY}
chains = 2
warmup = 200
algorithm = "hmc"
leapfrog_steps = 3
draws = 600
"""
# How far the run has come, and what it is sent then, and the exit code.
COURSE = (
    ("begun", signal.SIGKILL, -signal.SIGKILL),
    ("draws", signal.SIGTERM, ExitCode.REQUEUE),
    ("draws", signal.SIGINT, ExitCode.INTERRUPTED),
    ("draws", signal.SIGKILL, -signal.SIGKILL),
    ("results", signal.SIGKILL, -signal.SIGKILL),
)


def draws_in(directory: Path) -> int:
    """How many draws of a chain are saved."""
    header = newest_header(directory)
    return header["done"] if header and header["phase"] == "draws" else 0


def reached(stage: str, directory: Path, before: int) -> bool:
    """Whether a stage is reached; more draws than before are a stage."""
    if stage == "draws":
        return draws_in(directory) > before
    return (directory / {"begun": "recipe.toml", "results": "draws.nc"}[stage]).exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The directory of the undisturbed run, beside its recipe."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "tiny.toml").write_text(RECIPE)
    code, errors = command("run", folder / "tiny.toml", "--out", folder / "run", before=UNDRAWN)
    assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED), errors
    return folder / "run"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("seed", all_but(range(4), [0], pytest.mark.nightly))
def test_a_killed_run(seed, whole, tmp_path):
    """At random moments after each stage is reached; every file is whole whenever it happens."""
    rng, directory, hit = np.random.default_rng(seed), tmp_path / "run", []
    words: tuple = ("run", whole.with_name("tiny.toml"), "--out", directory)
    for stage, number, code in COURSE:
        before = draws_in(directory)
        process = start(*words, before=UNDRAWN)
        while process.poll() is None and not reached(stage, directory, before):
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1))
        process.send_signal(number)
        received, errors = finish(process)
        hit.append(received == code)
        assert received == code or received in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED), errors
        check_files(directory)
        if received == ExitCode.INTERRUPTED:
            assert errors.splitlines()[-1].endswith(f"attention-posterior resume {directory}")
        if read_manifest(directory).command is not None:
            words = ("resume", directory)
    assert sum(hit) >= 3, hit  # others came too late
    assert command(*words, before=UNDRAWN)[0] == read_manifest(whole).outcome.code
    assert_same_bits(directory, whole)
    assert files_of(directory) == files_of(whole)


def check_files(directory: Path) -> None:
    """Every file under a final name loads; parts have names of their own."""
    for path in directory.rglob("*"):
        if path.is_dir() or path.name.startswith(UNFINISHED):
            continue
        if path.suffix == ".npz":
            read_archive(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".nc":
            xr.open_datatree(path, engine="h5netcdf").close()


def files_of(directory: Path) -> set[str]:
    """Names of all files; which of the two checkpoints is left depends on how many were saved."""
    paths = (path for path in directory.rglob("*") if path.is_file())
    names = {str(path.relative_to(directory)) for path in paths}
    return {name for name in names if not name.startswith("checkpoint/state")}


# --- a sweep on workers

WORKERS = 2
GRID = ("--over", "posterior.temperature=0.5,1.0")


def workers_of(process: Command) -> list[int]:
    """The commands that a command has begun to do its points."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [n for n in map(int, children) if b"--worker" in Path(f"/proc/{n}/cmdline").read_bytes()]


def held_in(out: Path) -> list[Path]:
    return [path for path in out.glob(f"*/{LOCK_FILE}") if is_held(path.parent)]


def begun(recipe: Path, out: Path) -> Command:
    """A sweep whose workers are all at work."""
    process = start("sweep", recipe, "--out", out, *GRID, "--workers", WORKERS)
    while process.poll() is None and len(held_in(out)) < WORKERS:
        time.sleep(0.02)
    return process


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are not listed")
def test_a_sweep_that_is_stopped_and_loses_a_worker_is_that_of_one_process(tmp_path):
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
