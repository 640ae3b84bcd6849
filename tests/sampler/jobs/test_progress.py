"""The time that is left, as progress tells it."""

from types import SimpleNamespace

import numpy as np
import pytest

from sampler.jobs import progress as module
from sampler.jobs.progress import Progress, SamplingProgress
from sampler.mcmc.algorithm import Chunk
from tests.problems import HMC


@pytest.fixture
def clock(monkeypatch):
    """The time that progress reads, and the lines that it writes into a file."""
    clock = SimpleNamespace(now=100.0, lines=[])
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(module, "print_stderr", clock.lines.append)
    monkeypatch.setattr(module, "in_terminal", lambda: False)
    return clock


@pytest.mark.parametrize(
    ("phase", "done", "left"), [("warmup", 20, 2.0 * (80 + 600)), ("draws", 40, 2.0 * 60)]
)
def test_the_time_left_is_that_until_the_last_draw(phase, done, left, clock):
    """Ten steps in twenty seconds, of 100; 200 draws of three steps each follow the warm-up."""
    names = ("lp", "step_size", "acceptance_rate", "diverging", "n_steps")
    statistics = {name: np.ones((2, 10)) for name in names}
    with Progress() as progress:
        listener = SamplingProgress(progress, HMC, steps=600)
        listener(Chunk(phase, done - 10, 100, statistics, seconds=500.0, compiled=True))
        clock.now += 20.0
        listener(Chunk(phase, done, 100, statistics, seconds=20.0))
    first, second = clock.lines
    assert first == f"{phase} {done - 10}/100, compiled in 500 s"
    assert second.startswith(f"{phase} {done}/100, {left:.0f} s left, ")
