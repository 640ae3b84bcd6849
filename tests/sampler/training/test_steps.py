"""Training: what it refuses, and what it leaves behind."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sampler.errors import ExitCode, InputError
from sampler.settings.recipe import TrainingRecipe, load_recipe
from sampler.storage.archives import read_archive, write_archive
from sampler.transformer.trained_transformer import MODEL_FILE, read_model
from tests import ROOT
from tests.commands import in_process as command
from tests.commands import made_once
from tests.training_recipes import write_training


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    return write_training(folder, np.random.default_rng(5))


@pytest.fixture(scope="module")
def finished(recipe_file, tmp_path_factory) -> Path:

    def make(folder: Path) -> int:
        return command("train", recipe_file, "--out", folder / "model")

    folder, code = made_once(tmp_path_factory, "finished_training", make)
    assert code == ExitCode.OK
    return folder / "model"


@pytest.fixture
def copy(finished, recipe_file, tmp_path) -> Path:
    """A copy elsewhere, whose recipe has the path of its images from there."""
    directory = tmp_path / "copy"
    shutil.copytree(finished, directory)
    recipe = load_recipe(recipe_file, kind=TrainingRecipe)
    (directory / "recipe.toml").write_text(recipe.to_toml(directory))
    return directory


def test_another_recipe_and_other_images_are_refused(copy, recipe_file, capsys):
    words = ["train", recipe_file, "--out", copy, "--set", "training.seed=1"]
    assert command(*words) == ExitCode.BAD_INPUT
    images = recipe_file.parent / "pictures.npz"
    kept = images.read_bytes()
    try:
        write_training(recipe_file.parent, np.random.default_rng(6))
        capsys.readouterr()
        assert command("resume", copy) == ExitCode.BAD_INPUT
        assert "the data" in capsys.readouterr().err.splitlines()[-1]
    finally:
        images.write_bytes(kept)


def test_what_a_training_is_not(copy, recipe_file):
    for words in (["resume", copy, "--more", 3], ["reproduce", copy], ["run", recipe_file]):
        assert command(*words) == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    ("setting", "start"),
    [
        ("training.widths=[3,4]", "training.widths"),
        ("training.learning_rate=1e30", "training.learning_rate"),
        # One step, whose own loss is finite: what it leaves is not.
        ("training.learning_rate=1e30 training.steps=1", "training.learning_rate"),
        ("task.images=pictures.png", "task.images"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
def test_a_bad_setting_is_named(setting, start, recipe_file, tmp_path, capsys):
    words = ["train", recipe_file, "--out", tmp_path / "model", "--set", *setting.split()]
    assert command(*words) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"attention-posterior: {start} = "), line


def test_what_is_left_behind(finished, recipe_file):
    settings = load_recipe(recipe_file, kind=TrainingRecipe).without_paths()
    left = load_recipe(finished / "recipe.toml", kind=TrainingRecipe)
    assert left.without_paths() == settings  # what is left was copied away from its images
    model = read_model(finished)
    assert model.recipe.without_paths() == settings
    with (finished / "learning_curve.csv").open() as file:
        curve = list(csv.DictReader(file))
    assert [row["step"] for row in curve] == ["40", "80", "120", "130"]
    summary = json.loads((finished / "training_summary.json").read_text())
    assert summary["model_sha256"] == model.checksum
    assert summary["step"] == model.step


@pytest.mark.parametrize(
    "folder", sorted((ROOT / "runs" / "trained").iterdir()), ids=lambda f: f.name
)
def test_networks_that_ship_with_the_program_are_those_of_their_summaries(folder):
    """By a checksum that is computed here once more, from what NumPy reads."""
    checksum = hashlib.sha256()
    with np.load(folder / MODEL_FILE) as stored:
        for name in sorted(set(stored.files) - {"header"}):
            values = stored[name]
            checksum.update(
                repr((name, values.shape, values.dtype.str)).encode() + values.tobytes()
            )
    summary = json.loads((folder / "training_summary.json").read_text())
    assert summary["model_sha256"] == checksum.hexdigest() == read_model(folder).checksum


def test_other_weights_than_the_header_names_are_refused(finished, tmp_path):
    stored = read_archive(finished / MODEL_FILE)
    arrays = {name: values + (name == "W_in") for name, values in stored.arrays.items()}
    write_archive(tmp_path / MODEL_FILE, stored.header, arrays)
    with pytest.raises(InputError):
        read_model(tmp_path)
