"""Recipes as other systems and shells give them: byte order marks, line endings, pipes."""

import os
from pathlib import Path

import pytest

from sampler.settings.recipe import load_recipe
from sampler.settings.training import load_training_recipe
from tests import ROOT

RUNS = ROOT / "runs"
OF_A_RUN, OF_A_TRAINING = RUNS / "smoke.toml", RUNS / "one_shot_train.toml"
LOADERS = {"run": (load_recipe, OF_A_RUN), "training": (load_training_recipe, OF_A_TRAINING)}
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


@pytest.mark.parametrize(("load", "path"), LOADERS.values(), ids=LOADERS)
def test_byte_order_marks_and_line_endings_do_not_matter(tmp_path, load, path):
    written = tmp_path / "recipe.toml"
    text = path.read_text(encoding="utf-8")
    written.write_text(text, encoding="utf-8-sig", newline="\r\n")
    assert load(written) == load(path)


@pytest.mark.parametrize(("load", "path"), LOADERS.values(), ids=LOADERS)
def test_a_recipe_comes_from_a_pipe(piped, load, path):
    assert load(piped(path.read_text(encoding="utf-8"))) == load(path)


def test_paths_in_a_pipe_are_relative_to_the_working_directory(piped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_recipe(piped(ARRAYS)).task.path == str(tmp_path / "data" / "own.npz")
