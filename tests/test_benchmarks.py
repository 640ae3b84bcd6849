"""Slow: the programs that time things still run; what they print is not judged."""

import subprocess
import sys

import pytest

from tests import ROOT

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


def test_accelerator_script_on_a_processor():
    sizes = ["--width", "10", "--examples", "100", "--paths", "4", "--spaces", "order_parameters"]
    short = ["--chains", "1", "2", "--batches", "16", "--seconds", "0.5"]
    received = printed("tests.benchmarks.gpu", *sizes, *short)
    rows = [line.split("|")[1:-1] for line in received.splitlines() if line.startswith("| ")]
    chains = [row for row in rows if row[0].strip() == "order_parameters"]
    assert [int(row[2]) for row in chains] == [1, 2]
    assert all(float(row[-1]) > 0 for row in chains)
    assert "DISAGREE" not in received


def test_theory_table():
    received = printed("tests.benchmarks", "theory", "--repetitions", "1")
    assert "| Newton |" in received
    assert received.count("| Adam, ") == 2
