"""Files of the user's that have the names of packages of this program, or of each other."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sampler.errors import ExitCode, InputError
from sampler.jobs.engines import write_slurm_array
from sampler.jobs.plan import Point
from sampler.recipes.recipe import load_recipe
from sampler.storage.own_theories import predictions_of
from tests import ROOT
from tests.commands import TINY

HIDES = "hides a package of this program that has the same name; give it another one"
LOG_EVIDENCE = {"log_evidence": {}}


def python(folder, *words: str) -> subprocess.CompletedProcess:
    """Python started in a folder, to which this program is installed."""
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """What a reader of the tutorial about own theories may have written."""
    for name in ("theory.py", "sampler.py"):
        (tmp_path / name).write_text("raise SystemExit('not this program')\n")
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


def test_the_script_of_a_sweep_runs_where_files_have_names_of_this_program(folder, capsys):
    """The first line of a task: no point has this index."""
    recipe = load_recipe(folder / "tiny.toml", ["sweep.sampler.seed=[0, 1]"])
    write_slurm_array(Point(recipe, folder / "out"), [])
    done = subprocess.run(
        ["bash", folder / "out" / "sweep.sbatch"], cwd=folder, capture_output=True, text=True,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "SLURM_ARRAY_TASK_ID": "7", "JAX_PLATFORMS": "cpu"},
        timeout=300,
    )  # fmt: skip
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr == "attention-posterior: --point = 7: use 0 to 1\n"


def test_a_theory_beside_the_program_is_named(folder):
    (folder / "sampler.py").unlink()
    done = python(folder, "-m", "sampler", "check", "tiny.toml")
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.startswith("attention-posterior: import theory = ")
    # The beginning of a long path is left out.
    assert done.stderr.endswith(f"{str(folder / 'theory.py')[-60:]}': {HIDES}\n")


def test_it_is_named_in_python_as_well(folder):
    (folder / "sampler.py").unlink()
    done = python(folder, "-c", "import sampler; sampler.solve")
    assert done.stderr.splitlines()[-1].endswith(HIDES)


def write(folder, **files: str):
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_modules_beside_an_own_theory_are_found_each_beside_its_own(tmp_path):
    """Also where they are imported only when the function is called."""
    at_once = "from parts import VALUE\ndef predict(problem): return {'log_evidence': VALUE}"
    later = at_once.replace("def predict(problem): ", "def predict(problem):\n  import parts\n  ")
    one = write(tmp_path / "one", mine=at_once, parts="VALUE = 1.5")
    two = write(tmp_path / "two", mine=later, parts="VALUE = -2.5")
    path, modules = list(sys.path), set(sys.modules)
    for folder, expected in ((one, 1.5), (two, -2.5), (one, 1.5)):
        source = f"{folder}/mine.py:predict"
        found = predictions_of("mine", source, lambda: None, LOG_EVIDENCE)
        np.testing.assert_array_equal(found["log_evidence"], expected)
    assert sys.path == path
    assert "parts" not in set(sys.modules) - modules


def test_a_theory_named_as_the_package_may_use_the_package(tmp_path):
    text = (
        "from theory import OrderParameters\nfrom sampler.errors import InputError\n"
        "def predict(problem): return {'log_evidence': len(OrderParameters.__name__)}"
    )
    folder = write(tmp_path / "own", theory=text, sampler="raise ValueError")
    found = predictions_of("mine", f"{folder}/theory.py:predict", lambda: None, LOG_EVIDENCE)
    assert found["log_evidence"] == len("OrderParameters")


def test_the_path_of_modules_is_put_back_after_an_error(tmp_path):
    folder = write(tmp_path / "own", mine="import nowhere")
    path = list(sys.path)
    with pytest.raises(InputError, match="ModuleNotFoundError: No module named 'nowhere'"):
        predictions_of("mine", f"{folder}/mine.py:predict", lambda: None, LOG_EVIDENCE)
    assert sys.path == path
