"""Slow: the programs that time things still run; what they print is not judged."""

import subprocess
import sys
import time

import numpy as np
import pytest

from tests import ROOT
from tests.benchmarks.outsiders import COMPETITORS, OURS, Setting, run_competitor

pytestmark = pytest.mark.slow


def printed(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
def test_accelerator_script_on_a_processor(tmp_path):
    """Every part; again, and nothing is measured a second time."""
    words = "tests.benchmarks.gpu", "--small", "--out", str(tmp_path)
    received = printed(*words)
    rows = [line.split("|")[1:-1] for line in received.splitlines() if line.startswith("| ")]
    chains = [row for row in rows if row[0].strip() == "order_parameters" and "N = 10" in row[1]]
    assert [int(row[2]) for row in chains] == [1, 2]
    assert all(float(row[-1]) > 0 for row in chains)
    assert "DISAGREE" not in received
    (whole,) = (row for row in rows if row[0].strip() == "quickstart.toml")
    assert float(whole[-1]) == 0.0, "here is a processor, too"
    written = (tmp_path / "GPU.md").read_text(encoding="utf-8")
    assert all(line in written for line in received.splitlines() if line.startswith("| "))
    started = time.monotonic()
    assert printed(*words) == received
    assert time.monotonic() - started < 60


def test_theory_table():
    received = printed("tests.benchmarks", "theory", "--repetitions", "1")
    assert "| Newton |" in received
    assert received.count("| Adam, ") == 2


@pytest.mark.long
def test_outsiders_table():
    """A row for each, whatever a competitor reaches in so short a time."""
    received = printed("tests.benchmarks", "outsiders", "--widths", "2", "--minutes", "0.05")
    rows = [line.split("|") for line in received.splitlines() if line.startswith("| 2 |")]
    assert [row[2].strip() for row in rows] == list(COMPETITORS)
    assert all(float(row[4]) <= 5 for row in rows)


def test_a_race_ends_with_enough_effective_draws():
    result = run_competitor(OURS, Setting(10, 600.0, "float32"))
    assert result.draws.shape[0::2] == (4, 10)
    assert np.isfinite(result.draws).all()
    assert 1000 <= min(result.effective_draws) < 10_000
    assert result.seconds < 600
