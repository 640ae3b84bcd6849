"""Slow: a sweep on workers that is stopped, killed or interrupted."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.jobs.workers import FOLDER
from sampler.storage.checkpoints import newest_header
from sampler.storage.directory import LOCK_FILE, is_held
from tests.commands import TINY, TINY_SAMPLED, Command, assert_same_bits, command, finish, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are not listed"),
]
POINTS, WORKERS = 3, 2
ENDED = 20.0  # seconds: much less than any chunk of `LONG`
RECIPE = f"{TINY}chains = 2\nwarmup = 50\ndraws = 1000\nthinning = "
# Transitions of a kept draw: chunks of a part of a second, and of minutes.
SHORT, LONG = 50, 3_000_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder of compiled functions."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> tuple[int, Path]:
    """The exit code and the directory of an undisturbed sweep in one process."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = folder / "tiny.toml"
    recipe.write_text(f"{RECIPE}{SHORT}\n")
    words = ("sweep", recipe, "--out", folder / "sweep", "--over", f"sampler.seed=0:{POINTS}")
    return command(*words, cache=cache)[0], folder / "sweep"


def workers_of(process: Command) -> list[int]:
    """The commands that a command has begun to do its points."""
    return [each for each in children_of(process.pid) if b"--worker" in words_of(each)]


def children_of(number: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{number}/task/{number}/children").read_text().split()))
    except FileNotFoundError:  # it has ended
        return []


def words_of(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def test_a_sweep_that_loses_a_worker_is_that_of_one_process(tmp_path):
    """Bit for bit."""
    recipe, whole, out = tmp_path / "tiny.toml", tmp_path / "whole", tmp_path / "sweep"
    recipe.write_text(TINY_SAMPLED)
    grid = ("--over", "posterior.temperature=0.5,1.0")
    # In a process of its own: this one may have begun on one device, and would round otherwise.
    code, errors = command("sweep", recipe, "--out", whole, *grid)
    assert code == ExitCode.DIAGNOSTICS_FAILED, errors
    process = start("sweep", recipe, "--out", out, *grid, "--workers", WORKERS)
    while process.poll() is None and len(list((out / FOLDER).glob("*.attempts"))) < WORKERS:
        time.sleep(0.05)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    code, errors = finish(process)
    assert code == ExitCode.DIAGNOSTICS_FAILED, errors
    attempts = [json.loads(path.read_text())["attempts"] for path in outcomes_in(out)]
    assert sorted(attempts) == [1, 2]
    assert (out / "sweep.csv").read_text() == (whole / "sweep.csv").read_text()
    for name in ("0.5", "1.0"):
        point = f"posterior.temperature={name}"
        assert_same_bits(out / point, whole / point)


def outcomes_in(out: Path) -> list[Path]:
    """The files of the outcomes of all points."""
    return [path for path in (out / FOLDER).glob("*.json") if path.stem.isdigit()]


class Sweep:
    """A sweep in a group of processes of its own, with both workers at work on draws."""

    def __init__(self, folder: Path, cache: Path, thinning: int) -> None:
        self.out, recipe = folder / "sweep", folder / "tiny.toml"
        recipe.write_text(f"{RECIPE}{thinning}\n")
        over = ["--over", f"sampler.seed=0:{POINTS}", "--workers", str(WORKERS)]
        self.words = ["sweep", str(recipe), "--out", str(self.out), *over]
        self.process: Command = start(*self.words, cache=cache, start_new_session=True)
        while self.process.poll() is None and len(self.in_draws()) < WORKERS:
            time.sleep(0.05)
        time.sleep(0.5)

    def locks(self) -> list[Path]:
        return [path for path in self.out.glob(f"*/{LOCK_FILE}") if is_held(path.parent)]

    def in_draws(self) -> list[Path]:
        """Points whose warm-up is saved: the first chunk of draws is in work."""
        headers = {path.parent: newest_header(path.parent) for path in self.locks()}
        return [
            point
            for point, header in headers.items()
            if header and (header["phase"], header["done"]) != ("warmup", 0)
            and (header["phase"] == "draws" or header["done"] == header["total"])
        ]  # fmt: skip

    def end(self) -> tuple[int, str]:
        """Exit code and stderr of the command; what would be left of it is killed."""
        try:
            return finish(self.process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def wait_for_free_points(self) -> None:
        """Until no process is at work in any point."""
        limit = time.monotonic() + ENDED
        while self.locks():
            assert time.monotonic() < limit, "a worker goes on without its command"
            time.sleep(0.1)


@pytest.mark.long
def test_a_sweep_goes_on_bit_for_bit(cache, whole, tmp_path):
    """Stopped, every worker saves and no point is begun; a killed one costs what was not saved.

    A worker that alone is signalled saves as well, and another one goes on with its point.
    """
    expected, here = whole
    sweep = Sweep(tmp_path, cache, SHORT)
    before = {point: newest_header(point)["sequence"] for point in sweep.in_draws()}
    sweep.process.send_signal(signal.SIGTERM)  # the command alone, which passes it on
    code, errors = sweep.end()
    assert code == ExitCode.REQUEUE, errors
    assert not sweep.locks()
    for point, sequence in before.items():
        assert newest_header(point)["sequence"] > sequence
    assert {path.parent for path in sweep.out.glob("*/manifest.json")} == set(before)
    saved = {point: newest_header(point)["sequence"] for point in before}
    sweep = Sweep(tmp_path, cache, SHORT)
    killed, signalled = workers_of(sweep.process)
    os.kill(killed, signal.SIGKILL)
    os.kill(signalled, signal.SIGTERM)
    code, errors = sweep.end()
    assert code == expected, errors
    attempts = [json.loads(path.read_text())["attempts"] for path in outcomes_in(sweep.out)]
    assert sorted(attempts) == [1] * (POINTS - 1) + [2]
    for point, sequence in saved.items():
        assert newest_header(point)["sequence"] >= sequence
    assert (sweep.out / "sweep.csv").read_text() == (here / "sweep.csv").read_text()
    for number in range(POINTS):
        assert_same_bits(sweep.out / f"sampler.seed={number}", here / f"sampler.seed={number}")


@pytest.mark.long
@pytest.mark.usefixtures("interruptible")
def test_workers_end_with_their_command(cache, tmp_path):
    """Killed, it leaves the points free; Ctrl-C reaches every process and waits for no chunk."""
    sweep = Sweep(tmp_path, cache, LONG)
    assert len(sweep.locks()) == WORKERS
    sweep.process.kill()
    sweep.process.wait()
    sweep.wait_for_free_points()
    sweep.end()
    sweep = Sweep(tmp_path, cache, LONG)
    os.killpg(sweep.process.pid, signal.SIGINT)
    started = time.monotonic()
    code, errors = sweep.end()
    assert code == ExitCode.INTERRUPTED, errors
    assert time.monotonic() - started < ENDED
    assert errors.startswith("attention-posterior: interrupted; ")
    assert errors.endswith(f"{' '.join(sweep.words)}\n")
    sweep.wait_for_free_points()
