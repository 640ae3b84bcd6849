"""Studies and scripts of runs/, at small sizes, write their figure and their numbers."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tests import ROOT
from tests.commands import environment

RUNS = ROOT / "runs"


def write_series(folder):
    """Four series of each of two classes in the files that `trained_variants.py` reads."""
    generator = np.random.default_rng(0)
    for split in ("TRAIN", "TEST"):
        rows = []
        for label in ("1", "2") * 4:
            values = generator.standard_normal((2, 5)) + int(label)
            rows.append(":".join([*(",".join(map(str, row)) for row in values), label]))
        header = "@timeStamps false\n@classLabel true 1 2\n@data\n"
        path = folder / f"JapaneseVowels_eq_{split}.ts"
        path.write_text(header + "\n".join(rows) + "\n", encoding="utf-8")


# renew.py keeps what the others wrote; heads_models.py has the models of heads_study.py.
MODULES = {"renew", "heads_models"}
SCRIPTS = sorted(
    {path.stem for path in RUNS.glob("*.py")} - MODULES
    | {path.parent.name for path in RUNS.glob("studies/*/study.py")}
)
NEEDS_TORCH = {"bring_your_own", "hand_written", "heads_study"}
NEEDS_IMAGES = {"one_shot_trainings"}
# Smaller than as shown, where that takes minutes: draws of a chain, seeds, examples, draws, steps,
# models.
SIZES = {
    "copy_head": ["2"],
    "four_paths_seeds": ["3"],
    "gains": ["2"],
    "hand_written": ["1"],
    "heads_study": ["look_up_2x4_0"],
    "learning_curve": ["100"],
    "next_order": ["4000"],
    "nonlinear_values": ["5", "1"],
    "one_shot_trainings": ["F"],
    "raven": ["2", "100"],
    "robust_attention": ["2"],
    "several_outputs": ["200"],
    "teacher_student": ["all", "50", "2"],
    "trained_variants": ["--steps", "20", "--labelled", "3", "--seeds", "0", "1"],
    "value_components": ["2", "20"],
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_writes_its_figure_and_its_numbers(name, tmp_path):
    if name in NEEDS_TORCH and find_spec("torch") is None:
        pytest.skip("PyTorch is an extra: pip install -e '.[torch]'")
    if name in NEEDS_IMAGES and not (RUNS / "omniglot").is_dir():
        pytest.skip("Omniglot's files are not in runs/omniglot")
    call = [f"runs/{name}.py"]
    if (RUNS / "studies" / name / "study.py").is_file():
        call = ["-m", f"runs.studies.{name}.study"]
    sizes = SIZES.get(name, [])
    if name == "trained_variants":
        write_series(tmp_path)
        sizes = ["--data", tmp_path, *sizes]
    done = subprocess.run(
        [sys.executable, *call, tmp_path, *sizes],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(None) | {"PYTHONPATH": str(ROOT)},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*.png"))
    if (RUNS / "numbers" / f"{name}.json").is_file():
        assert (tmp_path / f"{name}.json").is_file()
