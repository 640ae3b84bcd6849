"""A sweep on workers, disturbed at random moments: what it ends with is what it would have been.

The same command is given again after every disturbance, as a user would, and nothing is mended by
hand but what a user has spoilt. What every disturbance met is counted, and printed at the end.
"""

import os
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.storage.lock import LOCK_FILE
from sampler.storage.manifest import read_manifest
from sampler.storage.status import newest_checkpoint
from tests.commands import POINTS, TINY_SAMPLED, Command, assert_same_bits, command, finish, start

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("interruptible")]

COMPLETE = {ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED}
# Python imports it at its start: figures are files of one point, and the clock can be wrong.
SITE = f"""
import os, time
from pathlib import Path
wrong, real = float(os.environ.get("WRONG_BY", "0")), time.time
time.time = lambda: real() + wrong
from matplotlib.figure import Figure
POINTS = {POINTS!r}
Figure.savefig = lambda figure, path, **_: Path(path).write_bytes(POINTS[Path(path).suffix])
"""
DAY = 86400.0


def mount(*words: object) -> bool:
    """Whether a file system could be mounted; only the superuser may."""
    done = subprocess.run(["mount", *map(str, words)], capture_output=True)
    return done.returncode == 0


# What a point in work is at, by the newest of its files.
STAGES = ("theory", "compiling", "chains", "results")


def stage_of(point: Path) -> str:
    """What a point in work is at."""
    if (point / "draws.nc").is_file():
        return "results"
    if newest_checkpoint(point) is not None:
        return "chains"
    return "compiling" if (point / "theory.nc").is_file() else "theory"


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended may still have a number until its parent asks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@dataclass
class Met:
    """What the disturbances of one kind met.

    times    how often the sweep was disturbed so
    live     how often at least one worker was at a point then
    stages   what the workers were at
    ended    how many of the workers ended
    codes    how the commands ended that did not go on after it
    """

    times: int = 0
    live: int = 0
    stages: Counter = field(default_factory=Counter)
    ended: int = 0
    codes: Counter = field(default_factory=Counter)


@dataclass
class Hunt:
    """A sweep in work, what disturbs it, and what the disturbances met.

    finished  number of the file of draws of each finished point, which nothing later changes
    """

    recipe: Path
    disk: Path
    points: int
    workers: int
    cache: Path
    rng: np.random.Generator
    met: dict[str, Met] = field(default_factory=lambda: defaultdict(Met))
    finished: dict[str, int] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The directory of the sweep."""
        return self.disk / "sweep"

    def words(self, out: Path) -> list:
        """The command, on workers."""
        seeds = f"sampler.seed=0:{self.points}"
        return ["sweep", self.recipe, "--out", out, "--over", seeds, "--workers", self.workers]

    def begin(self) -> Command:
        """The command in a group of processes of its own."""
        return start(*self.words(self.out), cache=self.cache, start_new_session=True)

    def wait_for_points(self, process: Command, count: int) -> None:
        """Wait until so many more points are finished and a worker is at one, or for the end."""
        enough = len(self.look()) + count
        while process.poll() is None and (len(self.look()) < enough or not self.at_work()):
            time.sleep(0.2)
        time.sleep(self.rng.uniform(0.0, 0.5))

    def look(self) -> dict[str, int]:
        """The finished points; none that was finished before is computed again."""
        for path in self.out.glob("*/draws.nc"):
            name = path.parent.name
            if name not in self.finished:
                if read_manifest(path.parent).finished.get("run") is not None:
                    self.finished[name] = path.stat().st_ino
            else:
                assert path.stat().st_ino == self.finished[name], f"{name} was computed again"
        return self.finished

    def at_work(self) -> dict[str, int]:
        """The points in work, each with the process that is at it."""
        rows = [row.split() for row in Path("/proc/locks").read_text().splitlines()]
        holders = {int(row[5].split(":")[2]): int(row[4]) for row in rows if row[1] == "FLOCK"}
        locks = {path.stat().st_ino: path for path in self.out.glob(f"*/{LOCK_FILE}")}
        return {locks[inode].parent.name: holders[inode] for inode in locks.keys() & holders.keys()}

    def end(self, process: Command) -> tuple[int, str]:
        """Wait for the end of a command; nothing of it stays behind."""
        code, errors = finish(process, timeout=3600.0)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert "Traceback" not in errors.split("distributed")[0], errors
        self.look()
        return code, errors

    def disturb(self, name: str, process: Command) -> None:
        """Disturb the sweep, and count what that met."""
        met, at_work, running = self.met[name], self.at_work(), process.poll() is None
        met.times += 1
        met.live += running and bool(at_work)
        met.stages.update(stage_of(self.out / point) for point in at_work)
        DISTURBANCES[name](self, process)
        if name not in ENDING:
            wait_some_time(process, 1.0)
        if name in ENDING or process.poll() is not None:
            code, errors = self.end(process)
            met.codes[code] += 1
            assert not running or code in {ENDING.get(name, code), *COMPLETE}, errors
        met.ended += sum(not is_alive(pid) for pid in at_work.values())

    def table(self) -> str:
        """What the disturbances met."""
        rows = [["disturbance", "times", "live", *STAGES, "ended", "exit codes of the command"]]
        for name, met in sorted(self.met.items()):
            stages = [met.stages[stage] for stage in STAGES]
            codes = ", ".join(f"{count} × {code}" for code, count in met.codes.items())
            rows.append([name, met.times, met.live, *stages, met.ended, codes])
        widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
        lines = (zip(row, widths, strict=True) for row in rows)
        return "\n".join("  ".join(f"{cell!s:<{n}}" for cell, n in line).rstrip() for line in lines)


def kill_all(hunt: Hunt, process: Command) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def kill_the_command(hunt: Hunt, process: Command) -> None:
    process.kill()


def terminate_all(hunt: Hunt, process: Command) -> None:
    os.killpg(process.pid, signal.SIGTERM)


def terminate_the_command(hunt: Hunt, process: Command) -> None:
    process.terminate()


def interrupt_all(hunt: Hunt, process: Command) -> None:
    """Ctrl-C in a terminal."""
    os.killpg(process.pid, signal.SIGINT)


def to_a_worker(number: signal.Signals) -> Callable[[Hunt, Command], None]:
    """Send a signal to the worker of some point; the command goes on."""

    def send(hunt: Hunt, process: Command) -> None:
        at_work = sorted(hunt.at_work().values())
        if at_work:
            with suppress(ProcessLookupError):
                os.kill(int(hunt.rng.choice(at_work)), number)

    return send


def second_command(hunt: Hunt, process: Command) -> None:
    """The same sweep once more while it is running: refused, and the first goes on."""
    code, errors = command(*hunt.words(hunt.out), cache=hunt.cache)
    if process.poll() is None:
        assert code == ExitCode.BAD_INPUT, errors
        assert "is in use" in errors


def fill_the_disk(hunt: Hunt, process: Command) -> None:
    """No byte is free for some time; then the command ends, or is ended."""
    filler = hunt.disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    wait_some_time(process)
    filler.unlink()


def make_read_only(hunt: Hunt, process: Command) -> None:
    """Nothing can be written for some time, by the superuser neither."""
    if process.poll() is None and hunt.out.is_dir():
        assert mount("--bind", hunt.out, hunt.out)
        assert mount("-o", "remount,bind,ro", hunt.out)
        wait_some_time(process)
        subprocess.run(["umount", hunt.out], check=True)


def wait_some_time(process: Command, seconds: float = 20.0) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def spoil(path: Path, hunt: Hunt) -> tuple[int, str]:
    """What the command says to a recipe that no editor has saved; it is put right afterwards."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b'\n= "')
    received = command(*hunt.words(hunt.out), cache=hunt.cache)
    path.write_bytes(content)
    return received


def spoil_the_recipe(hunt: Hunt, process: Command) -> None:
    """That of the sweep: everything is refused, and the reason given."""
    kill_all(hunt, process)
    process.wait()
    recipe = hunt.out / "recipe.toml"
    if recipe.is_file():
        code, errors = spoil(recipe, hunt)
        assert code == ExitCode.BAD_INPUT
        assert "is not valid TOML" in errors


def set_the_clock_back(hunt: Hunt, process: Command) -> None:
    """What is there is of tomorrow, for a command that believes it is yesterday."""
    kill_all(hunt, process)
    hunt.end(process)
    for path in hunt.out.rglob("*"):
        with suppress(OSError):
            stamp = path.stat().st_mtime + DAY
            os.utime(path, (stamp, stamp))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WRONG_BY", str(-DAY))
        again = hunt.begin()
    hunt.wait_for_points(again, 2)
    kill_all(hunt, again)
    hunt.end(again)


NEEDS_A_DISK = {fill_the_disk, make_read_only}
DISTURBANCES = {
    "all killed": kill_all,
    "command killed": kill_the_command,
    "all terminated": terminate_all,
    "command terminated": terminate_the_command,
    "all interrupted": interrupt_all,
    "worker killed": to_a_worker(signal.SIGKILL),
    "worker terminated": to_a_worker(signal.SIGTERM),
    "second command": second_command,
    "full disk": fill_the_disk,
    "read-only": make_read_only,
    "recipe spoilt": spoil_the_recipe,
    "clock set back": set_the_clock_back,
}
# The exit code of a command that a disturbance ends.
ENDING = {
    "all killed": -signal.SIGKILL,
    "command killed": -signal.SIGKILL,
    "all terminated": ExitCode.REQUEUE,
    "command terminated": ExitCode.REQUEUE,
    "all interrupted": ExitCode.INTERRUPTED,
    "recipe spoilt": -signal.SIGKILL,
    "clock set back": -signal.SIGKILL,
}
SOME = ("full disk", "worker killed", "all terminated")


@pytest.fixture
def hunt(request, tmp_path, monkeypatch):
    """A sweep of so many points on so many workers, on a file system of its own if possible."""
    points, workers, megabytes = request.param
    pytest.importorskip("distributed")
    site, disk, recipe = tmp_path / "site", tmp_path / "disk", tmp_path / "tiny.toml"
    site.mkdir()
    disk.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    recipe.write_text(TINY_SAMPLED)
    monkeypatch.setenv("PYTHONPATH", str(site))
    mounted = mount("-t", "tmpfs", "-o", f"size={megabytes}m", "none", disk)
    if not mounted:
        monkeypatch.setattr(f"{__name__}.DISTURBANCES", {
            name: what for name, what in DISTURBANCES.items() if what not in NEEDS_A_DISK
        })  # fmt: skip
    rng = np.random.default_rng(points)
    yield Hunt(recipe, disk, points, workers, tmp_path / "cache", rng)
    if mounted:
        subprocess.run(["umount", "--recursive", disk], check=True)


def disturbed(hunt: Hunt, names: list[str], least: int) -> None:
    """Disturb the sweep in these ways, one after the other, then let it come to its end.

    Every way has to meet a worker at a point `least` times.
    """
    here = hunt.disk.parent / "here"
    undisturbed = start(*hunt.words(here)[:-2], cache=hunt.cache)
    expected, errors = finish(undisturbed, timeout=3600.0)
    assert expected in COMPLETE, errors
    began = time.monotonic()
    process = hunt.begin()
    for name in names:
        wanted = int(hunt.rng.integers(0, hunt.points // len(names) // 2 + 1))
        if process.poll() is None:
            hunt.wait_for_points(process, wanted)
        if process.poll() is not None:  # some of its points failed by what came before
            hunt.end(process)
            process = hunt.begin()
            hunt.wait_for_points(process, wanted)
        finished = len(hunt.finished)
        hunt.disturb(name, process)
        seconds = time.monotonic() - began
        print(f"{seconds:5.0f} s, {finished:3} points finished: {name}", flush=True)
    code, errors = hunt.end(process)
    if code not in COMPLETE:
        hunt.end(hunt.begin())
    code, errors = hunt.end(hunt.begin())
    print(f"\n{len(names)} disturbances in {time.monotonic() - began:.0f} s\n{hunt.table()}")
    assert code == expected, errors
    assert len(hunt.finished) == hunt.points
    assert (hunt.out / "sweep.csv").read_text() == (here / "sweep.csv").read_text()
    for number in range(hunt.points):
        assert_same_bits(hunt.out / f"sampler.seed={number}", here / f"sampler.seed={number}")
    assert not list(hunt.out.rglob(".part-*"))
    shutil.rmtree(here)
    assert all(met.live >= least for met in hunt.met.values()), "too few met a worker"


@pytest.mark.parametrize("hunt", [(12, 2, 30)], indirect=True)
def test_a_short_sweep_disturbed_in_some_ways(hunt):
    disturbed(hunt, [name for name in SOME if name in DISTURBANCES], least=1)


@pytest.mark.parametrize("hunt", [(200, 4, 400)], indirect=True)
def test_a_long_sweep_disturbed_in_every_way(hunt):
    names = list(DISTURBANCES)
    disturbed(hunt, [*hunt.rng.permutation(names), *hunt.rng.permutation(names)], least=1)
