"""A project moved elsewhere: recipe, data and results together, or one without the others."""

from pathlib import Path

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import default_directory
from tests.commands import assert_same_bits, in_process, settings

MINE = """
name = "mine"
[task]
kind = "arrays"
path = "data/my.npz"
[network]
widths = 3
[theory]
starts = 1
[sampler]
space = "order_parameters"
chains = 2
warmup = 4
draws = 6
algorithm = "hmc"
leapfrog_steps = 3
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """A recipe and its data."""
    rng, folder = np.random.default_rng(3), tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "mine.toml").write_text(MINE)
    arrays = {"heads": np.array([2])}
    for split, count in (("train", 6), ("test", 3)):
        arrays[f"attended_{split}"] = rng.standard_normal((count, 2, 4))
        arrays[f"labels_{split}"] = rng.choice([-1.0, 1.0], count)
    np.savez(folder / "data" / "my.npz", **arrays)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.nc")}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_moved_project_goes_on(project, tmp_path, capsys):
    """Bit for bit as one that stayed where it was."""
    longer = settings("sampler.draws=11")
    in_process("sample", project / "mine.toml", "--out", tmp_path / "longer", *longer)
    code = in_process("sample", project / "mine.toml", "--out", project / "results")
    before = contents(project / "results")
    moved = project.rename(tmp_path / "moved")
    results = moved / "results"
    assert in_process("sample", moved / "mine.toml", "--out", results) == code
    assert contents(results) == before
    assert in_process("reproduce", results) == ExitCode.OK
    in_process("resume", results, "--more", "5")
    assert_same_bits(results, tmp_path / "longer")
    # Results alone: the key is named, and may be corrected.
    (tmp_path / "far").mkdir()
    before, alone = contents(results), results.rename(tmp_path / "far" / "alone")
    assert in_process("resume", alone) == ExitCode.BAD_INPUT
    assert "task.path = " in capsys.readouterr().err.splitlines()[-1]
    lines = (alone / "recipe.toml").read_text().splitlines()
    corrected = f'path = "{moved}/data/my.npz"'
    lines = [corrected if line.startswith("path = ") else line for line in lines]
    (alone / "recipe.toml").write_text("\n".join(lines))
    assert in_process("resume", alone) in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    assert contents(alone) == before


def test_a_recipe_asks_for_the_same_wherever_it_lies(project, tmp_path, monkeypatch):
    """And its paths stay relative where data lie beside it."""
    monkeypatch.chdir("/")

    def read(folder: Path):
        over = ["task.path=data/my.npz,data/more/my.npz"]
        recipe = load_recipe(folder / "mine.toml")
        swept = load_recipe(folder / "mine.toml", (), over)
        labels = [label for label, _ in swept.points()]
        return default_directory(recipe), default_directory(swept), labels

    here, recipe = read(project), load_recipe(project / "mine.toml")
    assert here[2] == ["task.path=my.npz", "task.path=more/my.npz"]
    assert recipe.task.path == str(project / "data" / "my.npz")
    beside = recipe.to_toml(project / "results").splitlines()
    assert 'path = "../data/my.npz"' in beside
    assert f'path = "{project}/data/my.npz"' in recipe.to_toml(Path("/nowhere")).splitlines()
    (project / "results").mkdir()
    (project / "results" / "recipe.toml").write_text("\n".join(beside))
    assert load_recipe(project / "results" / "recipe.toml") == recipe
    assert read(project.rename(tmp_path / "moved")) == here
