"""Slow: kills, full disks, damage and signals; afterwards the same bits as without them."""

import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.storage.checkpoints import newest_header, read_header
from sampler.storage.directory import CHECKPOINT_FOLDER
from sampler.storage.files import UNFINISHED
from tests.commands import TINY, UNDRAWN, assert_same_bits, command, finish, in_process, start
from tests.kills import check_files

pytestmark = pytest.mark.slow

# Nobody looks at the figures of what is killed here.
undrawn_start, undrawn_command = partial(start, before=UNDRAWN), partial(command, before=UNDRAWN)
DRAWS = 3000


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A recipe, an uninterrupted run of it, and a cache of compiled functions."""
    folder = tmp_path_factory.mktemp("faults")
    recipe, cache, whole = folder / "tiny.toml", folder / "cache", folder / "whole"
    recipe.write_text(f"{TINY}draws = {DRAWS}\n")
    cache.mkdir()
    code, errors = undrawn_command("run", recipe, "--out", whole, cache=cache)
    assert code == ExitCode.OK, errors
    return recipe, whole, cache


@pytest.fixture(scope="module")
def stopped(workshop, tmp_path_factory):
    """A run that a signal stopped in the middle of its draws."""
    recipe, _, cache = workshop
    directory = tmp_path_factory.mktemp("stopped") / "run"
    process = undrawn_start("run", recipe, "--out", directory, cache=cache)
    wait_for_draws(process, directory)
    process.send_signal(signal.SIGTERM)
    code, errors = finish(process)
    assert code == ExitCode.REQUEUE, errors
    assert "SIGTERM received" in errors.splitlines()[-1]
    return directory


def wait_for_draws(process, directory: Path, more_than: int = 0) -> int:
    """Wait until more draws of a chain are saved: how many there are."""
    while process.poll() is None:
        header = newest_header(directory)
        if header is not None and header["phase"] == "draws" and header["done"] > more_than:
            return header["done"]
        time.sleep(0.01)
    raise AssertionError(f"ended before it could be stopped: {finish(process)[1]}")


@pytest.mark.usefixtures("interruptible")
def test_stopped_killed_interrupted_and_resumed(stopped, workshop, tmp_path):
    _, whole, cache = workshop
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    done = newest_header(directory)["done"]
    assert 0 < done < DRAWS
    for number, code in (
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGINT, ExitCode.INTERRUPTED),
    ):
        process = undrawn_start("resume", directory, cache=cache)
        done = wait_for_draws(process, directory, done)
        process.send_signal(number)
        received, errors = finish(process)
        assert received == code, errors
        check_files(directory)
    assert errors.splitlines()[-1].endswith(f"attention-posterior resume {directory}")
    assert undrawn_command("resume", directory, cache=cache)[0] == ExitCode.OK
    assert not list(directory.rglob(f"{UNFINISHED}*"))
    assert_same_bits(directory, whole)


def damaged(path: Path, offset: int, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(content[:offset])
    else:
        content[offset] ^= 1 << (offset % 8)
        path.write_bytes(content)


def slots(directory: Path) -> list[Path]:
    """The files of both checkpoints, the newer one first."""
    paths = (directory / CHECKPOINT_FOLDER).iterdir()
    return sorted(paths, key=lambda path: -read_header(path)["sequence"])


@pytest.mark.parametrize("how", ["flipped bit", "truncated", "deleted"])
def test_after_damage_the_same_bits(how, stopped, workshop, tmp_path):
    _, whole, cache = workshop
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    newest, _ = slots(directory)
    if how == "deleted":
        newest.unlink()
    else:
        damaged(newest, newest.stat().st_size // 2, how)
    code, errors = undrawn_command("resume", directory, cache=cache)
    assert code == ExitCode.OK, errors
    assert ("going on from the checkpoint before it" in errors) == (how != "deleted")
    assert_same_bits(directory, whole)


def test_two_damaged_checkpoints_are_an_error(stopped, tmp_path, capsys):
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    for path in slots(directory):
        damaged(path, 300, "flipped bit")
    before = sorted(path.name for path in directory.rglob("*"))
    assert in_process("resume", directory) == ExitCode.BAD_INPUT
    assert "no checkpoint can be used" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(path.name for path in directory.rglob("*")) == before
    for path in (directory / CHECKPOINT_FOLDER).iterdir():
        path.unlink()
    assert in_process("resume", directory) == ExitCode.BAD_INPUT
    assert "its checkpoints are missing" in capsys.readouterr().err.splitlines()[-1]


def test_full_disk(workshop, tmp_path):
    """No file may grow beyond a limit: a checkpoint fails."""
    recipe, whole, cache = workshop
    directory = tmp_path / "run"
    size = 12 * 1024
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    code, errors = command("run", recipe, "--out", directory, cache=cache, before=limit)
    # HDF5 may end the process when it closes a file that it could not write.
    assert code in (ExitCode.BAD_INPUT, -signal.SIGSEGV)
    assert "File too large" in errors.splitlines()[-1]
    check_files(directory)
    assert not list(directory.rglob(f"{UNFINISHED}*"))
    assert undrawn_command("resume", directory, cache=cache)[0] == ExitCode.OK
    assert_same_bits(directory, whole)


def test_output_on_what_cannot_be_written(workshop, capsys):
    """A read-only file system, for the superuser too."""
    assert in_process("run", workshop[0], "--out", "/proc/self/task/run") == ExitCode.BAD_INPUT
    assert "--out = " in capsys.readouterr().err.splitlines()[-1]
