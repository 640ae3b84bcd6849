"""Environments in which a library fails: no home, no such screen, no such flag."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sampler import compiled, environment
from sampler.environment import draw_into_files, reason_against
from sampler.errors import ExitCode
from tests import ROOT
from tests.commands import in_process


@pytest.fixture
def variables(monkeypatch):
    """The environment of this process, to be changed, without what users may have set in it."""
    mine = dict(os.environ)
    for name in (environment.OF_MATPLOTLIB, "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLBACKEND",
                 compiled.OF_JAX, compiled.SETTING):  # fmt: skip
        mine.pop(name, None)
    monkeypatch.setattr(os, "environ", mine)
    return mine


NOBODY = "import pwd; pwd.getpwuid = pwd.getpwnam = {}.__getitem__"
DRAWN = """
from pathlib import Path
from sampler.environment import draw_into_files
from sampler.compiled import cache_programs
draw_into_files()
folder = cache_programs()
import matplotlib
from matplotlib.figure import Figure
Figure().savefig("a.png")
assert Path("a.png").is_file()
print(folder)
"""


@pytest.mark.heavy
@pytest.mark.parametrize("home", [None, "", "relative", "/dev/null", "/dev/null/home"])
def test_a_figure_is_drawn_and_nothing_is_kept_where_nobody_has_a_home(home, variables, tmp_path):
    """In a process whose user has no entry in the list of users."""
    variables |= {"MPLBACKEND": "nonsense", "PYTHONPATH": str(ROOT)}
    variables.pop("HOME", None)
    if home is not None:
        variables["HOME"] = home
    done = subprocess.run(
        [sys.executable, "-c", NOBODY + DRAWN],
        env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == "None\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_home_that_can_be_written_keeps_the_list_of_fonts(variables, tmp_path):
    variables["HOME"] = str(tmp_path)
    draw_into_files()
    assert environment.OF_MATPLOTLIB not in variables
    variables["HOME"] = ""
    draw_into_files()
    assert Path(variables[environment.OF_MATPLOTLIB]).is_dir()


def test_without_any_folder_matplotlib_is_left_to_decide(variables, monkeypatch):
    def refuse(**_):
        raise FileNotFoundError("no usable temporary directory")

    variables["HOME"] = ""
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    draw_into_files()
    assert environment.OF_MATPLOTLIB not in variables


# --- flags of the compiler


@pytest.fixture
def unasked(monkeypatch):
    """No process is started to ask about flags."""

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)


@pytest.mark.usefixtures("unasked")
def test_flags_that_the_library_has_cost_no_process():
    reason_against.cache_clear()
    assert reason_against("--xla_force_host_platform_device_count=2") is None
    assert reason_against("--xla_cpu_enable_fast_math=false --xla_cpu_multi_thread_eigen") is None


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("flags", "taken"),
    [
        ("--xla_nonsense=1", False),
        ("nowhere.txt", False),
        ("--xla_cpu_enable_fast_math=perhaps", False),
        ("--xla_dump_hlo_pass_re=.*nothing.*", True),
    ],
)
def test_flags_are_refused_that_end_the_process(flags, taken):
    """JAX with these flags, in a process of its own, is what is right."""
    environment_of_jax = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", "import jax; jax.devices()"]
    done = subprocess.run(words, env=environment_of_jax, capture_output=True, timeout=120)
    assert (done.returncode == 0) == taken
    assert (reason_against(flags) is None) == taken


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "value"), [("XLA_FLAGS", "--xla_nonsense=1"), ("JAX_PLATFORM_NAME", "gpu")]
)
def test_a_run_is_refused_before_anything_is_made(name, value, recipe_file, tmp_path, monkeypatch):
    def absent():
        raise RuntimeError("Unknown backend: 'gpu' requested")

    monkeypatch.setenv(name, value)
    monkeypatch.setattr("jax.devices", absent)
    out = tmp_path / "out"
    assert in_process("run", recipe_file, "--out", out) == ExitCode.BAD_INPUT
    assert not out.exists()
