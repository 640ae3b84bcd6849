"""Every study, at small size, writes its figures and its numbers: `make test-nightly`."""

import ast
import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

import sampler
import theory
from tests import ROOT
from tests.commands import environment
from tests.studies.test_tables import NAMES, assert_fields_are_kept

STUDIES = ROOT / "runs" / "studies"
NEED_TORCH = {"bring_your_own", "hand_written_heads", "which_heads"}
NEED_IMAGES = {"one_shot"}

# What is documented beside the names of both packages: variants and figures in CONTRIBUTING.
PUBLIC = {
    "sampler": {*sampler.__all__},
    "theory": {*theory.__all__},
    "sampler.attention.variants": {"VARIANTS", "AttentionVariant"},
    "sampler.cli": {"main"},
    "sampler.presentation": {"style"},
}


def run(name, *words):
    """Run a study, at most two minutes."""
    if name in NEED_TORCH and find_spec("torch") is None:
        pytest.skip("PyTorch is an extra: pip install -e '.[torch]'")
    if name in NEED_IMAGES and not (ROOT / "runs" / "omniglot").is_dir():
        pytest.skip("Omniglot's files are not in runs/omniglot")
    done = subprocess.run(
        [sys.executable, "-m", f"runs.studies.{name}.study", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(None) | {"PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_every_study_is_run():
    assert {path.parent.name for path in STUDIES.glob("*/study.py")} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_short_and_uses_what_is_documented(name):
    text = (STUDIES / name / "study.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            known = {"sampler", "theory"}
            assert {of.name for of in node.names if of.name.partition(".")[0] in known} <= known
        elif isinstance(node, ast.ImportFrom) and node.module.startswith(("sampler", "theory")):
            assert {of.name for of in node.names} <= PUBLIC[node.module], node.module


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_a_small_study_writes_its_figure_and_the_fields_that_are_kept(name, tmp_path):
    run(name, "--small", "--out", tmp_path)
    assert list(tmp_path.glob("*.png"))
    content = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert list(content) == ["made", "versions", "numbers"]
    assert_fields_are_kept(name, content["numbers"])
