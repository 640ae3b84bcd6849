"""One process holds a directory, until it ends however it ends."""

import subprocess
import sys

import pytest

from sampler.errors import InputError
from sampler.storage.directory import is_held, locked
from tests import ROOT

HOLD = """
import pathlib, sys
from sampler.storage.directory import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def refused(directory) -> bool:
    """Whether this process cannot have the directory."""
    try:
        with locked(directory):
            return False
    except InputError:
        return True


@pytest.mark.heavy
def test_a_directory_is_held_until_its_process_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "held\n"
        assert is_held(tmp_path)
        assert refused(tmp_path)
        process.kill()
        process.wait()
        assert not is_held(tmp_path)
        assert not refused(tmp_path)


def test_a_directory_is_free_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert not is_held(tmp_path)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file")
    assert not is_held(tmp_path / "file")
