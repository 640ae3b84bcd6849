"""Files whole or not at all, on any file system; strict JSON."""

import errno
import json
import os
from functools import partial

import numpy as np
import pytest
import xarray as xr

from sampler.errors import InputError
from sampler.storage.files import read_json, write_atomically, write_json, write_whole
from sampler.storage.results import read_draws, read_table, write_result


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


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"old": 1})

    def fail(temporary):
        temporary.write_text("half of")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError):
        write_atomically(path, fail)
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_nothing_behind(tmp_path):
    def interrupt(temporary):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "result.json", interrupt)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (partial(read_table, file="theory.nc"), "theory.nc"),
        (read_draws, "draws.nc"),
        (lambda directory: read_json(directory / "comparison.json"), "comparison.json"),
    ],
)
def test_a_missing_or_damaged_file_is_refused(read, name, tmp_path):
    for content, field in ((None, "DIR"), (b"\x89HDF\r\n\x1a\n" + bytes(100), name)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError) as refused:
            read(tmp_path)
        assert refused.value.field == field


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
    with pytest.raises(InputError, match="Input/output error"):
        write_whole(tmp_path / "a", "text")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_files_may_be_read_by_whom_the_umask_admits(mask, mode, tmp_path, monkeypatch):
    """Without chmod, which some file systems refuse."""
    for name in ("chmod", "fchmod", "lchmod"):
        monkeypatch.setattr(os, name, refusing(errno.EPERM), raising=False)
    before = os.umask(mask)
    try:
        write_result(tmp_path, "task.nc", TABLE)
        write_atomically(tmp_path / "a.txt", lambda path: path.write_text("text"))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}
