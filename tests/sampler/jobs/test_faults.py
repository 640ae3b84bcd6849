"""Slow: a run that is stopped, killed and interrupted has the same bits in the end."""

import signal
import time
from functools import partial
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.storage.checkpoints import newest_header
from sampler.storage.files import UNFINISHED
from tests.commands import TINY, UNDRAWN, assert_same_bits, command, finish, start
from tests.kills import check_files

pytestmark = [pytest.mark.slow, pytest.mark.long]

# Nobody looks at the figures of what is killed here.
undrawn_start, undrawn_command = partial(start, before=UNDRAWN), partial(command, before=UNDRAWN)
DRAWS = 3000


def wait_for_draws(process, directory: Path, more_than: int = 0) -> int:
    """Wait until more draws of a chain are saved: how many there are."""
    while process.poll() is None:
        header = newest_header(directory)
        if header is not None and header["phase"] == "draws" and header["done"] > more_than:
            return header["done"]
        time.sleep(0.01)
    raise AssertionError(f"ended before it could be stopped: {finish(process)[1]}")


@pytest.mark.usefixtures("interruptible")
def test_stopped_killed_interrupted_and_resumed(tmp_path):
    recipe, cache, whole = tmp_path / "tiny.toml", tmp_path / "cache", tmp_path / "whole"
    recipe.write_text(f"{TINY}draws = {DRAWS}\n")
    cache.mkdir()
    code, errors = undrawn_command("run", recipe, "--out", whole, cache=cache)
    assert code == ExitCode.OK, errors
    directory, done = tmp_path / "run", 0
    words: tuple = ("run", recipe, "--out", directory)
    for number, code in (
        (signal.SIGTERM, ExitCode.REQUEUE),
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGINT, ExitCode.INTERRUPTED),
    ):
        process = undrawn_start(*words, cache=cache)
        done = wait_for_draws(process, directory, done)
        process.send_signal(number)
        received, errors = finish(process)
        assert received == code, errors
        check_files(directory)
        words = ("resume", directory)
    assert errors.splitlines()[-1].endswith(f"attention-posterior resume {directory}")
    assert undrawn_command("resume", directory, cache=cache)[0] == ExitCode.OK
    assert not list(directory.rglob(f"{UNFINISHED}*"))
    assert_same_bits(directory, whole)
