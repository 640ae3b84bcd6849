"""A project moved elsewhere: recipe, data and results together, or one without the others."""

from pathlib import Path

import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import default_directory
from tests.commands import assert_same_bits, in_process, settings

pytestmark = pytest.mark.usefixtures("undrawn")
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
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "mine.toml").write_text(MINE)
    write_data(folder / "data" / "my.npz")
    return folder


def write_data(path: Path, change: float = 0.0) -> None:
    rng = np.random.default_rng(3)
    labels = rng.choice([-1.0, 1.0], 9)
    attended = rng.standard_normal((9, 2, 4))
    attended[0, 0, 0] += change
    np.savez(
        path, attended_train=attended[:6], attended_test=attended[6:], labels_train=labels[:6],
        labels_test=labels[6:], heads=np.array([2]),
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.nc")}


@pytest.mark.heavy
def test_a_moved_project_goes_on(project, tmp_path, capsys):
    """Bit for bit as one that stayed where it was."""
    longer = settings("sampler.draws=11")
    in_process("sample", project / "mine.toml", "--out", tmp_path / "longer", *longer)
    code = in_process("sample", project / "mine.toml", "--out", project / "results")
    before = contents(project / "results")
    moved = project.rename(tmp_path / "moved")
    results = moved / "results"
    assert in_process("sample", moved / "mine.toml", "--out", results) == code
    assert in_process("resume", results) == code
    assert contents(results) == before
    assert in_process("reproduce", results) == ExitCode.OK
    in_process("resume", results, "--more", "5")
    assert_same_bits(results, tmp_path / "longer")

    # Results alone: the key is named, and may be corrected.
    (tmp_path / "far").mkdir()
    before, alone = contents(results), results.rename(tmp_path / "far" / "alone")
    data = moved / "data"
    assert in_process("resume", alone) == ExitCode.BAD_INPUT
    assert "task.path = " in capsys.readouterr().err.splitlines()[-1]
    recipe = alone / "recipe.toml"
    lines = recipe.read_text().splitlines()
    corrected = [
        f'path = "{data}/my.npz"' if line.startswith("path = ") else line for line in lines
    ]
    recipe.write_text("\n".join(corrected))
    assert in_process("resume", alone) in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED)
    assert contents(alone) == before

    # Another file in the same place is not these data.
    write_data(data / "my.npz", change=1e-9)
    capsys.readouterr()
    assert in_process("resume", alone) == ExitCode.BAD_INPUT
    assert "the data" in capsys.readouterr().err.splitlines()[-1]


def test_a_recipe_asks_for_the_same_wherever_it_lies(project, tmp_path):
    over = ["task.path=data/my.npz,data/more/my.npz"]

    def read(folder: Path):
        recipe, swept = (
            load_recipe(folder / "mine.toml"),
            load_recipe(folder / "mine.toml", (), over),
        )
        labels = [label for label, _ in swept.points()]
        return default_directory(recipe), default_directory(swept), labels

    here = read(project)
    assert here[2] == ["task.path=my.npz", "task.path=more/my.npz"]
    assert read(project.rename(tmp_path / "moved")) == here


def test_paths_stay_relative_in_a_directory_that_lies_beside_its_data(project):
    """Unless they have nothing in common with it."""
    recipe = load_recipe(project / "mine.toml")
    beside = recipe.to_toml(project / "results").splitlines()
    assert 'path = "../data/my.npz"' in beside
    assert f'path = "{project}/data/my.npz"' in recipe.to_toml(Path("/nowhere")).splitlines()
    results = project / "results"
    results.mkdir()
    (results / "recipe.toml").write_text("\n".join(beside))
    assert load_recipe(results / "recipe.toml") == recipe
