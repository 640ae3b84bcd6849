"""Runs are found, the newest first; `latest` is the newest of them."""

import os
import shutil
from pathlib import Path

import pytest

from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import RESULTS, claim_directory
from sampler.storage.status import runs_in
from tests.commands import SMALLEST, in_process


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    """Three runs that were begun, of different age."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(SMALLEST)
    recipe = load_recipe(tmp_path / "tiny.toml")
    for age, name in enumerate(("new", "old", "older")):
        directory = RESULTS / name
        claim_directory(directory, recipe, "run", {})
        then = (directory / "manifest.json").stat().st_mtime - 1000 * age
        os.utime(directory / "manifest.json", (then, then))
    return RESULTS


def test_runs_are_listed_the_newest_first(results, capsys):
    (results / "no run").mkdir()
    assert [path.name for path in runs_in([results])] == ["new", "old", "older"]
    (results / "by hand").mkdir()
    for text in ("", "sweep = 3", "[sweep.network]\nwidths = 3", "[sweep]\n'a.b' = [1, 2]"):
        (results / "by hand" / "recipe.toml").write_text(text)
        assert in_process("list", results / "by hand") == ExitCode.OK
        assert str(results / "by hand") in capsys.readouterr().out
    shutil.rmtree(results / "by hand")
    assert in_process("list") == ExitCode.OK
    text = capsys.readouterr().out
    assert [text.index(f"{results / name}\n") for name in ("new", "old", "older")] == sorted(
        text.index(f"{results / name}\n") for name in ("new", "old", "older")
    )
    assert in_process("list", results / "old", results / "older") == ExitCode.OK
    assert str(results / "new") not in capsys.readouterr().out


def test_latest_is_the_newest_run(results, capsys):
    assert in_process("status", "latest", results / "older") == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [str(results / n) for n in ("new", "older")]


def test_without_runs_there_is_no_latest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert in_process("status", "latest") == ExitCode.BAD_INPUT
    assert in_process("list") == ExitCode.OK
    assert in_process("list", "nowhere") == ExitCode.BAD_INPUT
