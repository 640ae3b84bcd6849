"""Directories with which a command cannot do what it is asked: one line, and nothing is changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

from sampler.errors import ExitCode
from tests.commands import SMALLEST, in_process, settings
from tests.pages import STORED

Change = Callable[[Path], object]


def removed(name: str) -> Change:
    return lambda run: (run / name).unlink()


def damaged(name: str) -> Change:
    return lambda run: (run / name).write_text("[1, 2]")


def other(old: str, new: str) -> Change:
    """Another recipe than that of the run."""

    def change(run: Path) -> None:
        text = (run / "recipe.toml").read_text()
        assert text.count(old) == 1
        (run / "recipe.toml").write_text(text.replace(old, new))

    return change


def manifest_with(**changes) -> Change:
    def change(run: Path) -> None:
        stored = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(stored | changes))

    return change


def of_another_version(run: Path) -> None:
    plan = json.loads((run / "manifest.json").read_text())["plan"]
    manifest_with(plan=plan | {"package major version": "7"})(run)


def theory_of_another_schema(run: Path) -> None:
    table = xr.load_dataset(run / "theory.nc", engine="h5netcdf")
    table.attrs["schema_version"] = 99
    table.to_netcdf(run / "theory.nc", engine="h5netcdf")


def of_a_sweep(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()
    (run / "recipe.toml").write_text(f"{SMALLEST}\n[sweep]\n'network.widths' = [3, 4]\n")


def of_something_else(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()
    (run / "notes.txt").write_text("mine")


def begin(run: Path, *words: str) -> tuple:
    """`run` of the recipe that the stored run has, in its directory."""
    return ("run", STORED / "recipe.toml", "--out", run, *words)


def asked(command: str, *words: str) -> Callable[[Path], tuple]:
    return lambda run: (command, run, *words)


# What is different of a finished run, what is asked for, and what the line begins with or names.
CASES = [
    # Other recipes, versions and numbers of draws.
    (other("chains = 2", "chains = 3"), asked("resume"), "sampler.chains"),
    (other("\nseed = 0\nhead_seed", "\nseed = 1\nhead_seed"), asked("resume"), "task.seed"),
    (of_another_version, asked("resume"), "package major version"),
    (None, asked("resume", "--more", "0"), "argument --more"),
    (None, asked("resume", "--more", "3"), "DIR = "),  # there is no checkpoint
    (None, lambda run: begin(run, *settings("sampler.draws=50")), "--more"),
    (None, lambda run: begin(run, *settings("sampler.seed=5")), "sampler.seed"),
    (None, lambda run: begin(run, *settings("sampler.until=trusted")), "--out = "),
    # What is not there, or of another schema, or damaged.
    (removed("manifest.json"), asked("resume"), "DIR = "),
    (removed("theory.nc"), asked("reproduce"), "theory.nc"),
    (removed("draws.nc"), asked("reproduce"), "draws.nc"),
    (removed("draws.nc"), asked("compare"), "draws.nc"),
    *((manifest_with(schema_version=99), asked(name), "schema_version 99")
      for name in ("resume", "status")),
    (theory_of_another_schema, asked("compare"), "schema_version 99"),
    *((damaged(file), asked(name), f"{file} = ")
      for file, name in (
          ("manifest.json", "status"), ("manifest.json", "resume"), ("theory.nc", "compare"),
          ("draws.nc", "diagnose"), ("draws.nc", "figures"), ("comparison.nc", "report"))),
    # Networks without what is asked for; stages of a sweep; no run at all.
    (None, asked("prune"), "DIR = "),
    (of_a_sweep, asked("compare"), "network.widths=3"),
    (of_a_sweep, asked("diagnose"), "network.widths=3"),
    (of_something_else, begin, "neither empty nor a run directory"),
    (of_something_else, lambda run: begin(run / "notes.txt"), "--out = "),
    (of_something_else, lambda run: begin(run / "notes.txt" / "below"), "--out = "),
    (of_something_else, asked("status"), "DIR = "),
]  # fmt: skip


def listing(folder: Path) -> dict[Path, bytes]:
    """Every file but those that say what was asked for."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if path.name not in ("run.log", "lock")}


@pytest.mark.parametrize(("change", "words", "named"), CASES)
def test_it_is_refused_in_one_line_and_left_as_it_is(change, words, named, tmp_path, capsys):
    run = Path(shutil.copytree(STORED, tmp_path / "run"))
    if change is not None:
        change(run)
    before = listing(tmp_path)
    assert in_process(*words(run)) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1].removeprefix("attention-posterior: ")
    assert named in line
    assert line.startswith(named) or not named.endswith(" = "), line
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "words",
    [
        ("run", STORED / "recipe.toml", "--out", ""),
        ("resume", ""),
        ("status", "latest"),
        ("list", "nowhere"),
    ],
)
def test_names_of_no_directory_are_refused(words, tmp_path, monkeypatch, capsys):
    """An empty one, as of a variable of the shell that is not set, is not the working directory."""
    monkeypatch.chdir(tmp_path)
    assert in_process(*words) == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert ("is empty; name a file or a directory" in line) == ("" in words)
    assert not list(tmp_path.iterdir())
