"""Recipes made in Python: sections or dictionaries, changed, equal to what their TOML reads as."""

import ast
import inspect
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

import sampler
import theory
from sampler.attention.variants import VARIANTS
from sampler.errors import InputError
from sampler.settings.sampler import SamplerSettings
from sampler.settings.section import plain
from tests import ROOT

MARKOV = sampler.MarkovChain(examples_train=100)


def test_a_recipe_of_python_equals_that_of_its_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        name = "mine"
        [task]
        kind = "markov_chain"
        examples_train = 100
        [attention]
        heads = [["good", "random"], ["uniform", "random"]]
        [network]
        widths = [10, 11, 12]
        mlp = {width = 4}
        [posterior]
        temperature = 0.5
        [sampler]
        draws = 30
        """,
        encoding="utf-8",
    )
    read = sampler.Recipe.load(path)
    objects = sampler.Recipe(
        name="mine",
        task=MARKOV,
        attention=sampler.Attention(heads=(("good", "random"), ("uniform", "random"))),
        network=sampler.Network(widths=np.array([10, 11, 12]), mlp=sampler.Mlp(width=np.int64(4))),
        posterior=sampler.Posterior(temperature=np.float64(0.5)),
        sampler=sampler.Sampler(draws=30),
    )
    tables = sampler.Recipe(
        name="mine",
        task={"kind": "markov_chain", "examples_train": 100},
        attention={"heads": [["good", "random"], ["uniform", "random"]]},
        network={"widths": (10, 11, 12), "mlp": {"width": 4}},
        posterior={"temperature": 0.5},
        sampler={"draws": 30},
    )
    assert read == objects == tables
    assert read.hash8 == objects.hash8 == tables.hash8
    again = tmp_path / "again.toml"
    again.write_text(objects.to_toml(), encoding="utf-8")
    assert sampler.Recipe.load(again) == read


def test_a_section_without_its_kind_is_known_by_its_class():
    for section in (sampler.MarkovChain, sampler.Digits, sampler.Copy):
        given = sampler.Recipe(task=section(), network={"widths": 3})
        by_name = sampler.Recipe(task={"kind": section().kind}, network={"widths": 3})
        assert given == by_name
        assert given.hash8 == by_name.hash8


def test_defaults_of_a_task_are_those_of_the_task_that_it_is_changed_to():
    recipe = sampler.Recipe(task=sampler.MarkovChain(), network={"widths": 3})
    digits = sampler.Recipe(task=sampler.Digits(), network=sampler.Network(widths=3))
    assert (digits.network.readout, recipe.network.readout) == ("mean", "last")
    assert recipe.changed({"task.kind": "digits"}) == digits
    kept = sampler.Recipe(task=sampler.Digits(), network={"widths": 3, "readout": "first"})
    assert kept.network.readout == "first"
    lagged = sampler.Recipe(
        task=sampler.TimeSeries(), attention=sampler.Attention(lag=7), network={"widths": 3}
    )
    assert lagged.attention.lag == 7
    assert lagged.attention.heads == (("lag", "random"), ("uniform", "random"))
    left_open = sampler.Recipe(task=MARKOV, network={"widths": 3})
    assert sampler.Recipe(task=MARKOV, attention=None, network={"widths": 3}) == left_open


def test_how_chains_end_is_chosen_anew_where_a_change_decides_it():
    recipe = sampler.Recipe(task=MARKOV, network={"widths": 3})
    assert recipe.sampler.until == "trusted"
    assert recipe.changed({"sampler.chains": 1}).sampler.until == "draws"
    counted = recipe.changed({"sampler.draws": 50})
    assert (counted.sampler.until, counted.sampler.draws) == ("draws", 50)
    trusted = counted.changed({"sampler.until": "trusted"}).sampler
    assert (trusted.until, trusted.draws) == ("trusted", None)
    for section in (sampler.Sampler(), {}):  # the same of a section that is an object
        swept = sampler.Recipe(task=MARKOV, network={"widths": 3}, sampler=section)
        swept = swept.changed({"sweep.sampler.chains": [1, 4]})
        assert [point.sampler.until for _, point in swept.points()] == ["draws", "trusted"]


def test_changes_are_other_recipes_and_take_keys_out_of_the_sweep():
    recipe = sampler.Recipe(task=MARKOV, network={"widths": 3})
    grid = recipe.changed({"sweep.network.widths": [4, 5], "posterior.temperature": 0.3})
    assert recipe.network.widths == 3
    assert [point.network.widths for _, point in grid.points()] == [4, 5]
    assert {point.posterior.temperature for _, point in grid.points()} == {0.3}
    assert grid.changed({"network.widths": 9}).sweep == {}
    with pytest.raises(InputError, match=r"^sampler\.drows = 3: .*sampler\.draws"):
        recipe.changed({"sampler.drows": 3})


def test_values_are_made_plain():
    given = {"a": np.arange(3), "b": (np.float64(1), Path("x"), {"c": np.True_}), "d": range(2)}
    assert plain(given) == {"a": [0, 1, 2], "b": [1.0, "x", {"c": True}], "d": [0, 1]}


def test_keywords_of_sample_are_the_fields_of_the_sampler():
    assert set(get_type_hints(SamplerSettings)) == set(sampler.Sampler.model_fields)


@pytest.mark.parametrize("package", [sampler, theory])
def test_who_reads_source_text_sees_all_names(package):
    tree = ast.parse(inspect.getsource(package))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    prefix = f"{package.__name__}."
    stated = {node.module.removeprefix(prefix): {a.name for a in node.names} for node in block.body}
    assert stated == {module: set(names.split()) for module, names in package.CONTENTS.items()}
    assert all(hasattr(package, name) for names in stated.values() for name in names)


@pytest.mark.parametrize("path", sorted((ROOT / "runs").glob("*.toml")), ids=lambda path: path.stem)
def test_what_was_given_makes_the_same_recipe(path):
    from sampler.settings.recipe import AnyRecipe, load_recipe

    recipe = load_recipe(path, kind=AnyRecipe)
    again = type(recipe)(**recipe.given())
    assert again == recipe
    assert again.hash8 == recipe.hash8
    assert again.to_toml() == recipe.to_toml()


@pytest.mark.parametrize("name", ["quickstart", "digits", "attention_variants_markov"])
def test_the_text_of_a_recipe_makes_it_again(name):
    recipe = sampler.Recipe.load(ROOT / "runs" / f"{name}.toml")
    names = {public: getattr(sampler, public) for public in sampler.__all__}
    names |= {VARIANTS[kind].__name__: VARIANTS[kind] for kind in VARIANTS}
    assert eval(str(recipe), names) == recipe
