"""Recipes that ship: their first two lines are true, copies work elsewhere, nothing is replaced."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from sampler.cli import main
from sampler.command_line import make_parser, separate_settings
from sampler.errors import ExitCode
from sampler.settings.gallery import FIRST, GALLERY, names_of_shipped, shipped_recipe

NAMES = names_of_shipped()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    code = main(list(words))
    return code, *capsys.readouterr()


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_has_the_same_settings_and_commands_for_its_place(name, capsys):
    path, one = Path("some where/my own.toml"), shipped_recipe(name)
    code, printed, _ = said(capsys, "new", name, "--out", str(path))
    assert code == ExitCode.OK
    text = path.read_text(encoding="utf-8")
    assert text == one.text
    commands = [
        make_parser().parse_args(separate_settings(shlex.split(command)))
        for command in re.findall(r"attention-posterior (.*)", printed + text)
    ]
    # Printed as what comes next, for this place; comments are for the folder of the recipe.
    following, *in_comments = commands
    assert following.recipe == path
    assert (following.command == "train") == ("training" in tomllib.loads(text))
    for arguments in in_comments:
        assert arguments.recipe.parent == Path()
        assert arguments.recipe.stem in NAMES
        if getattr(arguments, "out", None) is not None:
            assert arguments.out.parent == Path("results")


def test_nothing_is_replaced(capsys):
    Path(f"{FIRST}.toml").write_text("mine")
    for words in (["new"], ["new", "--out", "."], ["new", "quickstrat"]):
        assert said(capsys, *words)[0] == ExitCode.BAD_INPUT
    assert Path(f"{FIRST}.toml").read_text() == "mine"


def test_data_come_with_a_copy_and_are_not_replaced_either(capsys):
    name, data = "markov_published", "markov_published.npz"
    assert said(capsys, "new", name)[0] == ExitCode.OK
    assert Path(data).read_bytes() == (GALLERY / data).read_bytes()
    assert said(capsys, "new", name, "--out", "again.toml")[0] == ExitCode.OK
    Path(data).write_text("mine")
    assert said(capsys, "new", name, "--out", "third.toml")[0] == ExitCode.BAD_INPUT
    assert Path(data).read_text() == "mine"
    assert not Path("third.toml").exists()
