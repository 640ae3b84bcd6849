"""A finished run of a few draws: left alone, said by whom it was computed, and reproduced."""

import json
import shutil
from pathlib import Path

import h5py
import pytest

from sampler.errors import ExitCode
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import load_recipe
from sampler.storage import result_files
from sampler.storage.fingerprint import determining, differences
from sampler.storage.result_files import read_table
from tests.commands import (
    FEW_DRAWS,
    assert_same_bits,
    settings,
)
from tests.commands import in_process as command

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def copy(run_of_six_draws, tmp_path) -> Path:
    directory = tmp_path / "copy"
    shutil.copytree(run_of_six_draws, directory)
    return directory


def test_finished_run_is_left_alone(copy, recipe_file):
    before = {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")}
    code = json.loads((copy / "manifest.json").read_text())["outcome"]["code"]
    for words in (["run", recipe_file, "--out", copy, *settings(*FEW_DRAWS)], ["resume", copy]):
        assert command(*words) == code
    assert {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["run"], ["resume"], ["reproduce"], ["compare"], ["diagnose"], ["report"], ["prune"]],
    ids=" ".join,
)
def test_what_computes_nothing_here_leaves_who_computed_it(words, copy, recipe_file, monkeypatch):
    """Whatever the environment is now: prune is refused, a reproduction has its own directory."""
    before = (copy / "manifest.json").read_bytes()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr("sampler.storage.run_directory.git_commit", lambda: "another")
    where = [copy] if words != ["run"] else [recipe_file, "--out", copy, *settings(*FEW_DRAWS)]
    command(*words, *where)
    assert (copy / "manifest.json").read_bytes() == before


@pytest.mark.slow
def test_a_reproduction_has_the_same_bits_and_results_that_differ_are_named(copy, capsys):
    """The reproduction is there the second time: it is compared again, not computed again."""
    assert command("reproduce", copy) == ExitCode.OK
    assert_same_bits(copy / "reproduction", copy)
    assert differing(copy) == {"theory": None, "draws": None}
    with h5py.File(copy / "draws.nc", "r+") as file:
        file["predictions/predictor"][0, 1, 2] += 1.0
    assert command("reproduce", copy) == ExitCode.NOT_REPRODUCED
    assert differing(copy) == {"theory": None, "draws": "predictor"}
    table = read_table(copy, "theory.nc")
    table["predictor_mean"] = table["predictor_mean"] * (1 + 1e-4)
    result_files.write_result(copy, "theory.nc", table)
    capsys.readouterr()
    assert command("reproduce", copy) == ExitCode.NOT_REPRODUCED
    assert differing(copy) == {"theory": "predictor_mean", "draws": "predictor"}
    printed = capsys.readouterr().out.splitlines()[-2:]
    for line, (name, array) in zip(printed, differing(copy).items(), strict=True):
        assert name in line
        assert array in line


def differing(directory: Path) -> dict[str, str | None]:
    """The arrays that the reproduction of a run says to be farthest from those stored."""
    found = json.loads((directory / "reproduction.json").read_text())
    assert all(one["agrees"] is (one["array"] is None) for one in found.values())
    return {name: one["array"] for name, one in found.items()}


def test_directory_killed_before_its_manifest_was_written(copy, recipe_file):
    """The recipe is written first: the command that was given goes on, whatever is stored."""
    before = {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")}
    (copy / "manifest.json").unlink()
    code = command("run", recipe_file, "--out", copy, *settings(*FEW_DRAWS))
    assert code == ExitCode.DIAGNOSTICS_FAILED
    assert {path: path.stat().st_mtime_ns for path in copy.glob("*.nc")} == before


def test_what_differs_is_named(copy):
    """Settings by their keys, then and now."""
    recipe = load_recipe(copy / "recipe.toml")
    now = determining(settings_that_fix_draws(recipe), "data")
    assert differences(now, now) == []
    before = {**now, "settings": {**now["settings"], "network.widths": 7}}
    assert differences(before, now) == ["network.widths (7 → 3)"]
    assert differences({**now, "data": "other"}, now) == ["the data"]
