"""Files whole or not at all, on any file system; strict JSON."""

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from sampler.errors import DiskError
from sampler.storage.files import (
    read_json,
    write_atomically,
    write_json,
    write_whole,
)
from sampler.storage.result_files import write_result
from tests import FIXTURES


def test_everything_becomes_strict_json(tmp_path):
    content = {
        "array": np.array([[1.5, np.nan], [np.inf, -2.0]]),
        "scalar": np.float32(0.25),
        "zero_dimensional": np.array(3.0),
        "count": np.int64(7),
        "flag": np.bool_(True),
        "tuple": (1, None, "text"),
        "nested": {3: float("-inf")},
    }
    path = tmp_path / "content.json"
    write_json(path, content)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    expected = {
        "array": [[1.5, None], [None, -2.0]],
        "scalar": 0.25,
        "zero_dimensional": 3.0,
        "count": 7,
        "flag": True,
        "tuple": [1, None, "text"],
        "nested": {"3": None},
    }
    assert json.loads(path.read_text(), parse_constant=refuse) == expected == read_json(path)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (OSError(28, "No space left on device"), DiskError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(problem, told, tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"old": 1})

    def fail(temporary):
        temporary.write_text("half of")
        raise problem

    with pytest.raises(told):
        write_atomically(path, fail)
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


# --- file systems that lack what a local disk has: fsync, chmod

TABLE = xr.Dataset({"a": ("row", np.arange(3000.0))})


def refusing(code: int):
    """A function of the system that answers with an error."""

    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_files_are_written_where_nothing_can_be_flushed(code, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refusing(code))
    write_whole(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"


def test_a_disk_that_fails_to_flush_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
    with pytest.raises(DiskError, match="Input/output error"):
        write_whole(tmp_path / "a", "text")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_files_may_be_read_by_whom_the_umask_admits(mask, mode, tmp_path, monkeypatch):
    """Without chmod, which some file systems refuse."""
    for name in ("chmod", "fchmod", "lchmod"):
        monkeypatch.setattr(os, name, refusing(errno.EPERM), raising=False)
    before = os.umask(mask)
    try:
        write_result(tmp_path, "teacher.nc", TABLE)
        write_atomically(tmp_path / "a.txt", lambda path: path.write_text("text"))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


# --- a disk that is full

FULL_AGAIN_AND_AGAIN = """
import resource, sys
from pathlib import Path
from sampler.errors import DiskError
from sampler.storage.result_files import read_draws, write_result
for room in range(0, 50_000, 7_919):
    draws = read_draws(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        write_result(Path(sys.argv[2]), "draws.nc", draws)
    except DiskError:
        print(room)
"""


def test_draws_that_fit_nowhere_end_no_process(tmp_path):
    """HDF5 itself crashes where it cannot write, or reads back what it has not written."""
    words = [sys.executable, "-c", FULL_AGAIN_AND_AGAIN, FIXTURES / "finished", tmp_path]
    process = subprocess.run(words, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.split() == [str(room) for room in range(0, 50_000, 7_919)]
    assert not list(tmp_path.iterdir())
