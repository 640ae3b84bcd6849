"""Systems and file systems that lack what Linux on a local disk has: locks, chmod, and others."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.errors import InputError
from sampler.storage import run_directory
from sampler.storage.results import read_draws, read_table, write_result
from sampler.storage.run_directory import fill_whole, write_json, write_whole
from tests import ROOT

TABLE = xr.Dataset({"a": ("row", np.arange(3000.0))})
TREE = xr.DataTree.from_dict({"posterior": TABLE, "sample_stats": TABLE * 2.0})


def refusing(code: int):
    """A function of the system that answers with an error."""

    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    return refuse


def write_and_read(folder: Path) -> None:
    write_result(folder, "task.nc", TABLE)
    write_result(folder, "draws.nc", TREE)
    xr.testing.assert_equal(read_table(folder, "task.nc"), TABLE)
    for name in ("posterior", "sample_stats"):
        xr.testing.assert_equal(read_draws(folder)[name].to_dataset(), TREE[name].to_dataset())


def test_files_are_written_where_the_system_cannot_reserve_room(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    write_and_read(tmp_path)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_files_are_written_where_the_file_system_cannot_reserve_room(code, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refusing(code))
    write_and_read(tmp_path)


@pytest.mark.parametrize("code", run_directory.FULL)
def test_a_full_disk_is_said_to_be_full(code, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refusing(code))
    with pytest.raises(InputError, match=f"{os.strerror(code)}; free space, then use `resume`"):
        write_result(tmp_path, "task.nc", TABLE)
    assert not list(tmp_path.iterdir())


def test_a_disk_is_found_full_without_asking_for_room(monkeypatch):
    """Zeros take the place of the request."""
    monkeypatch.delattr(os, "posix_fallocate")
    with pytest.raises(OSError, match="No space left"):
        run_directory.reserve(Path("/dev/full"), 2**21)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EACCES, "make the directory writable, then use `resume`"),
        (errno.EROFS, "make the directory writable, then use `resume`"),
        (errno.EIO, "use `resume` when that is mended"),
    ],
)
def test_no_space_is_asked_for_where_there_is_enough(code, remedy, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", refusing(code))
    with pytest.raises(InputError) as refused:
        write_json(tmp_path / "a.json", {})
    assert refused.value.remedy == f"{os.strerror(code)}; {remedy}"


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS])
def test_files_are_written_where_nothing_can_be_flushed(code, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refusing(code))
    write_whole(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"


def test_a_disk_that_fails_to_flush_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        write_whole(tmp_path / "a", "text")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_files_may_be_read_by_whom_the_umask_admits(mask, mode, tmp_path, monkeypatch):
    """Without chmod, which some file systems refuse."""
    for name in ("chmod", "fchmod", "lchmod"):
        monkeypatch.setattr(os, name, refusing(errno.EPERM), raising=False)
    before = os.umask(mask)
    try:
        write_result(tmp_path, "task.nc", TABLE)
        fill_whole(tmp_path / "a.txt", lambda path: path.write_text("text"))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


# All that HDF5 writes and reads, where `flock` answers with the error that it is told.
WITHOUT_LOCKS = """
import os, sys
from pathlib import Path
import numpy as np, xarray as xr
from sampler.errors import InputError
from sampler.storage.lock import locked
from sampler.storage.own_theories import read_own
from sampler.storage.results import read_draws, read_drawn, read_table, write_result
from sampler.tasks.hdf5 import opened_hdf5
from sampler.tasks.export_files import Origin, write_hdf5
from sampler.tasks.splits import Split

folder = Path(sys.argv[1])
values, ones = np.arange(3.0), np.ones((2, 1, 3, 3))
table = xr.Dataset({"predictor_mean": ("test_example", values)})
split = Split(np.ones((2, 3, 4)), np.ones((2, 1)), (ones,))
for code in map(int, sys.argv[2:]):
    os.environ["FLOCK_ERRNO"] = str(code)
    with locked(folder):
        write_result(folder, "task.nc", table)
        write_result(folder, "draws.nc", xr.DataTree.from_dict({"posterior": table}))
    assert read_table(folder, "task.nc").predictor_mean.values.tolist() == [0, 1, 2]
    assert read_draws(folder)["posterior/predictor_mean"].values.tolist() == [0, 1, 2]
    assert read_drawn(folder, "predictor_mean").values.tolist() == [0, 1, 2]
    axes = {"predictor_mean": {"test_example": 3}}
    own = read_own("mine", str(folder / "task.nc"), axes)
    assert own["predictor_mean"].tolist() == [0, 1, 2]
    write_hdf5(folder / "a.h5", iter([("train", split)]), lambda: Origin(None, None, None, ()))
    with opened_hdf5(folder / "a.h5") as file:
        assert (file["attention_train_1"][:] == ones).all()
    print(code)
"""


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_nothing_needs_locks_that_a_file_system_does_not_have(tmp_path):
    """Network file systems without their lock service."""
    source, library = tmp_path / "flock.c", tmp_path / "flock.so"
    source.write_text(
        "#include <errno.h>\n#include <stdlib.h>\n"
        'int flock(int file, int how) { errno = atoi(getenv("FLOCK_ERRNO")); return -1; }\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    codes = [str(code) for code in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)]
    (tmp_path / "run").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS, tmp_path / "run", *codes],
        env=os.environ | {"LD_PRELOAD": str(library), "FLOCK_ERRNO": codes[0]},
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.split() == codes, done.stderr[-2000:]
