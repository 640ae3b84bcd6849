"""Studies of runs/, at small sizes, write their figure and their numbers."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tests import ROOT
from tests.commands import environment

STUDIES = ROOT / "runs" / "studies"
NEEDS_TORCH = {"bring_your_own.study", "which_heads.hand_written", "which_heads.study"}
NEEDS_IMAGES = {"one_shot.study"}
MODULES = sorted(
    f"{path.parent.name}.{path.stem}"
    for path in STUDIES.glob("*/*.py")
    if path.stem not in {"mathematics", "models", "task"}
)
# Smaller than as shown, where that takes minutes: draws of a chain, seeds, examples, draws, steps,
# models. In the place of SERIES stands a folder of series.
SERIES = "series"
SIZES = {
    "copy_head.study": ["2"],
    "learning_curve.study": ["100"],
    "next_order.study": ["4000", "200"],
    "nonlinear_values.study": ["5", "1"],
    "one_shot.study": ["F"],
    "robust_attention.study": ["2"],
    "teacher_student.study": ["50", "2"],
    "trained_variants.study": ["JapaneseVowels_eq", "3", "20", "2", SERIES],
    "which_heads.hand_written": ["1"],
    "which_heads.study": ["look_up_2x4_0"],
    "width_gains.cuts": ["3"],
    "width_gains.study": ["2"],
}


def write_series(folder):
    """Four series of each of two classes in the files that `trained_variants` reads."""
    generator = np.random.default_rng(0)
    for split in ("TRAIN", "TEST"):
        rows = []
        for label in ("1", "2") * 4:
            values = generator.standard_normal((2, 5)) + int(label)
            rows.append(":".join([*(",".join(map(str, row)) for row in values), label]))
        header = "@timeStamps false\n@classLabel true 1 2\n@data\n"
        path = folder / f"JapaneseVowels_eq_{split}.ts"
        path.write_text(header + "\n".join(rows) + "\n", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("module", MODULES)
def test_a_study_writes_its_figure_and_its_numbers(module, tmp_path):
    if module in NEEDS_TORCH and find_spec("torch") is None:
        pytest.skip("PyTorch is an extra: pip install -e '.[torch]'")
    if module in NEEDS_IMAGES and not (ROOT / "runs" / "omniglot").is_dir():
        pytest.skip("Omniglot's files are not in runs/omniglot")
    sizes = [tmp_path if size == SERIES else size for size in SIZES.get(module, [])]
    if tmp_path in sizes:
        write_series(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", f"runs.studies.{module}", tmp_path, *sizes],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(None) | {"PYTHONPATH": str(ROOT)},
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*.png"))
    assert list(tmp_path.glob("*.json"))
