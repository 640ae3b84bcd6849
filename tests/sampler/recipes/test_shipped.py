"""Recipes that ship: their first two lines are true, copies work elsewhere, nothing is replaced."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from sampler.cli import main
from sampler.command_line import make_parser, separate_settings
from sampler.errors import ExitCode
from sampler.recipes.shipped import FIRST, GALLERY, names_of_shipped, shipped_recipe
from sampler.recipes.training_recipe import load_any_recipe
from tests import ROOT

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


def test_the_gallery_of_the_repository_is_what_ships():
    assert GALLERY.resolve() == (ROOT / "runs").resolve()
    assert [*NAMES] == [FIRST, *sorted({p.stem for p in (ROOT / "runs").glob("*.toml")} - {FIRST})]


@pytest.mark.parametrize("name", NAMES)
def test_title_and_needs_are_sentences_and_those_of_the_table(name):
    one = shipped_recipe(name)
    lines = [f"# {one.title}", f"# Needs {one.needs}."]
    assert one.text.splitlines()[:2] == lines
    assert re.fullmatch(r"[A-Z].{20,78}[.?]", one.title)
    table = (ROOT / "runs" / "README.md").read_text(encoding="utf-8")
    assert f"| `{name}.toml` | {one.title} | {one.needs} |\n" in table


@pytest.mark.parametrize("name", NAMES)
def test_what_a_recipe_needs_is_what_its_settings_read(name, elsewhere, capsys):
    """Files that are not there with the copy are named by `Needs`, and how to come by them."""
    assert said(capsys, "new", name)[0] == ExitCode.OK
    settings = load_any_recipe(Path(f"{name}.toml").resolve()).task.model_dump().values()
    read = [Path(one) for one in settings if isinstance(one, str) and one.startswith("/")]
    missing = [path for path in read if not path.exists()]
    needs = shipped_recipe(name).needs
    assert needs.startswith(("nothing;", "its data, which `new` writes")) == (not missing)
    for path in missing:
        if path.parent == elsewhere / "results":
            training = re.search(r"trained network of (\w+)", needs)[1]
            assert f"--out runs/results/{path.name}\n" in shipped_recipe(training).text
    if elsewhere / "omniglot" in missing:
        assert "which it fetches" in needs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("out", ["{}.toml", "runs/{}.toml", "some where/my own.toml"])
def test_a_copy_has_the_same_settings_and_commands_for_its_place(name, out, capsys):
    path, one = Path(out.format(name)), shipped_recipe(name)
    code, printed, _ = said(capsys, "new", name, "--out", str(path))
    assert code == ExitCode.OK
    text = path.read_text(encoding="utf-8")
    assert tomllib.loads(text) == tomllib.loads(one.text)
    assert (text == one.text) == (out == "runs/{}.toml" or "runs/" not in one.text)
    commands = [
        make_parser().parse_args(separate_settings(shlex.split(command)))
        for command in re.findall(r"attention-posterior (.*)", printed + text)
    ]
    # Printed as what comes next.
    assert commands[0].recipe == path
    assert (commands[0].command == "train") == ("training" in tomllib.loads(text))
    for arguments in commands:
        assert arguments.recipe.parent == path.parent
        assert arguments.recipe == path or arguments.recipe.stem in NAMES
        if getattr(arguments, "out", None) is not None:
            assert arguments.out.parent == path.parent / "results"


def test_nothing_is_replaced(capsys):
    Path(f"{FIRST}.toml").write_text("mine")
    code, _, error = said(capsys, "new")
    assert code == ExitCode.BAD_INPUT
    assert f"'{FIRST}.toml': is there already" in error
    assert "--out FILE" in error
    assert Path(f"{FIRST}.toml").read_text() == "mine"
    code, _, error = said(capsys, "new", "--out", ".")
    assert code == ExitCode.BAD_INPUT
    assert f"is a directory; name a file, as in --out {FIRST}.toml" in error


def test_data_come_with_a_copy_and_are_not_replaced_either(capsys):
    name, data = "markov_published", "markov_published.npz"
    assert said(capsys, "new", name)[0] == ExitCode.OK
    assert Path(data).read_bytes() == (GALLERY / data).read_bytes()
    assert said(capsys, "new", name, "--out", "again.toml")[0] == ExitCode.OK
    Path(data).write_text("mine")
    code, _, error = said(capsys, "new", name, "--out", "third.toml")
    assert (code, f"'{data}': is there already" in error) == (ExitCode.BAD_INPUT, True)
    assert Path(data).read_text() == "mine"
    assert not Path("third.toml").exists()


@pytest.mark.parametrize("name", ["smoke", "smoke.toml", "runs/smoke.toml"])
def test_a_recipe_may_be_named_as_its_file(name, capsys):
    assert said(capsys, "new", name)[0] == ExitCode.OK
    assert Path("smoke.toml").is_file()


def test_an_unknown_name_is_answered_with_the_nearest(capsys):
    code, _, error = said(capsys, "new", "quickstrat")
    assert code == ExitCode.BAD_INPUT
    assert "did you mean quickstart? `attention-posterior new --list`" in error
    code, _, error = said(capsys, "new", "xyz")
    assert (code, "did you mean" in error, "new --list" in error) == (2, False, True)


def test_the_list_has_every_recipe(capsys, monkeypatch, elsewhere):
    monkeypatch.setenv("COLUMNS", "400")
    code, printed, _ = said(capsys, "new", "--list")
    assert code == ExitCode.OK
    lines = printed.splitlines()
    for name, line in zip(NAMES, lines, strict=False):
        one = shipped_recipe(name)
        assert line == f"{name}: {one.title} Needs {one.needs}."
    assert len(lines) == len(NAMES) + 2
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("smoke.toml", "`attention-posterior new smoke` writes it"),
        ("smoke", "`attention-posterior new smoke` writes smoke.toml"),
        ("runs/smoke.toml", "`attention-posterior new smoke --out runs/smoke.toml` writes it"),
        ("there", "did you mean there.toml?"),
        ("runs/there.toml", "did you mean there.toml?"),
        ("nowhere.toml", "name a TOML file to read"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check", "train", "sweep"])
def test_a_recipe_that_is_not_there_is_offered(command, asked, answer, capsys):
    Path("there.toml").touch()
    code, _, error = said(capsys, command, asked)
    assert code == ExitCode.BAD_INPUT
    assert error == f"attention-posterior: recipe = '{asked}': no such file; {answer}\n"


def test_what_is_offered_is_written(capsys):
    _, _, error = said(capsys, "check", "runs/smoke.toml")
    offered = re.search("`attention-posterior (.*?)`", error)[1]
    assert said(capsys, *offered.split())[0] == ExitCode.OK
    assert said(capsys, "check", "runs/smoke.toml")[0] == ExitCode.OK
