"""The scripts in runs/ run as README says, and say what they found."""

import re
import subprocess
import sys

import pytest

from tests.commands import environment
from tests.test_readme import ROOT

SLOW = ("tutorial.py",)  # it samples
SCRIPTS = [
    pytest.param(path.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
    for path in sorted((ROOT / "runs").glob("*.py"))
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run_and_draw_their_figure(name, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "runs" / name, tmp_path],
        capture_output=True,
        text=True,
        env=environment(None) | {"PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "figure:" in done.stdout
    assert list(tmp_path.glob("*.png"))
    assert list(tmp_path.glob("*.svg"))
    listed = (ROOT / "runs" / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in listed, f"runs/README.md does not list {name}"
    if name == "support_vectors.py":
        difference = re.search(r"attention − regressor .* at most (\S+)", done.stdout)
        assert float(difference[1]) < 1e-12
