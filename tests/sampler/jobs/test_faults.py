"""Slow: kills, full disks, damage and signals; afterwards the same bits as without them."""

import json
import logging
import shutil
import signal
import time
from collections import Counter
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
from tests.commands import TINY, UNDRAWN, assert_same_bits, command, finish, start
from tests.problems import all_but

pytestmark = pytest.mark.slow

# Nobody looks at the figures of what is killed here.
undrawn_start, undrawn_command = partial(start, before=UNDRAWN), partial(command, before=UNDRAWN)
OFFSETS = 20
DRAWS = 3000


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A recipe, an uninterrupted run of it, its duration, and a cache of compiled functions."""
    folder = tmp_path_factory.mktemp("faults")
    recipe, cache, whole = folder / "tiny.toml", folder / "cache", folder / "whole"
    recipe.write_text(f"{TINY}draws = {DRAWS}\n")
    cache.mkdir()
    code, errors = undrawn_command("run", recipe, "--out", folder / "first", cache=cache)
    assert code == ExitCode.OK, errors
    started = time.monotonic()
    code, errors = undrawn_command("run", recipe, "--out", whole, cache=cache)
    assert code == ExitCode.OK, errors
    assert_same_bits(whole, folder / "first")
    return recipe, whole, time.monotonic() - started, cache


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


def phase_of(directory: Path) -> str:
    """Where a killed run stood."""
    if not (directory / "recipe.toml").is_file():
        return "before the directory"
    header = newest_checkpoint(directory)
    if (directory / "draws.nc").is_file():
        return "finalising"
    if header is None:
        return "compiling"
    finished = (header["phase"], header["done"]) == ("draws", DRAWS)
    return "writing" if finished else {"warmup": "warm-up", "draws": "sampling"}[header["phase"]]


@pytest.mark.long
@pytest.mark.parametrize(("kills", "fresh"), [(3, 1), (25, 3)])
def test_killed_at_random_moments(workshop, tmp_path, kills, fresh):
    """The first `fresh` ones while everything is compiled."""
    recipe, whole, seconds, cache = workshop
    rng = np.random.default_rng(kills)
    phases, redone = Counter(), []
    for number in range(kills):
        directory = tmp_path / f"run-{number}"
        own_cache = tmp_path / f"cache-{number}" if number < fresh else cache
        process = undrawn_start("run", recipe, "--out", directory, cache=own_cache)
        # Most of the time is spent on starting and compiling: later phases are waited for.
        if number % 4 == 0 or number < fresh:
            time.sleep(rng.uniform(0.15, 1.0) * seconds)
        elif number % 4 == 3:
            wait_for(process, directory, "*draws-*.nc", 1)
            time.sleep(rng.uniform(0.0, 0.2) * seconds)
        else:
            segments = int(rng.integers(1, 55))
            wait_for(process, directory, f"{CHECKPOINT_FOLDER}/segment-*", segments)
        process.send_signal(signal.SIGKILL)
        finish(process)
        phases[phase_of(directory)] += 1
        if not (directory / "manifest.json").is_file():
            code, errors = undrawn_command("run", recipe, "--out", directory, cache=cache)
        else:
            check_files(directory)
            header = newest_checkpoint(directory)
            code, errors = undrawn_command("resume", directory, cache=cache)
            if header is not None and phase_of(directory) != "finalising":
                redone.append(header["done"])
        assert code == ExitCode.OK, errors
        check_files(directory)
        assert not list(directory.rglob(f"{UNFINISHED}*"))
        assert_same_bits(directory, whole)
        if header_was_used := [
            line for line in log(directory).splitlines() if "going on after" in line
        ]:
            assert f"after {header['done']} of" in header_was_used[-1]
        shutil.rmtree(directory)
    print(f"\n{kills} kills, {kills} times the same bits; killed while: {dict(phases)}")
    assert len(phases) >= min(3, kills - 1), phases


def wait_for(process, directory: Path, pattern: str, count: int) -> None:
    """Wait until so many files are there, or the process has ended."""
    while process.poll() is None and len(list(directory.glob(pattern))) < count:
        time.sleep(0.002)


def log(directory: Path) -> str:
    return (directory / "run.log").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def stopped(workshop, tmp_path_factory):
    """A run that a signal stopped in the middle of its draws."""
    recipe, _, _, cache = workshop
    directory = tmp_path_factory.mktemp("stopped") / "run"
    process = undrawn_start("run", recipe, "--out", directory, cache=cache)
    wait_for_draws(process, directory)
    process.send_signal(signal.SIGTERM)
    code, errors = finish(process)
    assert code == ExitCode.REQUEUE, errors
    assert "SIGTERM received" in errors.splitlines()[-1]
    return directory


def wait_for_draws(process, directory: Path) -> None:
    while process.poll() is None:
        header = newest_checkpoint(directory)
        if header is not None and header["phase"] == "draws":
            return
        time.sleep(0.01)
    raise AssertionError(f"ended before it could be stopped: {finish(process)[1]}")


def test_stopped_by_a_signal_and_resumed(stopped, workshop, tmp_path):
    _, whole, _, cache = workshop
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    assert 0 < newest_checkpoint(directory)["done"] < DRAWS
    assert undrawn_command("resume", directory, cache=cache)[0] == ExitCode.OK
    assert_same_bits(directory, whole)


@pytest.mark.long
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_in_good_order(workshop, tmp_path):
    """Ctrl-C in the middle of compiled code: one line, no abort, and everything goes on."""
    recipe, whole, _, cache = workshop
    directory = tmp_path / "run"
    process = undrawn_start("run", recipe, "--out", directory, cache=cache)
    wait_for_draws(process, directory)
    process.send_signal(signal.SIGINT)
    code, errors = finish(process)
    assert code == ExitCode.INTERRUPTED, errors
    last = errors.splitlines()[-1]
    again = f"what is done is in {directory}; to go on: attention-posterior resume {directory}"
    assert last.endswith(f"interrupted; {again}")
    assert undrawn_command("resume", directory, cache=cache)[0] == ExitCode.OK
    assert_same_bits(directory, whole)


def damaged(path: Path, offset: int, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(content[:offset])
    else:
        content[offset] ^= 1 << (offset % 8)
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["flipped bit", "truncated"])
@pytest.mark.parametrize("what", ["checkpoint", "segment"])
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
    print(f"\n{what}, {how}: noticed {noticed} of {OFFSETS}")
    assert noticed == OFFSETS


def test_after_damage_the_same_bits(stopped, workshop, tmp_path):
    _, whole, _, cache = workshop
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    newest = load_chains(directory / CHECKPOINT_FOLDER)
    damaged(directory / CHECKPOINT_FOLDER / newest.segments[-1]["file"], 200, "flipped bit")
    code, errors = undrawn_command("resume", directory, cache=cache)
    assert code == ExitCode.OK, errors
    assert "going on from the checkpoint before it" in errors
    assert "going on from the checkpoint before it" in log(directory)
    assert_same_bits(directory, whole)


def test_two_damaged_checkpoints_are_an_error(stopped, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    for slot in (0, 1):
        damaged(directory / CHECKPOINT_FOLDER / f"state-{slot}.bin", 300, "flipped bit")
    before = sorted(path.name for path in directory.rglob("*"))
    code, errors = command("resume", directory)
    assert code == ExitCode.BAD_INPUT
    assert "no checkpoint can be used" in errors.splitlines()[-1]
    assert sorted(path.name for path in directory.rglob("*")) == before
    for slot in (0, 1):
        (directory / CHECKPOINT_FOLDER / f"state-{slot}.bin").unlink()
    with pytest.raises(InputError, match="its checkpoints are missing"):
        load_chains(directory / CHECKPOINT_FOLDER)


@pytest.mark.parametrize("kilobytes", all_but([3, 12, 60], [12], pytest.mark.long))
def test_full_disk(kilobytes, workshop, tmp_path):
    """No file may grow beyond a limit: the manifest, a segment, a checkpoint, the draws fail."""
    recipe, whole, _, cache = workshop
    directory = tmp_path / "run"
    size = 1024 * kilobytes
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    code, errors = command("run", recipe, "--out", directory, cache=cache, before=limit)
    print(f"\n{kilobytes} kB: {errors.splitlines()[-1]}")
    # HDF5 may end the process when it closes a file that it could not write.
    assert code in (ExitCode.BAD_INPUT, -signal.SIGSEGV)
    assert "File too large" in errors.splitlines()[-1]
    if directory.exists():
        check_files(directory)
        assert not list(directory.rglob(f"{UNFINISHED}*"))
    words = ["resume", directory] if directory.exists() else ["run", recipe, "--out", directory]
    assert undrawn_command(*words, cache=cache)[0] == ExitCode.OK
    assert_same_bits(directory, whole)


# A superuser may write everywhere: after dropping CAP_DAC_OVERRIDE from what its programs may have,
# a program it becomes obeys permissions like any other.
OBEY_PERMISSIONS = """
import ctypes, os, sys
if os.geteuid() == 0 and not os.environ.get("OBEYING"):
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
    os.environ["OBEYING"] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "sampler", *sys.argv[1:]])
"""


@pytest.mark.long
def test_read_only_output(stopped, workshop, tmp_path):
    _, whole, _, cache = workshop
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    directory.chmod(0o500)
    (directory / CHECKPOINT_FOLDER).chmod(0o500)
    code, errors = command("resume", directory, cache=cache, before=OBEY_PERMISSIONS)
    print(f"\n{errors.splitlines()[-1]}")
    assert code == ExitCode.BAD_INPUT
    assert "Permission denied" in errors.splitlines()[-1]
    directory.chmod(0o700)
    (directory / CHECKPOINT_FOLDER).chmod(0o700)
    assert undrawn_command("resume", directory, cache=cache)[0] == ExitCode.OK
    assert_same_bits(directory, whole)


def test_output_on_what_cannot_be_written(workshop):
    """A read-only file system, for the superuser too."""
    recipe, _, _, cache = workshop
    code, errors = command("run", recipe, "--out", "/proc/self/task/run", cache=cache)
    assert code == ExitCode.BAD_INPUT
    assert "choose a directory that can be written" in errors.splitlines()[-1]


@pytest.mark.long
def test_vanished_directory(workshop, tmp_path):
    recipe, _, _, cache = workshop
    directory = tmp_path / "run"
    process = undrawn_start("run", recipe, "--out", directory, cache=cache)
    wait_for_draws(process, directory)
    directory.rename(tmp_path / "elsewhere")
    code, errors = finish(process)
    assert code == ExitCode.BAD_INPUT
    assert "No such file or directory" in errors.splitlines()[-1]
    assert not directory.exists()
    assert undrawn_command("resume", tmp_path / "elsewhere", cache=cache)[0] == ExitCode.OK
    assert_same_bits(tmp_path / "elsewhere", workshop[1])
