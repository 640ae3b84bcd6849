"""Files of results: a damaged one has one message whoever reads it; changed bits are noticed."""

import shutil
import subprocess
import sys
from pathlib import Path

import h5netcdf
import h5py
import pytest
import xarray as xr

import sampler
from sampler.analysis.results import RunResults
from sampler.errors import ExitCode, InputError
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
from tests.commands import in_process as command

READ = (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)


@pytest.fixture
def stored(tmp_path) -> Path:
    """A copy of the results of a finished run."""
    return Path(shutil.copytree(FIXTURES / "finished", tmp_path / "run"))


@pytest.mark.slow
def test_results_are_read(stored):
    run = RunResults(stored)
    assert run.predicted("order_parameter").shape == (2, 2)
    assert run.order_parameter_draws.dims == ("chain", "draw", "path", "path_")
    assert run.sampled("order_parameter").value.shape == (2, 2)
    assert run.path_names == [str(name) for name in run.theory["path"].values]
    assert run.manifest.seconds.keys() == {"solve", "sample"}
    for name in ("diagnose", "compare"):
        assert command(name, stored) in READ, name


def test_a_bit_that_changed_in_large_arrays_is_noticed(rng, tmp_path):
    """The draws of a finished run are there once: they are compressed and carry checksums."""
    values = rng.standard_normal((2, COMPRESSED_BYTES // 16))
    table = xr.Dataset({"lp": (("chain", "draw"), values), "few": ("draw", values[0])})
    write_result(tmp_path, "draws.nc", xr.DataTree.from_dict({"posterior": table}))
    path = tmp_path / "draws.nc"
    xr.testing.assert_identical(read_draws(tmp_path)["posterior"].to_dataset(), table)
    with h5netcdf.File(path) as file:
        stored = file["posterior/lp"]
        assert (stored.compression, stored.shuffle, stored.fletcher32) == ("gzip", True, True)
        assert file["posterior/few"].compression is None
        place = stored._h5ds.id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"draws\.nc.*cannot be read"):
        read_draws(tmp_path)


def test_draws_that_were_read_need_no_file_and_hold_none_open(tmp_path):
    """Not even a variable with the name of its group; another reader opens the file as it likes."""
    path = Path(shutil.copytree(FIXTURES / "finished", tmp_path / "run")) / "draws.nc"
    tree = read_draws(path.parent)
    named_alike = [name for name, node in tree.children.items() if name in node.variables]
    assert named_alike  # of ArviZ's log_prior, at least
    path.rename(tmp_path / "moved.nc")
    with xr.open_datatree(tmp_path / "moved.nc", engine="h5netcdf") as expected:
        for node in expected.subtree:
            for name, variable in node.variables.items():
                assert variable.equals(tree[node.path].variables[name]), (node.path, name)


# --- files that somebody else has open

OPENED = {
    "with xarray": lambda path: xr.open_datatree(path),
    "with h5netcdf": lambda path: xr.open_datatree(path, engine="h5netcdf"),
    "with h5py": h5py.File,
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


@pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED)
@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_open_in_this_session_is_read(name, opened, stored):
    expected = [str(read(stored)) for read in READERS[name]]
    with opened(stored / name) as content:
        assert [str(read(stored)) for read in READERS[name]] == expected
        assert content


ELSEWHERE = """
import sys, h5py
with h5py.File(sys.argv[1], "r+"):
    print("open", flush=True)
    input()
"""


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_another_process_has_locked_is_read(name, stored):
    expected = [str(read(stored)) for read in READERS[name]]
    with subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE, stored / name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "open\n"
        with pytest.raises(OSError, match="lock"):
            h5py.File(stored / name)
        assert [str(read(stored)) for read in READERS[name]] == expected
        process.kill()


@pytest.mark.slow
def test_a_run_is_shown_while_its_draws_are_open(stored):
    with xr.open_datatree(stored / "draws.nc") as draws:
        run = sampler.open_results(stored)
        assert run.draws["posterior"].sizes == draws["posterior"].sizes
        assert run.theory is not None
        assert "<img" in run.report().read_text(encoding="utf-8")
        assert command("diagnose", stored) in READ
