"""What README and the pages of the site show is true: recipes, commands, links. Tutorials are
executed when the site is built (`make docs`), other blocks in `tests/test_shown_blocks.py`."""

import re
import shlex
import tomllib

import pytest

from sampler.command_line import make_parser, separate_settings
from sampler.recipes.recipe import load_recipe
from sampler.recipes.shipped import shipped_recipe
from sampler.recipes.training_recipe import load_any_recipe
from tests import ROOT
from tests.commands import SMALLEST
from tests.texts import TEXTS, blocks, commands

RECIPES = [(name, text) for name in TEXTS for kind, text in blocks(name) if kind == "toml"]
COMMANDS = [(name, command) for name in TEXTS for command in commands(name)]


@pytest.mark.parametrize(("name", "text"), RECIPES, ids=[name for name, _ in RECIPES])
def test_recipes_are_valid(name, text, tmp_path):
    """A block without a name shows sections, which a small recipe is given."""
    (tmp_path / "mine.py").write_text("def predict(problem):\n    return {}\n")
    path = tmp_path / "shown.toml"
    shown = tomllib.loads(text)
    path.write_text(text if "name" in shown else joined(SMALLEST, text), encoding="utf-8")
    if "training" in shown:
        assert load_any_recipe(path).training
    else:
        assert load_recipe(path).points()


def joined(recipe: str, sections: str) -> str:
    """A recipe with sections that take the place of its own or follow them."""
    from sampler.recipes.settings import toml_text

    settings = tomllib.loads(recipe)
    for name, section in tomllib.loads(sections).items():
        settings[name] = {**settings.get(name, {}), **section}
    return toml_text(settings)


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[c for _, c in COMMANDS])
def test_commands_are_understood(name, command):
    """The parser takes them, and their recipes, with the settings that are given, are valid."""
    words = separate_settings(shlex.split(command)[1:])
    if words[0].startswith("--print-completion"):
        return
    arguments = make_parser().parse_args(words)
    if arguments.command == "new" and arguments.name:
        assert shipped_recipe(arguments.name)
    recipe = getattr(arguments, "recipe", None)
    if recipe is not None and recipe.parts[:2] != ("runs", "results"):
        settings = [text for text in arguments.overrides if "$PWD" not in text]
        # One without a folder was written by `new`.
        assert load_any_recipe(ROOT / "runs" / recipe.name, settings).name == recipe.stem


@pytest.mark.parametrize(
    "words", ["--set a.b=1 c=2", "--set a.b=1 --set=c=2", "--set=a.b=1 --set c=2"]
)
def test_settings_may_be_given_in_any_form(words):
    arguments = make_parser().parse_args(separate_settings(["check", *words.split(), "x.toml"]))
    assert (arguments.overrides, str(arguments.recipe)) == (["a.b=1", "c=2"], "x.toml")


@pytest.mark.parametrize("name", ["README.md", "runs/README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if not target.startswith("http"):
            assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}"


def test_recipes_that_ship_are_valid():
    shipped = sorted((ROOT / "runs").glob("*.toml"))
    assert shipped
    for path in shipped:
        assert load_any_recipe(path).name == path.stem
