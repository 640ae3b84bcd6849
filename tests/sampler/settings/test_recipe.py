"""Recipes of files and of Python: defaults, overrides, changes, sweeps, and the resolved text."""

import math
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import sampler
from sampler.attention.variants import VARIANTS
from sampler.errors import InputError
from sampler.settings.point_labels import short_label
from sampler.settings.recipe import AnyRecipe, Recipe, TrainingRecipe, load_recipe
from sampler.settings.section import plain
from sampler.settings.toml import different_values, parse_over, toml_text
from tests import ROOT

RECIPES = sorted((ROOT / "runs").glob("*.toml"))
SHORTEST = """
name = "shortest"
[task]
kind = "markov_chain"
[network]
widths = 10
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "recipe.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


# --- the same recipe, written in different ways


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_is_that_of_its_text_and_of_what_was_given(path, write):
    recipe = load_recipe(path, kind=AnyRecipe)
    assert recipe.name == path.stem
    for again in (
        load_recipe(write(recipe.to_toml()), kind=AnyRecipe),
        type(recipe)(**recipe.given()),
    ):
        assert again == recipe
        assert again.hash8 == recipe.hash8
        assert again.to_toml() == recipe.to_toml()


@pytest.mark.parametrize("name", ["quickstart", "attention_variants_markov"])
def test_a_recipe_is_shown_as_the_python_that_makes_it(name):
    recipe = Recipe.load(ROOT / "runs" / f"{name}.toml")
    names = {public: getattr(sampler, public) for public in sampler.__all__}
    names |= {VARIANTS[kind].__name__: VARIANTS[kind] for kind in VARIANTS}
    assert eval(str(recipe), names) == recipe


MINE = """
name = "mine"
[task]
kind = "markov_chain"
examples_train = 100
[network]
widths = [10, 11, 12]
mlp = {width = 4}
[posterior]
temperature = 0.5
[sampler]
draws = 30
"""


def test_a_recipe_of_python_equals_that_of_its_file(write):
    """Sections or tables, of Python's values or of NumPy's."""
    read = Recipe.load(write(MINE))
    objects = sampler.Recipe(
        name="mine",
        task=sampler.MarkovChain(examples_train=100),
        network=sampler.Network(widths=np.array([10, 11, 12]), mlp=sampler.Mlp(width=np.int64(4))),
        posterior=sampler.Posterior(temperature=np.float64(0.5)),
        sampler=sampler.Sampler(draws=30),
    )
    tables = sampler.Recipe(**tomllib.loads(MINE))
    assert read == objects == tables
    assert read.hash8 == objects.hash8 == tables.hash8
    values = {"a": np.arange(3), "b": (np.float64(1), Path("x"), {"c": np.True_}), "d": range(2)}
    assert plain(values) == {"a": [0, 1, 2], "b": [1.0, "x", {"c": True}], "d": [0, 1]}


KINDS = [
    (Recipe, ROOT / "runs" / "smoke.toml"),
    (TrainingRecipe, ROOT / "runs" / "one_shot_train.toml"),
]


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


@pytest.mark.parametrize(("kind", "path"), KINDS)
def test_byte_order_marks_line_endings_and_pipes_do_not_matter(tmp_path, kind, path, piped):
    text, written = path.read_text(encoding="utf-8"), tmp_path / "recipe.toml"
    written.write_text(text, encoding="utf-8-sig", newline="\r\n")
    for one in (written, piped(text)):
        assert load_recipe(one, kind=kind) == load_recipe(path, kind=kind)


def test_paths_in_a_pipe_are_relative_to_the_working_directory(piped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = SHORTEST.replace('"markov_chain"', '"arrays"\npath = "data/own.npz"')
    assert load_recipe(piped(own)).task.path == str(tmp_path / "data" / "own.npz")


letters = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False)
    | letters,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=8,
)


# How long texts take to draw says nothing of the program, and depends on what else is running.
@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(letters, values, max_size=4))
def test_toml_text_reads_back_equal(settings):
    assert tomllib.loads(toml_text(settings)) == settings


# --- overrides, and defaults that depend on other settings


def test_overrides_are_toml_values_and_single_words(write):
    overrides = [
        "network.widths=[3, 4, 5]",
        "network.readout=mean",
        "posterior.temperature = 1",
        "sampler.evidence=true",
        "sampler.draws.order_parameters=30",
    ]
    recipe = load_recipe(write(SHORTEST), overrides)
    assert recipe.network.widths == (3, 4, 5)
    assert recipe.network.readout == "mean"
    assert isinstance(recipe.posterior.temperature, float)
    assert recipe.sampler.evidence is True
    assert recipe.sampler.draws == {"order_parameters": 30}


def test_widths_and_variances_are_repeated_for_every_layer(write):
    network = load_recipe(write(SHORTEST), ["network.variances=[1, 2, 3, 4]"]).network
    assert network.layer_widths(2) == (10, 10, 10)
    assert network.layer_variances(2) == (1.0, 2.0, 3.0, 4.0)
    with pytest.raises(InputError, match=r"network\.variances = \[1\.0, 2\.0, 3\.0, 4\.0\]: .* 5 "):
        network.layer_variances(3)


def test_defaults_of_a_task_are_those_of_the_task_that_it_is_changed_to():
    recipe = sampler.Recipe(task=sampler.MarkovChain(), network={"widths": 3})
    digits = sampler.Recipe(task={"kind": "digits"}, network=sampler.Network(widths=3))
    assert digits == sampler.Recipe(task=sampler.Digits(), network={"widths": 3})
    assert (digits.network.readout, recipe.network.readout) == ("mean", "last")
    assert recipe.changed({"task.kind": "digits"}) == digits
    kept = sampler.Recipe(task=sampler.Digits(), network={"widths": 3, "readout": "first"})
    assert kept.network.readout == "first"
    lagged = sampler.Recipe(
        task=sampler.TimeSeries(), attention=sampler.Attention(lag=7), network={"widths": 3}
    )
    assert lagged.attention.lag == 7
    assert lagged.attention.heads == (("lag", "random"), ("uniform", "random"))


@pytest.mark.parametrize(
    ("added", "until", "draws", "most"),
    [
        ("", "trusted", None, 20_000),
        ("max_draws = 700", "trusted", None, 700),
        ("draws = 50", "draws", 50, 50),
        ('until = "draws"', "draws", 1000, 1000),
        ("chains = 1", "draws", 1000, 1000),
        ("draws = { weights = 50 }", "draws", {"weights": 50}, 1000),
    ],
)
def test_who_names_draws_gets_them(added, until, draws, most, write):
    recipe = load_recipe(write(f"{SHORTEST}[sampler]\n{added}\n"))
    assert (recipe.sampler.until, recipe.sampler.draws) == (until, draws)
    assert recipe.sampler.most_draws == most
    path = write(recipe.to_toml())
    assert load_recipe(path) == recipe
    # What is given on the command line comes last.
    assert load_recipe(path, ["sampler.draws=60"]).sampler.until == "draws"
    if recipe.sampler.chains > 1:
        assert load_recipe(path, ['sampler.until="trusted"']).sampler.draws is None
    if isinstance(draws, dict):
        assert load_recipe(path, ["sampler.space=weights"]).sampler.draws_per_chain == 50


def test_how_chains_end_is_chosen_anew_where_a_change_decides_it():
    recipe = sampler.Recipe(task=sampler.MarkovChain(), network={"widths": 3})
    assert recipe.changed({"sampler.chains": 1}).sampler.until == "draws"
    counted = recipe.changed({"sampler.draws": 50})
    assert (counted.sampler.until, counted.sampler.draws) == ("draws", 50)
    trusted = counted.changed({"sampler.until": "trusted"}).sampler
    assert (trusted.until, trusted.draws) == ("trusted", None)
    swept = recipe.changed({"sweep.sampler.chains": [1, 4]})
    assert [point.sampler.until for _, point in swept.points()] == ["draws", "trusted"]


RELU = {"network.values": "relu"}
ONE_LEARNED = {"attention.heads": [["good", "learned"], ["uniform"]]}


@pytest.mark.parametrize(
    ("changes", "sums_paths", "solved", "at_infinite_width"),
    [
        ({}, True, True, False),
        (RELU, False, False, True),
        (RELU | {"network.norm": "after"}, False, False, False),
        (RELU | {"network.hypernetwork": [False, True]}, False, False, False),
        ({"network.hypernetwork": [False, True]}, True, True, False),
        (ONE_LEARNED, True, False, False),
        (RELU | ONE_LEARNED, False, False, False),
        # Heads that are not kept are not learned.
        (ONE_LEARNED | {"network.heads": [[0], [0]]}, True, True, False),
        (ONE_LEARNED | {"network.heads": [[1], [0]]}, True, False, False),
        (ONE_LEARNED | {"attention.reads": "stream"}, False, False, False),
    ],
)
def test_which_theory_describes_a_network(changes, sums_paths, solved, at_infinite_width):
    """Sums over paths of fixed heads have all of it, of nonlinear values the limit alone."""
    task = sampler.MarkovChain()
    heads = {"attention.heads": [["good", "random"], ["uniform"]]}
    recipe = sampler.Recipe(task=task, network={"widths": 3}).changed(heads | changes)
    assert recipe.fits_theory == sums_paths
    assert (recipe.has_theory, recipe.has_value_theories) == (solved, at_infinite_width)
    assert recipe.is_solved == (solved or at_infinite_width)


# --- sweeps


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("network.widths=10,[20, 30, 40]", [10, [20, 30, 40]]),
        ("sampler.seed=7,0:6:2", [7, 0, 2, 4]),
        ("sampler.seed=5:-1:-2", [5, 3, 1]),
        ("attention.form.scale=inf,-0.5", [math.inf, -0.5]),
        ("posterior.temperature=1e-2, 0.1", [0.01, 0.1]),
        ("sampler.space=weights,order_parameters", ["weights", "order_parameters"]),
        ('attention.heads=[["good"],["uniform"]],[["random"]]',
         [[["good"], ["uniform"]], [["random"]]]),
        ('task.path="a,b.npz",\'c"[.npz\'', ["a,b.npz", 'c"[.npz']),
    ],
)  # fmt: skip
def test_values_of_a_grid(over, expected):
    assert parse_over(over) == (over.partition("=")[0], expected)


SWEEP = f"""{SHORTEST}
[sweep]
"network.widths" = [10, [2, 3, 4], 10]
posterior.temperature = [0.01, 0.1]
"""


def test_a_sweep_is_a_grid_whose_last_key_is_fastest_and_equal_values_are_one_point(write):
    recipe = load_recipe(write(SWEEP))
    points = recipe.points()
    assert [label for label, _ in points] == [
        "network.widths=10,posterior.temperature=0.01",
        "network.widths=10,posterior.temperature=0.1",
        "network.widths=[2, 3, 4],posterior.temperature=0.01",
        "network.widths=[2, 3, 4],posterior.temperature=0.1",
    ]
    assert [(p.network.widths, p.posterior.temperature) for _, p in points] == [
        (10, 0.01),
        (10, 0.1),
        ((2, 3, 4), 0.01),
        ((2, 3, 4), 0.1),
    ]
    assert len({point.hash8 for _, point in points} | {recipe.hash8}) == 5
    grid = load_recipe(write(SHORTEST), over=["posterior.temperature=1,2,1e0,2.0"])
    assert grid.sweep == {"posterior.temperature": (1, 2)}
    assert different_values([1, True, 1.0, [0], [False], [0.0]]) == (1, True, [0], [False])
    twice = ["posterior.temperature=1", "posterior.temperature=2"]
    with pytest.raises(InputError, match=r"posterior\.temperature"):
        load_recipe(write(SHORTEST), over=twice)


def test_labels_of_an_axis_have_last_parts_of_keys_and_the_longest_value_is_cut():
    def label(length: int) -> str:
        return short_label({"a.one": 3, "a.long": "x" * length, "another.key": 0.5})

    whole = len("one=3, long=, key=0.5")
    assert label(44 - whole) == f"one=3, long={'x' * (44 - whole)}, key=0.5"
    assert label(45 - whole) == label(400) == f"one=3, long={'x' * (43 - whole)}…, key=0.5"
    scaled = [{"kind": "scaled_heads", "scale": scale} for scale in (2.0, 0.5)]
    forms = [[{"kind": "softmax"}, scaled[0]], [scaled[1], scaled[0]]]
    assert short_label({"attention.form": forms}) == "softmax and scaled heads; scale 2.0, 0.5"


def test_a_change_is_another_recipe_and_takes_its_key_out_of_the_sweep(write):
    path = write(SWEEP)
    recipe = load_recipe(path, ["network.widths=7"])
    assert [point.network.widths for _, point in recipe.points()] == [7, 7]
    assert list(recipe.sweep) == ["posterior.temperature"]
    grid = recipe.changed({"sweep.network.widths": [4, 5], "posterior.temperature": 0.3})
    assert recipe.network.widths == 7
    assert [point.network.widths for _, point in grid.points()] == [4, 5]
    assert {point.posterior.temperature for _, point in grid.points()} == {0.3}
