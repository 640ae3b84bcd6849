"""The directory of a run: claimed once for one recipe, whole or not at all."""

import pytest

from sampler.errors import InputError
from sampler.recipes.recipe import load_recipe
from sampler.storage.manifest import claim_directory, fingerprint
from sampler.storage.run_directory import default_directory, find_directory, write_whole
from sampler.tasks.make import make_task


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "given.toml"
    path.write_text('name = "a"\ntask.kind = "markov_chain"\nnetwork.widths = 3\n')
    return load_recipe(path)


def claim(directory, recipe):
    return claim_directory(
        directory, recipe, "run", fingerprint(recipe, make_task(recipe).checksum)
    )


def test_a_claimed_directory_holds_the_resolved_recipe_and_may_be_claimed_again(recipe, tmp_path):
    directory = tmp_path / "deep" / "run"
    for _ in range(2):
        assert claim(directory, recipe) == directory
        assert {path.name for path in directory.iterdir()} == {"recipe.toml", "manifest.json"}
        assert load_recipe(directory / "recipe.toml") == recipe
    assert find_directory(directory) == directory


def test_the_default_directory_carries_name_and_hash(recipe):
    assert default_directory(recipe).parts == ("runs", "results", f"a-{recipe.hash8}")


def test_what_was_made_is_removed_when_the_recipe_cannot_be_written(recipe, tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sampler.storage.manifest.write_whole", full)
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="No space left"):
        claim(tmp_path / "mine" / "deep" / "run", recipe)
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, "before")

    def fail(source, target):
        raise OSError("no")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no"):
        write_whole(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
