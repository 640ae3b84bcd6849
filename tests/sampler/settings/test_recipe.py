"""Recipes: defaults, overrides, sweeps, and the resolved text."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sampler.errors import InputError
from sampler.settings.recipe import AnyRecipe, Recipe, TrainingRecipe, load_recipe
from sampler.settings.section import TABLES, meaning
from sampler.settings.task_sections import TASKS
from sampler.settings.toml import toml_text
from sampler.settings.training import TRAINED, Training
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


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_reads_back_equal_with_the_same_hash(path, write):
    expected = load_recipe(path, kind=AnyRecipe)
    received = load_recipe(write(expected.to_toml()), kind=AnyRecipe)
    assert received == expected
    assert received.hash8 == expected.hash8
    assert expected.name == path.stem


def test_overrides_are_toml_values_and_single_words(write):
    overrides = [
        "network.widths=[3, 4, 5]",
        "network.readout=mean",
        "posterior.temperature = 1",
        "sampler.space=order_parameters",
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
    recipe = load_recipe(write(SHORTEST), ["network.variances=[1, 2, 3, 4]"])
    assert recipe.network.layer_widths(2) == (10, 10, 10)
    assert recipe.network.layer_variances(2) == (1.0, 2.0, 3.0, 4.0)
    with pytest.raises(InputError, match=r"network\.variances = \[1\.0, 2\.0, 3\.0, 4\.0\]: .* 5 "):
        recipe.network.layer_variances(3)


SWEEP = """
name = "sweep"
[task]
kind = "markov_chain"
[network]
[sweep]
"network.widths" = [10, [2, 3, 4]]
posterior.temperature = [0.01, 0.1]
"""


def test_a_sweep_is_a_grid_whose_last_key_is_fastest(write):
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


def test_an_override_takes_its_key_out_of_the_sweep(write):
    recipe = load_recipe(write(SWEEP), ["network.widths=7"])
    assert [point.network.widths for _, point in recipe.points()] == [7, 7]
    assert list(recipe.sweep) == ["posterior.temperature"]
    recipe = load_recipe(write(SWEEP), ["sweep.network.widths=[5]"])
    assert {point.network.widths for _, point in recipe.points()} == {5}


values = st.recursive(
    st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


# How long texts take to draw says nothing of the program, and depends on what else is running.
@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=4))
def test_toml_text_reads_back_equal(settings):
    import tomllib

    assert tomllib.loads(toml_text(settings)) == settings


def test_draws_may_differ_by_space(write):
    path = write(SHORTEST)
    table = "sampler.draws={ order_parameters = 8000, weights = 250 }"
    expected = {"order_parameters": 8000, "hidden_weights": 1000, "weights": 250}
    for space, draws in expected.items():
        recipe = load_recipe(path, [table, f"sampler.space={space}"])
        assert recipe.sampler.draws_per_chain == draws
        again = write(recipe.to_toml(), f"{space}.toml")
        assert load_recipe(again) == recipe
    for bad in ("{ weights = 3 }", "{ everything = 10 }", "3", "true"):
        with pytest.raises(InputError, match=r"sampler\.draws"):
            load_recipe(path, [f"sampler.draws={bad}"])


def test_every_setting_has_a_meaning():
    tasks = [*TASKS.values(), TASKS["time_series"].section_for({"folder": ""}), *TRAINED.values()]
    for section in (Recipe, TrainingRecipe, Training, *TABLES.values(), *tasks):
        for key in section.model_fields:
            assert meaning(section, key) or key == "kind", (section, key)


# --- as other systems and shells give them: byte order marks, line endings, pipes

KINDS = [
    (Recipe, ROOT / "runs" / "smoke.toml"),
    (TrainingRecipe, ROOT / "runs" / "one_shot_train.toml"),
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


@pytest.mark.parametrize(("kind", "path"), KINDS)
def test_byte_order_marks_line_endings_and_pipes_do_not_matter(tmp_path, kind, path, piped):
    text, written = path.read_text(encoding="utf-8"), tmp_path / "recipe.toml"
    written.write_text(text, encoding="utf-8-sig", newline="\r\n")
    for one in (written, piped(text)):
        assert load_recipe(one, kind=kind) == load_recipe(path, kind=kind)


def test_paths_in_a_pipe_are_relative_to_the_working_directory(piped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_recipe(piped(ARRAYS)).task.path == str(tmp_path / "data" / "own.npz")
