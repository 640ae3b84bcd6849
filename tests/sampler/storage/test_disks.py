"""Disks that are full, read-only, or lose checkpoints: a sentence, and then the same bits."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sampler.errors import ExitCode, RequeueError
from sampler.jobs.plan import make_plan
from sampler.jobs.run import start_run
from sampler.settings.recipe import load_recipe
from sampler.storage.archives import read_archive
from sampler.storage.directory import CHECKPOINT_FOLDER, LOG_FILE, RECIPE_FILE
from sampler.storage.files import UNFINISHED
from tests.commands import (
    FEW_DRAWS,
    AfterChunks,
    assert_same_bits,
    in_process,
    settings,
    stored_arrays,
    without_drawing,
)

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("undrawn")]

# Six draws are too few to be trusted.
DONE = (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)


class Disk:
    """A file system of its own, in memory, whose size can change and that can be made read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mount(self, *options: str) -> bool:
        """Mount it, or mount it once more with other options; whether that worked."""
        words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(self.folder)]
        return subprocess.run(words, capture_output=True).returncode == 0

    def change(self, *options: str) -> None:
        assert self.mount("remount", *options)


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    """A small disk with the folder of the test."""
    made = Disk(tmp_path / "disk")
    made.folder.mkdir()
    if shutil.which("mount") is None or not made.mount("size=4k"):
        pytest.skip("a file system can be mounted by the superuser alone")
    yield made
    subprocess.run(["umount", "--lazy", str(made.folder)], check=True)


def listing(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def sentence(errors: str) -> str:
    """The last line of what a command that was refused writes to standard error."""
    assert "Traceback" not in errors
    line = errors.splitlines()[-1]
    assert line.startswith("attention-posterior: ")
    return line


def refusal(capsys, *words) -> str:
    """The same, of a command that must be refused, before anything is begun."""
    assert in_process(*words) == ExitCode.BAD_INPUT
    return sentence(capsys.readouterr().err)


def begun(directory: Path) -> bool:
    return (directory / RECIPE_FILE).is_file()


def whole_files(directory: Path) -> set[str]:
    """Names of the files that are there to stay; what is stored in them is read."""
    for path in (directory / CHECKPOINT_FOLDER).glob("*"):
        read_archive(path)
    stored_arrays(directory)
    return {path.name for path in directory.glob("*") if path.is_file()}


# Sizes in KiB at which one file after the other is the first that does not fit, and enough.
SIZES = (4, 8, 12, 28, 80, 132, 168, 260, 376, 20_000)


def test_on_a_disk_that_grows_little_by_little(disk, recipe_file, run_of_six_draws, capsys):
    """Whatever does not fit: a sentence; what was stored stays, and the end is as it always is."""
    directory, stored, refused = disk.folder / "run", set(), set()
    for size in SIZES:
        disk.change(f"size={size}k")
        new = ("run", recipe_file, "--out", directory, *settings(*FEW_DRAWS))
        words = ("resume", directory) if begun(directory) else new
        code, errors = in_process(*words), capsys.readouterr().err
        assert begun(directory) or not directory.exists()
        assert not list(directory.rglob(f"{UNFINISHED}*"))
        before, stored = stored, whole_files(directory)
        assert before <= stored
        if code != ExitCode.DISK_ERROR:
            break
        line = sentence(errors)
        assert os.strerror(errno.ENOSPC) in line
        refused.add(line.split()[1])
    assert code in DONE
    assert_same_bits(directory, run_of_six_draws)
    assert {"manifest.json", "theory.nc", "draws.nc", "state-0.npz"} <= refused


@pytest.fixture(scope="module")
def stopped(recipe_file, tmp_path_factory) -> Path:
    """A run that a signal stopped among its draws, with two checkpoints."""
    directory = tmp_path_factory.mktemp("stopped") / "run"
    plan = make_plan("run", load_recipe(recipe_file, FEW_DRAWS), directory)
    with without_drawing(), pytest.raises(RequeueError):
        start_run(plan, AfterChunks(4))
    assert len(listing(directory / CHECKPOINT_FOLDER)) == 2
    return directory


def test_where_nothing_can_be_written(disk, recipe_file, stopped, run_of_six_draws, capsys):
    disk.change("size=20m")
    directory = disk.folder / "run"
    shutil.copytree(stopped, directory)
    before = listing(disk.folder)
    disk.change("ro")
    new = ("run", recipe_file, "--out", disk.folder / "new", *settings(*FEW_DRAWS))
    for words in (new, ("resume", directory)):
        assert os.strerror(errno.EROFS) in refusal(capsys, *words)
        assert listing(disk.folder) == before
    disk.change("rw")
    assert in_process("resume", directory) in DONE
    assert_same_bits(directory, run_of_six_draws)


@pytest.mark.parametrize("how", ["deleted", "truncated"])
@pytest.mark.parametrize("slots", [1, 2])
def test_where_checkpoints_are_damaged(how, slots, stopped, run_of_six_draws, tmp_path, capsys):
    """Without one the other is used; without both nothing begins again before it is asked for."""
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    files = sorted((directory / CHECKPOINT_FOLDER).iterdir(), key=lambda file: sequence(file))
    for path in files[-slots:]:
        if how == "deleted":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)
    if slots == 2:
        before = listing(directory)
        assert str(directory) in refusal(capsys, "resume", directory)
        after = listing(directory)
        assert {name for name in after if after[name] != before.get(name)} <= {LOG_FILE}
        shutil.rmtree(directory / CHECKPOINT_FOLDER)
    assert in_process("resume", directory) in DONE
    assert_same_bits(directory, run_of_six_draws)


def sequence(checkpoint: Path) -> int:
    """The number of a checkpoint among all that were saved."""
    return read_archive(checkpoint).header["sequence"]
