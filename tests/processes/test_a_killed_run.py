"""Slow: a run that is killed, stopped and interrupted in its stages ends with the same bits."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.errors import ExitCode
from sampler.storage.archives import read_archive
from sampler.storage.checkpoints import newest_header
from sampler.storage.files import UNFINISHED
from sampler.storage.manifest import read_manifest
from tests.commands import TINY, UNDRAWN, assert_same_bits, command, finish, start
from tests.problems import all_but

DRAWS = 600
RECIPE = f"""{TINY}
chains = 2
warmup = 200
algorithm = "hmc"
leapfrog_steps = 3
draws = {DRAWS}
"""
# Attributes that are times, or follow from them.
TIMES = {"seconds", "seconds_warmup", "seconds_draws", "effective_draws_per_second"}
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


@pytest.mark.slow
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
    assert not list(directory.rglob(f"{UNFINISHED}*"))
    assert_same_bits(directory, whole)
    for name in ("theory.nc", "draws.nc", "comparison.nc"):
        assert attributes(directory / name) == attributes(whole / name)
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


def attributes(path: Path) -> dict[tuple, str]:
    """Every attribute of a netCDF file without its times."""
    found: dict[tuple, str] = {}
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        for group in tree.subtree:
            for name, owner in {"": group, **group.to_dataset(inherit=False).variables}.items():
                of_owner = dict(owner.attrs)
                of_owner |= json.loads(of_owner.pop("cost", "{}"))
                for key in of_owner.keys() - TIMES:
                    found[group.path, name, key] = repr(np.asarray(of_owner[key]).tolist())
    return found


def files_of(directory: Path) -> set[str]:
    """Names of all files; which of the two checkpoints is left depends on how many were saved."""
    paths = (path for path in directory.rglob("*") if path.is_file())
    names = {str(path.relative_to(directory)) for path in paths}
    return {name for name in names if not name.startswith("checkpoint/state")}
