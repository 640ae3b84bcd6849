"""The program without its repository: it names no file of it, and a wheel has all that it needs.

Slow: a wheel is built and installed into an environment of its own, where this one's libraries are
found and nothing else of it.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from sampler.command_line import make_parser
from sampler.recipes.shipped import FOLDER, names_of_shipped, shipped_recipe
from tests import ROOT
from tests.commands import environment

# Files of the repository that are no part of a wheel; results of runs lie in runs/results anywhere.
OF_REPOSITORY = re.compile(
    r"\bdocs/|\btests/|\bruns/(?!results)|\bmake (?:docs|demo|install|test)|\.md\b|\.rst\b"
    r"|README|CONTRIBUTING|CHANGELOG|Makefile|constraints\.txt|pip install (?:-\S+ )*'?\.[\['\s]"
)
CODE = sorted([*ROOT.glob("sampler/**/*.py"), *ROOT.glob("theory/**/*.py")])
TEMPLATES = sorted(ROOT.glob("sampler/**/*.html"))
# How a message refers to a page, or to a section of one.
TITLE = re.compile(r'"([^"\n]+)"\s+in\s+the\s+documentation')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def literals(path: Path) -> Iterator[str]:
    """Every text in a file of code: messages, help, docstrings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        # The gallery's own name, which copies of recipes do without.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != FOLDER:
            yield node.value


def helps(parser: ArgumentParser) -> Iterator[str]:
    """The help of the program and of its commands."""
    yield parser.format_help()
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                yield from helps(command)


def copies() -> Iterator[str]:
    """Recipes as `new` writes them."""
    for name in names_of_shipped():
        yield shipped_recipe(name).text_at(Path(f"{name}.toml"))


def said() -> Iterator[tuple[str, str]]:
    """Everything that the program can say, and where it stands."""
    yield from ((str(path.relative_to(ROOT)), text) for path in CODE for text in literals(path))
    yield from ((path.name, path.read_text(encoding="utf-8")) for path in TEMPLATES)
    yield from (("--help", text) for text in helps(make_parser()))
    yield from (("a copy of a recipe", text) for text in copies())


def test_nothing_that_is_said_names_a_file_of_the_repository():
    found = [(where, at[0], text[:100]) for where, text in said() for at in named_files(text)]
    assert found == []


def named_files(text: str) -> Iterator[re.Match]:
    return OF_REPOSITORY.finditer(text)


def test_such_names_are_seen():
    for text in (
        "write one (docs/howto/own_arrays.md)", "see README", "run runs/quickstart.toml", "a.rst",
        "pip install -c constraints.txt -e '.[torch]'", "pip install -e '.[torch]'", "make docs",
    ):  # fmt: skip
        assert list(named_files(text)), text
    for text in ("runs/results/x", "pip install 'attention-posterior[torch]'", "make it new"):
        assert not list(named_files(text)), text


def test_pages_of_the_documentation_are_named_by_titles_that_they_have():
    pages = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.md")]
    titles = {at[1] for page in pages for at in HEADING.finditer(page)}
    comments = (text.replace("\n# ", " ") for text in copies())
    named = {at[1] for text in (*comments, *(t for _, t in said())) for at in TITLE.finditer(text)}
    assert named
    assert named <= titles


# --- a wheel, installed

# What a wheel is built from.
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "sampler", "theory", "runs")


class Installed:
    """The program of a fresh environment, used in an empty directory."""

    def __init__(self, home: Path, wheel: Path) -> None:
        self.bin, self.desk = home / "env" / "bin", home / "desk"
        self.desk.mkdir()
        done([sys.executable, "-m", "venv", "--without-pip", home / "env"], home)
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python"]
        done([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], home)
        # Only now: pip would take the program of this environment for one to replace.
        own = self.python("import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        libraries = {str(Path(find_spec(name).origin).parents[1]) for name in ("jax", "numpy")}
        (Path(own) / "libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")

    def __call__(self, *words: object) -> subprocess.CompletedProcess[str]:
        return self._run([self.bin / "attention-posterior", *words])

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        return self._run([self.bin / "python", "-c", program])

    def _run(self, words: list) -> subprocess.CompletedProcess[str]:
        variables = {key: value for key, value in environment(None).items() if key != "PYTHONPATH"}
        return subprocess.run(
            list(map(str, words)), cwd=self.desk, env=variables, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip


def done(words: list, where: Path) -> None:
    ended = subprocess.run(list(map(str, words)), cwd=where, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Installed:
    absent = [name for name in ("pip", "setuptools") if find_spec(name) is None]
    if absent:
        pytest.skip(f"a wheel is built with {' and '.join(absent)}, absent here")
    home = tmp_path_factory.mktemp("installed")
    source = home / "source"
    source.mkdir()
    for path in (ROOT / name for name in BUILT_FROM):
        if path.is_file():
            shutil.copy(path, source)
        else:  # runs of this repository may have left gigabytes
            without = shutil.ignore_patterns("__pycache__", "results", "omniglot")
            shutil.copytree(path, source / path.name, symlinks=True, ignore=without)
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    done([*build, "--no-index", "--wheel-dir", home, source], home)
    shutil.rmtree(source)
    (wheel,) = home.glob("*.whl")
    return Installed(home, wheel)


@pytest.mark.slow
def test_the_installed_program_is_the_one_that_answers(program):
    found = program.python("import sampler, theory; print(sampler.__file__, theory.__file__)")
    assert found.returncode == 0, found.stderr
    for name in found.stdout.split():
        assert Path(name).is_relative_to(program.bin.parent), name
    gallery = Path(found.stdout.split()[0]).parent / "gallery"
    shipped = {path.name for kind in ("toml", "npz") for path in (ROOT / "runs").glob(f"*.{kind}")}
    assert {path.name for path in gallery.iterdir()} == {*shipped, "trained"}


@pytest.mark.long
def test_every_recipe_that_ships_is_written_and_is_valid_or_says_what_it_lacks(
    program, monkeypatch
):
    # Nothing is fetched in a test: there is no such proxy.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    listed = program("new", "--list").stdout
    assert [name for name in names_of_shipped() if f"{name}: " not in listed] == []
    for name in names_of_shipped():
        assert program("new", name).returncode == 0
        assert (program.desk / f"{name}.toml").read_text(encoding="utf-8").startswith("# ")
        checked = program("check", f"{name}.toml")
        if lacking(name):
            assert checked.returncode == 2, checked.stdout
            assert lacking(name) in checked.stderr
            assert len(checked.stderr.splitlines()) == 1
        else:
            assert checked.returncode == 0, checked.stderr
            assert " are valid\n" in checked.stdout


def lacking(name: str) -> str:
    """What the error says of a recipe whose data are elsewhere."""
    needs = shipped_recipe(name).needs
    if "trained network" in needs:
        return "name the directory of a finished training (`train`)"
    if "Omniglot" in needs:
        return "omniglot"
    return '"Bring your own arrays" in the documentation' if "your model" in needs else ""


@pytest.mark.long
@pytest.mark.parametrize("name", ["smoke", "quickstart"])
def test_a_beginner_comes_to_a_report(name, program):
    """Not there, offered, written, run, reported: as the messages say, word by word."""
    (program.desk / f"{name}.toml").unlink(missing_ok=True)
    absent = program("run", f"{name}.toml")
    assert absent.returncode == 2
    written = program(*re.search("`attention-posterior (.*?)`", absent.stderr)[1].split())
    following = re.search(r"next: attention-posterior (.*)", written.stdout)[1].split()
    ran = program(*following, "--out", f"ran-{name}")
    # The smoke recipe's draws are few.
    assert ran.returncode in ((0, 3) if name == "smoke" else (0,)), ran.stderr
    page = program.desk / f"ran-{name}" / "report.html"
    page.unlink()
    assert program("report", f"ran-{name}").returncode == 0
    text = page.read_text(encoding="utf-8")
    assert "data:image/png" in text
    assert not list(named_files(ran.stdout + ran.stderr))
    assert os.fspath(ROOT) not in text
