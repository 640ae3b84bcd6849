"""The scripts in runs/ run as README says, and say what they found."""

import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tests import ROOT
from tests.commands import environment


def write_series(folder):
    """Four series of each of two classes in the files that `trained_variants.py` reads."""
    generator = np.random.default_rng(0)
    for split in ("TRAIN", "TEST"):
        rows = []
        for label in ("1", "2") * 4:
            values = generator.standard_normal((2, 5)) + int(label)
            rows.append(":".join([*(",".join(map(str, one)) for one in values), label]))
        header = "@timeStamps false\n@classLabel true 1 2\n@data\n"
        path = folder / f"JapaneseVowels_eq_{split}.ts"
        path.write_text(header + "\n".join(rows) + "\n", encoding="utf-8")
    return str(folder)


# All but the one that keeps what the others found, and the models of one of them.
MODULES = {"renew.py", "heads_models.py"}
SCRIPTS = sorted({path.name for path in (ROOT / "runs").glob("*.py")} - MODULES)
NEEDS_TORCH = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is an extra: pip install -e '.[torch]'"
)
NEEDS_IMAGES = pytest.mark.skipif(
    not (ROOT / "runs" / "omniglot").is_dir(), reason="Omniglot's files are not in runs/omniglot"
)
# Tutorials and the studies of several outputs and of robust attention sample, one tutorial and the
# study of values train; the studies over seeds solve many saddle points. Studies of many minutes
# run apart, with all tests.
MARKS = {
    "copy_head.py": [pytest.mark.slow, pytest.mark.long],
    "device_sizes.py": [pytest.mark.slow],
    "heads_study.py": [pytest.mark.slow, pytest.mark.long, NEEDS_TORCH],
    "bring_your_own.py": [pytest.mark.long, NEEDS_TORCH],
    "hand_written.py": [pytest.mark.long, NEEDS_TORCH],
    "four_paths_seeds.py": [pytest.mark.slow, pytest.mark.long],
    "gains.py": [pytest.mark.slow, pytest.mark.long],
    "learned_digits.py": [pytest.mark.slow, pytest.mark.long, NEEDS_TORCH],
    "learning_curve.py": [pytest.mark.slow, pytest.mark.long],
    "next_order.py": [pytest.mark.slow, pytest.mark.long],
    "nonlinear_values.py": [pytest.mark.slow, pytest.mark.long],
    "one_shot_trainings.py": [pytest.mark.slow, pytest.mark.long, NEEDS_IMAGES],
    "several_outputs.py": [pytest.mark.slow, pytest.mark.long],
    "rank_collapse.py": [pytest.mark.long],
    "short_chains.py": [pytest.mark.slow, pytest.mark.long],
    "raven.py": [pytest.mark.slow, pytest.mark.long],
    "robust_attention.py": [pytest.mark.slow, pytest.mark.long],
    "tempered_evidence.py": [pytest.mark.slow, pytest.mark.long],
    "trained_variants.py": [pytest.mark.slow, pytest.mark.long],
    "teacher_student.py": [pytest.mark.slow, pytest.mark.long],
    "tutorial.py": [pytest.mark.long],
    "value_components.py": [pytest.mark.slow, pytest.mark.long],
}

# Smaller than as shown, where that takes minutes: draws of a chain, seeds, examples, draws, steps,
# models.
SIZES = {
    "copy_head.py": ["2"],
    "device_sizes.py": ["a million training examples"],
    "heads_study.py": ["look_up_2x4_0"],
    "hand_written.py": ["1"],
    "one_shot_trainings.py": ["F"],
    "several_outputs.py": ["200"],
    "four_paths_seeds.py": ["3"],
    "gains.py": ["2"],
    "learned_digits.py": ["2"],
    "learning_curve.py": ["100"],
    "next_order.py": ["4000"],
    "nonlinear_values.py": ["5", "1"],
    "raven.py": ["2", "100"],
    "robust_attention.py": ["2"],
    "short_chains.py": ["2", "one path"],
    "tempered_evidence.py": ["smoke"],
    "teacher_student.py": ["all", "50", "2"],
    "value_components.py": ["2", "20"],
}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, [])) for name in SCRIPTS]
)
def test_scripts_run_and_draw_their_figure(name, tmp_path):
    sizes = SIZES.get(name, [])
    if name == "trained_variants.py":
        sizes = ["--data", write_series(tmp_path), "--steps", "20", "--labelled", "3"]
        sizes += ["--seeds", "0", "1"]
    done = subprocess.run(
        [sys.executable, ROOT / "runs" / name, tmp_path, *sizes],
        capture_output=True,
        text=True,
        env=environment(None) | {"PYTHONPATH": str(ROOT)},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "figure:" in done.stdout
    assert list(tmp_path.glob("*.png"))
    if (ROOT / "runs" / "numbers" / name.replace(".py", ".json")).is_file():
        assert (tmp_path / name.replace(".py", ".json")).is_file()
    listed = (ROOT / "runs" / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in listed, f"runs/README.md does not list {name}"
    if name == "support_vectors.py":
        difference = re.search(r"attention − regressor .* at most (\S+)", done.stdout)
        assert float(difference[1]) < 1e-12
