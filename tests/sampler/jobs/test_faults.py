"""Slow: kills, full disks, damage and signals; afterwards the same bits as without them."""

import json
import logging
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sampler.errors import ExitCode, InputError
from sampler.jobs.keeper import load_chains
from sampler.storage.checkpoint import read_sealed
from sampler.storage.results import read_draws, read_table
from sampler.storage.run_directory import CHECKPOINT_FOLDER, UNFINISHED
from sampler.storage.status import newest_checkpoint
from tests.commands import TINY, UNDRAWN, assert_same_bits, command, finish, in_process, start

pytestmark = pytest.mark.slow

# Nobody looks at the figures of what is killed here.
undrawn_start, undrawn_command = partial(start, before=UNDRAWN), partial(command, before=UNDRAWN)
OFFSETS = 8
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


def check_files(directory: Path) -> None:
    """Every file under a final name loads; parts have names of their own."""
    for path in directory.rglob("*"):
        if path.is_dir() or path.name.startswith(UNFINISHED):
            continue
        if path.suffix == ".bin":
            read_sealed(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
    if (directory / "theory.nc").is_file():
        read_table(directory, "theory.nc")
    if (directory / "draws.nc").is_file():
        read_draws(directory)


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
        header = newest_checkpoint(directory)
        if header is not None and header["phase"] == "draws" and header["done"] > more_than:
            return header["done"]
        time.sleep(0.01)
    raise AssertionError(f"ended before it could be stopped: {finish(process)[1]}")


@pytest.mark.usefixtures("interruptible")
def test_stopped_killed_interrupted_and_resumed(stopped, workshop, tmp_path):
    _, whole, cache = workshop
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    done = newest_checkpoint(directory)["done"]
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


@pytest.mark.parametrize(("how", "what"), [("flipped bit", "checkpoint"), ("truncated", "segment")])
def test_damage_is_noticed_and_the_checkpoint_before_is_used(how, what, stopped, tmp_path, caplog):
    folder = stopped / CHECKPOINT_FOLDER
    newest = load_chains(folder)
    name = (
        f"state-{newest.sequence % 2}.bin" if what == "checkpoint" else newest.segments[-1]["file"]
    )
    size = (folder / name).stat().st_size
    rng = np.random.default_rng(20)
    offsets = {0, size - 1, *map(int, rng.integers(0, size, OFFSETS))}
    noticed = 0
    for offset in sorted(offsets)[:OFFSETS]:
        copy = tmp_path / f"{offset}"
        shutil.copytree(folder, copy)
        damaged(copy / name, offset, how)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="attention_posterior"):
            logging.getLogger("attention_posterior").addHandler(caplog.handler)
            found = load_chains(copy)
            logging.getLogger("attention_posterior").removeHandler(caplog.handler)
        noticed += found.sequence == newest.sequence - 1 and name in caplog.text
    assert noticed == OFFSETS


def test_after_damage_the_same_bits(stopped, workshop, tmp_path):
    _, whole, cache = workshop
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    newest = load_chains(directory / CHECKPOINT_FOLDER)
    damaged(directory / CHECKPOINT_FOLDER / newest.segments[-1]["file"], 200, "flipped bit")
    code, errors = undrawn_command("resume", directory, cache=cache)
    assert code == ExitCode.OK, errors
    assert "going on from the checkpoint before it" in errors
    assert_same_bits(directory, whole)


def test_two_damaged_checkpoints_are_an_error(stopped, tmp_path, capsys):
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    for slot in (0, 1):
        damaged(directory / CHECKPOINT_FOLDER / f"state-{slot}.bin", 300, "flipped bit")
    before = sorted(path.name for path in directory.rglob("*"))
    assert in_process("resume", directory) == ExitCode.BAD_INPUT
    assert "no checkpoint can be used" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(path.name for path in directory.rglob("*")) == before
    for slot in (0, 1):
        (directory / CHECKPOINT_FOLDER / f"state-{slot}.bin").unlink()
    with pytest.raises(InputError, match="its checkpoints are missing"):
        load_chains(directory / CHECKPOINT_FOLDER)


def test_full_disk(workshop, tmp_path):
    """No file may grow beyond a limit: a segment or a checkpoint fails."""
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
