"""The hash of a recipe: it changes with what departs from the defaults, and with nothing else."""

from pathlib import Path

import pytest

from sampler.attention.variants import VARIANTS, ScaledHeads
from sampler.recipes.recipe import SAMPLER_OF_SCHEMA_3, Recipe, make_recipe
from sampler.recipes.sections import SamplerSection
from sampler.recipes.settings import read_toml
from sampler.recipes.training_recipe import load_any_recipe, make_training_recipe
from sampler.storage.run_directory import default_directory
from sampler.tasks.markov_chain import MarkovChainSection
from tests import ROOT

# The hash of results of schema 3, and that of schema 1 and 2, under which runs may be stored. Paths
# are part of a recipe: here those of a checkout in /project.
HASHES = {
    "attention_variants_markov": ("bf5bfd94", "424cedf1"),
    "attention_variants_one_shot": ("1567e8da", "f9b57c77"),
    "attention_variants_one_shot_train": ("a61484c5", "304d7fc2"),
    "attention_variants_time_series": ("cfb43201", "a1cf86f0"),
    "bring_your_own": ("1cb4b4bb", "e576ab29"),
    "digits": ("d9c5bca2", "647fd3dd"),
    "finite_size": ("1d426cb7", "8a33e895"),
    "markov_four_paths": ("dca5a93a", "a7831e95"),
    "markov_published": ("f843ba63", "f926049e"),
    "markov_two_paths": ("ba286402", "d163f78f"),
    "one_shot": ("c9b34068", "f6c7a32d"),
    "one_shot_fashion": ("4d54b429", "4823808d"),
    "one_shot_out_of_distribution": ("e7e9be8f", "c6ede690"),
    "one_shot_random_heads": ("249db4f5", "e9752b01"),
    "one_shot_train": ("4942ba6e", "83ebd002"),
    "one_shot_train_omniglot": ("5529e7f5", "3d4fb3dc"),
    "one_shot_train_paper": ("3714df90", "62ebb388"),
    "one_shot_weights": ("bf658221", "e98c6b07"),
    "quickstart": ("4d39b852", "822ce797"),
    "relu_values": ("f62d0f18", "53ecc97b"),
    "smoke": ("abc05cfc", "f45ecf46"),
    "temperature": ("5aa38c12", "73faa0b0"),
    "temperature_sampled": ("4837084b", "e60c6bbe"),
    "time_series": ("edde7e11", "831d215f"),
}
SHORTEST = {"name": "a", "task": {"kind": "markov_chain"}, "network": {"widths": 3}}
RECIPES = sorted((ROOT / "runs").glob("*.toml"))


def load_in_project(path: Path, folder: Path) -> Recipe:
    """A shipped recipe as it would be read in /project, with the sampler's defaults of schema 3."""
    recipe = load_any_recipe(path)
    if isinstance(recipe, Recipe):
        named = read_toml(path).get("sampler", {})
        unnamed = {key: value for key, value in SAMPLER_OF_SCHEMA_3.items() if key not in named}
        sampler = recipe.sampler.model_copy(update=unnamed)
        recipe = recipe.model_copy(update={"sampler": sampler})
    copy = folder / path.name
    copy.write_text(recipe.to_toml().replace(str(ROOT), "/project"))
    return load_any_recipe(copy)


def test_every_shipped_recipe_is_pinned():
    assert {path.stem for path in RECIPES} == set(HASHES)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_hashes_of_shipped_recipes(path, tmp_path):
    recipe = load_in_project(path, tmp_path)
    assert (recipe.hash8, recipe.earlier_hash8) == HASHES[path.stem]


def test_a_default_that_has_changed_changes_the_hash():
    recipe = make_recipe(SHORTEST)
    for key, value in SAMPLER_OF_SCHEMA_3.items():
        sampler = recipe.sampler.model_copy(update={key: value})
        assert recipe.model_copy(update={"sampler": sampler}).hash8 != recipe.hash8, key


class LongerSampler(SamplerSection):
    """The sampler with a setting that did not exist yet."""

    added: int = 3


class LongerRecipe(Recipe):
    """A recipe of a later version of the program."""

    sampler: LongerSampler = LongerSampler()
    section: SamplerSection = SamplerSection()


@pytest.mark.parametrize(
    "path", [path for path in RECIPES if "_train" not in path.stem], ids=lambda path: path.stem
)
def test_a_new_key_with_a_default_changes_no_hash(path):
    recipe = load_any_recipe(path)
    longer = LongerRecipe.model_validate(recipe.model_dump())
    assert longer.sampler.added == 3
    assert longer.hash8 == recipe.hash8
    other = longer.model_copy(update={"sampler": longer.sampler.model_copy(update={"added": 4})})
    assert other.hash8 != recipe.hash8


def test_a_new_key_of_a_task_changes_no_hash():
    class Longer(MarkovChainSection):
        added: int = 1

    recipe = make_recipe(SHORTEST)
    task = Longer(**recipe.task.model_dump())
    assert recipe.model_copy(update={"task": task}).hash8 == recipe.hash8


def test_a_new_key_of_an_attention_variant_changes_no_hash():
    class Longer(ScaledHeads):
        added: int = 1

    recipe = make_recipe(SHORTEST | {"attention": {"form": {"kind": "scaled_heads", "scale": 2}}})
    for variant, same in ((Longer(scale=2), True), (Longer(scale=2, added=2), False)):
        attention = recipe.attention.model_copy(update={"form": variant})
        longer = recipe.model_copy(update={"attention": attention})
        assert (longer.hash8 == recipe.hash8) == same


def test_kinds_are_in_the_hash_though_their_settings_are_defaults():
    kinds = [kind for kind in VARIANTS if kind not in ("scaled_heads", "robust")]
    hashes = {
        make_recipe(SHORTEST | {"attention": {"form": {"kind": kind}}}).hash8 for kind in kinds
    }
    assert len(hashes) == len(kinds)


def test_a_default_that_is_written_out_changes_no_hash():
    recipe = make_recipe(SHORTEST)
    assert make_recipe(recipe.model_dump()).hash8 == recipe.hash8
    training = make_training_recipe({"name": "a", "task": {"kind": "one_shot"}})
    assert make_training_recipe(training.model_dump()).hash8 == training.hash8
    changed = make_training_recipe({"name": "a", "task": {"kind": "one_shot", "seed": 1}})
    assert changed.hash8 != training.hash8


def test_a_directory_under_the_earlier_hash_is_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = make_recipe(SHORTEST)
    folder = Path("runs") / "results"
    new, earlier = (folder / f"a-{text}" for text in (recipe.hash8, recipe.earlier_hash8))
    assert default_directory(recipe) == new
    earlier.mkdir(parents=True)
    assert default_directory(recipe) == earlier
    new.mkdir()
    assert default_directory(recipe) == new
