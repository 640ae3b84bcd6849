"""Files of the user's that have the names of packages of this program, or of each other."""

import os
import subprocess
import sys

import pytest

from sampler.errors import ExitCode
from sampler.jobs.plan import make_plan
from sampler.jobs.slurm import write_slurm_array
from sampler.settings.recipe import load_recipe
from tests import ROOT
from tests.commands import TINY

HIDES = "hides a package of this program that has the same name; give it another one"


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
    """It gets as far as a kind of device that there is not."""
    recipe = load_recipe(folder / "tiny.toml", ["sweep.sampler.seed=[0, 1]"])
    write_slurm_array(make_plan("run", recipe, folder / "out"), [])
    done = subprocess.run(
        ["bash", folder / "out" / "sweep.sbatch"], cwd=folder, capture_output=True, text=True,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "SLURM_ARRAY_TASK_ID": "1", "JAX_PLATFORMS": "none"},
        timeout=300,
    )  # fmt: skip
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.startswith("attention-posterior: JAX_PLATFORMS = 'none': ")


def test_a_theory_beside_the_program_is_named(folder):
    (folder / "sampler.py").unlink()
    done = python(folder, "-m", "sampler", "check", "tiny.toml")
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.startswith("attention-posterior: import theory = ")
    # The beginning of a long path is left out.
    assert done.stderr.endswith(f"{str(folder / 'theory.py')[-60:]}': {HIDES}\n")
