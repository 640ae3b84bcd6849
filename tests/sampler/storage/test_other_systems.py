"""File systems that lack what a local disk has: fsync, chmod."""

import errno
import os

import numpy as np
import pytest
import xarray as xr

from sampler.errors import InputError
from sampler.storage.files import write_atomically, write_whole
from sampler.storage.results import write_result

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
