"""Slow: signals to a sweep on workers, to its command alone or to every process of it."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.jobs.interruption import MOMENT
from sampler.storage.lock import LOCK_FILE, is_held
from sampler.storage.status import newest_checkpoint
from tests.commands import TINY, Command, command, finish, start

pytestmark = pytest.mark.slow
POINTS, WORKERS = 4, 2
ENDED = 20.0  # seconds: much less than any chunk of `LONG`
RECIPE = f"{TINY}chains = 2\nwarmup = 50\ndraws = 1000\nthinning = "
# Transitions of a kept draw: chunks of some seconds, and of minutes.
SHORT, LONG = 1_000, 3_000_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder of compiled functions."""
    pytest.importorskip("distributed")
    return tmp_path_factory.mktemp("cache")


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
        headers = {path.parent: newest_checkpoint(path.parent) for path in self.locks()}
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

    @property
    def going_on(self) -> str:
        """Where the results are, and the command once more."""
        again = " ".join(["attention-posterior", *self.words])
        return f"what is done is in {self.out}; to go on: {again}"

    def wait_for_free_points(self) -> None:
        """Until no process is at work in any point."""
        limit = time.monotonic() + ENDED
        while self.locks():
            assert time.monotonic() < limit, "a worker goes on without its command"
            time.sleep(0.1)


@pytest.mark.long
@pytest.mark.parametrize("whom", ["the command", "every process"])
def test_every_worker_saves_its_chunk(whom, cache, tmp_path):
    sweep = Sweep(tmp_path, cache, SHORT)
    before = {point: newest_checkpoint(point)["sequence"] for point in sweep.in_draws()}
    (os.kill if whom == "the command" else os.killpg)(sweep.process.pid, signal.SIGTERM)
    code, errors = sweep.end()
    assert code == ExitCode.REQUEUE, errors
    saved = "what the workers had in work is saved"
    assert errors == f"attention-posterior: SIGTERM received: {saved}; {sweep.going_on}\n"
    assert not sweep.locks()
    assert len(before) == WORKERS
    for point, sequence in before.items():
        assert newest_checkpoint(point)["sequence"] > sequence
    begun = {path.parent for path in sweep.out.glob("*/manifest.json")}
    assert begun == set(before)  # no other point was begun


@pytest.mark.long
def test_a_second_signal_ends_the_workers_too(cache, tmp_path):
    sweep = Sweep(tmp_path, cache, LONG)
    sweep.process.send_signal(signal.SIGTERM)
    time.sleep(MOMENT + 0.5)
    assert sweep.process.poll() is None
    sweep.process.send_signal(signal.SIGTERM)
    assert sweep.end()[0] == ExitCode.REQUEUE
    sweep.wait_for_free_points()


def test_workers_end_with_a_command_that_is_killed(cache, tmp_path):
    """The points they leave are free: another process takes one of them up."""
    sweep = Sweep(tmp_path, cache, LONG)
    assert len(sweep.locks()) == WORKERS
    sweep.process.kill()
    sweep.process.wait()
    sweep.wait_for_free_points()
    sweep.end()


@pytest.mark.long
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("whom", ["every process", "the command"])
def test_an_interrupt_waits_for_no_chunk(whom, cache, tmp_path):
    sweep = Sweep(tmp_path, cache, LONG)
    (os.kill if whom == "the command" else os.killpg)(sweep.process.pid, signal.SIGINT)
    started = time.monotonic()
    code, errors = sweep.end()
    assert code == ExitCode.INTERRUPTED, errors
    assert time.monotonic() - started < ENDED
    assert errors.splitlines()[-1] == f"attention-posterior: interrupted; {sweep.going_on}"
    sweep.wait_for_free_points()


def test_a_signal_while_workers_start_is_heard(cache, tmp_path):
    recipe, out = tmp_path / "tiny.toml", tmp_path / "sweep"
    recipe.write_text(f"{RECIPE}{SHORT}\n")
    words = ["sweep", recipe, "--out", out, "--over", "sampler.seed=0:2", "--workers", 2]
    process = start(*words, cache=cache, start_new_session=True)
    while not is_held(out):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGTERM)
    code, errors = finish(process)
    assert code == ExitCode.REQUEUE, errors
    assert "Traceback" not in errors
    assert not list(out.glob("*/report.html"))
    assert command("status", out)[0] == ExitCode.OK
