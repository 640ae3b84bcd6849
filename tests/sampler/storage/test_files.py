"""Files whole or not at all, on any disk; results that are read whoever has them open."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5netcdf
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sampler.errors import DiskError, InputError
from sampler.storage.files import (
    SCHEMA_VERSION,
    check_schema,
    read_json,
    write_atomically,
    write_json,
    write_table,
    write_whole,
)
from sampler.storage.fingerprint import read_attributes
from sampler.storage.result_files import (
    COMPRESSED_BYTES,
    read_comparison,
    read_drawn,
    read_draws,
    read_table,
    write_result,
)
from tests import FIXTURES


def test_everything_becomes_strict_json(tmp_path):
    content = {
        "array": np.array([[1.5, np.nan], [np.inf, -2.0]]),
        "scalars": [np.float32(0.25), np.array(3.0), np.int64(7), np.bool_(True)],
        "tuple": (1, None, "text"),
        "nested": {3: float("-inf")},
    }
    path = tmp_path / "content.json"
    write_json(path, content)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    expected = {
        "array": [[1.5, None], [None, -2.0]],
        "scalars": [0.25, 3.0, 7, True],
        "tuple": [1, None, "text"],
        "nested": {"3": None},
    }
    assert json.loads(path.read_text(), parse_constant=refuse) == expected == read_json(path)
    write_table(path, pd.DataFrame({"a": [1.5, np.inf, np.nan], "b": [1, 2, 3]}))
    assert path.read_text() == "a,b\n1.5,1\n,2\n,3\n"


@pytest.mark.parametrize(
    ("version", "newer"), [(SCHEMA_VERSION + 1, True), (SCHEMA_VERSION - 1, False), (None, False)]
)
def test_of_a_newer_schema_alone_the_version_that_is_read_is_told(version, newer):
    """Any other is that of an older program."""
    with pytest.raises(InputError) as refused:
        check_schema(version, "theory.nc")
    assert (str(SCHEMA_VERSION) in refused.value.remedy) == newer


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


# --- file systems that lack what a local disk has, and disks that are full


def refusing(code: int):
    """A function of the system that answers with an error."""

    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    return refuse


def test_files_are_written_where_nothing_can_be_flushed_and_not_where_that_fails(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "fsync", refusing(errno.EINVAL))
    write_whole(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
    with pytest.raises(DiskError, match="Input/output error"):
        write_whole(tmp_path / "b", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_files_may_be_read_by_whom_the_umask_admits(mask, mode, tmp_path, monkeypatch):
    """Without chmod, which some file systems refuse."""
    for name in ("chmod", "fchmod", "lchmod"):
        monkeypatch.setattr(os, name, refusing(errno.EPERM), raising=False)
    before = os.umask(mask)
    try:
        write_result(tmp_path, "teacher.nc", xr.Dataset({"a": ("row", np.arange(3000.0))}))
        write_whole(tmp_path / "a.txt", "text")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


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


# --- results


@pytest.fixture
def stored(tmp_path) -> Path:
    """A copy of the results of a finished run."""
    return Path(shutil.copytree(FIXTURES / "finished", tmp_path / "run"))


def test_a_bit_that_changed_in_large_arrays_is_noticed(rng, tmp_path):
    """The draws of a finished run are there once: they are compressed and carry checksums."""
    values = rng.standard_normal((2, COMPRESSED_BYTES // 16))
    table = xr.Dataset({"lp": (("chain", "draw"), values), "few": ("draw", values[0])})
    write_result(tmp_path, "draws.nc", xr.DataTree.from_dict({"posterior": table}))
    path = tmp_path / "draws.nc"
    xr.testing.assert_identical(read_draws(tmp_path)["posterior"].to_dataset(), table)
    with h5netcdf.File(path) as file:
        place = file["posterior/lp"]._h5ds.id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"draws\.nc.*cannot be read"):
        read_draws(tmp_path)


def test_draws_that_were_read_need_no_file(stored, tmp_path):
    """Not even a variable with the name of its group, as ArviZ's log_prior."""
    tree = read_draws(stored)
    assert any(name in node.variables for name, node in tree.children.items())
    (stored / "draws.nc").rename(tmp_path / "moved.nc")
    with xr.open_datatree(tmp_path / "moved.nc", engine="h5netcdf") as expected:
        for node in expected.subtree:
            for name, variable in node.variables.items():
                assert variable.equals(tree[node.path].variables[name]), (node.path, name)


OPENED = {
    "with xarray": lambda path: xr.open_datatree(path),
    "with h5netcdf": lambda path: xr.open_datatree(path, engine="h5netcdf"),
    "for writing": lambda path: h5py.File(path, "r+"),
}
READERS = {
    "draws.nc": (
        read_draws,
        lambda directory: read_drawn(directory, "order_parameter"),
        lambda directory: read_attributes(directory / "draws.nc", "sample_stats")["algorithm"],
    ),
    "comparison.nc": (read_comparison,),
    "theory.nc": (lambda directory: read_table(directory, "theory.nc"),),
}
ELSEWHERE = """
import sys, h5py
with h5py.File(sys.argv[1], "r+"):
    print("open", flush=True)
    input()
"""


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_somebody_has_open_is_read(name, stored):
    """Here in any way, and in another process that has locked it."""
    expected = [str(read(stored)) for read in READERS[name]]
    for opened in OPENED.values():
        with opened(stored / name):
            assert [str(read(stored)) for read in READERS[name]] == expected
    words, pipe = [sys.executable, "-c", ELSEWHERE, stored / name], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "open\n"
        with pytest.raises(OSError, match="lock"):
            h5py.File(stored / name)
        assert [str(read(stored)) for read in READERS[name]] == expected
        process.kill()
