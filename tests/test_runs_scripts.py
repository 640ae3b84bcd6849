"""The scripts in runs/ run as README says, and say what they found."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests import ROOT
from tests.commands import environment

SCRIPTS = sorted(path.name for path in (ROOT / "runs").glob("*.py"))
# Tutorials and the study of several outputs sample, one of them trains as well; the study over
# seeds solves 80 saddle points. Several outputs take many minutes even when made smaller.
MARKS = {
    "four_paths_seeds.py": [pytest.mark.slow],
    "learning_curve.py": [pytest.mark.slow],
    "next_order.py": [pytest.mark.slow],
    "several_outputs.py": [pytest.mark.slow, pytest.mark.long],
    "tutorial.py": [pytest.mark.slow],
    "bring_your_own.py": [
        pytest.mark.slow,
        pytest.mark.skipif(
            find_spec("torch") is None, reason="PyTorch is an extra: pip install -e '.[torch]'"
        ),
    ],
}

# Smaller than as shown, where that takes minutes: draws of a chain, seeds, examples, draws.
SIZES = {
    "several_outputs.py": ["200"],
    "four_paths_seeds.py": ["3"],
    "learning_curve.py": ["100"],
    "next_order.py": ["4000"],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, [])) for name in SCRIPTS]
)
def test_scripts_run_and_draw_their_figure(name, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "runs" / name, tmp_path, *SIZES.get(name, [])],
        capture_output=True,
        text=True,
        env=environment(None) | {"PYTHONPATH": str(ROOT)},
        timeout=900,
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
