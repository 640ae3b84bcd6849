"""Recipes as other systems and shells give them: byte order marks, line endings, pipes."""

import os
from pathlib import Path

import pytest

from sampler.settings.recipe import Recipe, TrainingRecipe, load_recipe
from tests import ROOT

RUNS = ROOT / "runs"
RECIPES = [
    (Recipe, RUNS / "smoke.toml"),
    (TrainingRecipe, RUNS / "one_shot_train.toml"),
]
ARRAYS = 'name = "own"\n[task]\nkind = "arrays"\npath = "data/own.npz"\n[network]\nwidths = 4\n'


@pytest.fixture
def piped():
    """Give a text as `<(cat file)` does: the name of an open pipe, to be read once."""
    descriptors = []

    def piped(text: str) -> Path:
        reader, writer = os.pipe()
        descriptors.append(reader)
        with os.fdopen(writer, "w", encoding="utf-8") as file:
            file.write(text)
        return Path(f"/dev/fd/{reader}")

    yield piped
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.parametrize(("kind", "path"), RECIPES)
def test_byte_order_marks_and_line_endings_do_not_matter(tmp_path, kind, path):
    written = tmp_path / "recipe.toml"
    text = path.read_text(encoding="utf-8")
    written.write_text(text, encoding="utf-8-sig", newline="\r\n")
    assert load_recipe(written, kind=kind) == load_recipe(path, kind=kind)


@pytest.mark.parametrize(("kind", "path"), RECIPES)
def test_a_recipe_comes_from_a_pipe(piped, kind, path):
    piped_in = load_recipe(piped(path.read_text(encoding="utf-8")), kind=kind)
    assert piped_in == load_recipe(path, kind=kind)


def test_paths_in_a_pipe_are_relative_to_the_working_directory(piped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_recipe(piped(ARRAYS)).task.path == str(tmp_path / "data" / "own.npz")
