"""Leaving on a signal: what the last message names is saved, whenever the signals arrive."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import sampler.jobs.keeper
from sampler.errors import ExitCode, RequeueError
from sampler.jobs.interruption import MOMENT, Interruption
from sampler.jobs.keeper import DrawKeeper
from sampler.mcmc.algorithm import Chunk, Snapshot
from sampler.mcmc.collected_draws import DrawCollector
from sampler.storage.checkpoints import Checkpoints
from tests import ROOT

CHAINS, STEPS, CHUNKS = 2, 4, 4


@contextmanager
def before_line(number: int, path: str, ask: Callable[[], None]) -> Iterator[None]:
    """Inside, `ask` is called before the n-th line of a file that is carried out."""
    left, before = number, sys.gettrace()

    def in_file(frame, event, _):
        nonlocal left
        left -= event == "line"
        if event == "line" and left == 0:
            ask()
        return in_file

    sys.settrace(lambda frame, *_: in_file if frame.f_code.co_filename == path else None)
    try:
        yield
    finally:
        sys.settrace(before)


def at_every_line(
    path: str, work: Callable[[int, Interruption], None]
) -> Iterator[tuple[int, str]]:
    """Numbers of all lines before which work can be asked to leave, and what it says it saved."""
    number = 0
    while True:
        number += 1
        interruption = Interruption()

        try:
            with before_line(number, path, partial(interruption.ask, signal.SIGTERM)):
                work(number, interruption)
        except RequeueError as left:
            yield number, str(left)
        else:
            return


def chunk(done: int, total: int = CHUNKS * STEPS) -> Chunk:
    values = np.arange(done - STEPS, done) * np.ones((CHAINS, 1))
    state = partial(Snapshot, "draws", done, {"point": np.array([done])})
    made = {"lp": -values}, {"predictor": values}, 1.0
    return Chunk("draws", done, total, *made, make_snapshot=state)


def keeper_of(folder: Path, interruption: Interruption, every: float) -> DrawKeeper:
    return DrawKeeper(Checkpoints(folder, {"settings": {}}, every), interruption)


def stored(folder: Path) -> np.ndarray:
    """The draws in the newest checkpoint."""
    collected = DrawCollector()
    keeper_of(folder, Interruption(), 0.0).go_on(collected)
    return collected.draws["predictor"]


@pytest.mark.heavy
@pytest.mark.parametrize("every", [0.0, 1e9], ids=["each", "none"])
def test_draws_that_are_said_to_be_saved_are(every, tmp_path):
    """The signal arrives before any line of the keeper: between a save and the look for it, too."""

    def draw(number: int, interruption: Interruption) -> None:
        folder, collected = tmp_path / f"{number}", DrawCollector()
        keeper = keeper_of(folder, interruption, every)
        keeper.go_on(collected)
        for done in range(STEPS, CHUNKS * STEPS + 1, STEPS):
            collected(chunk(done))
            held.append(done)
            keeper(chunk(done))

    held, seen = [], set()
    for number, text in at_every_line(sampler.jobs.keeper.__file__, draw):
        drawn = stored(tmp_path / f"{number}")
        assert text == f"SIGTERM received: draws {held[-1]} of {CHUNKS * STEPS} is saved"
        np.testing.assert_array_equal(drawn, np.arange(held[-1]) * np.ones((CHAINS, 1)))
        seen.add(held[-1])
    assert seen == set(range(STEPS, CHUNKS * STEPS + 1, STEPS))


# Chains whose second chunk is written slowly: the file has another name until it is complete.
SAVING = """
import os, sys, time
from pathlib import Path
from sampler.errors import RequeueError
from sampler.jobs.interruption import listening
from sampler.mcmc.collected_draws import DrawCollector
from tests.sampler.jobs.test_leaving import STEPS, chunk, keeper_of

replace = os.replace
def slowly(*paths):
    print("saving", flush=True)
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        time.sleep(0.01)
    replace(*paths)

with listening() as interruption:
    collected = DrawCollector()
    keeper = keeper_of(Path(sys.argv[1]), interruption, 0.0)
    keeper.go_on(collected)
    for done in (STEPS, 2 * STEPS):
        collected(chunk(done))
        try:
            keeper(chunk(done))
        except RequeueError as left:
            print(left, flush=True)
            sys.exit(75)
        os.replace = slowly
"""


@contextmanager
def saving(folder: Path, seconds: float) -> Iterator[subprocess.Popen]:
    """A program in the midst of its second save, which takes so many seconds."""
    with subprocess.Popen(
        [sys.executable, "-c", SAVING.format(seconds=seconds), str(folder)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == "saving\n"
            yield process
        finally:
            process.kill()


@pytest.mark.heavy
def test_a_second_signal_in_a_save_ends_it_with_all_files_whole(tmp_path):
    folder = tmp_path / "chains"
    with saving(folder, 1000.0) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(MOMENT + 0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == ExitCode.REQUEUE
    keeper, collected = keeper_of(folder, Interruption(), 0.0), DrawCollector()
    assert keeper.go_on(collected).done == STEPS
    collected(chunk(2 * STEPS))
    keeper(chunk(2 * STEPS))
    assert stored(folder).shape[1] == 2 * STEPS
