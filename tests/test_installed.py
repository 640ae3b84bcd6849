"""The program without its repository: it names no file of it, and a wheel has all that it needs.

Nothing but its dependencies is imported. Slow: an archive of the sources is made, a wheel is built
from it and installed into an environment of its own, where this one's libraries are found and
nothing else of it.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import ROOT
from tests.commands import environment
from tests.pages import stored_run

# --- dependencies alone

# A process in which the packages of all extras are absent.
PLAIN = """
import sys, tomllib
from importlib.abc import MetaPathFinder
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = sum(project["optional-dependencies"].values(), [])
names = {re.match(r"[\\w-]+", line)[0].replace("-", "_") for line in extras}
names -= {re.match(r"[\\w-]+", line)[0].replace("-", "_") for line in project["dependencies"]}
assert "arviz_plots" in names

class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from sampler.cli import main
print([main([*words, directory]) for words in
       (["figures"], ["diagnose"], ["compare"], ["report"])])
"""


@pytest.mark.slow
def test_stored_results_are_told_and_drawn_by_dependencies_alone(tmp_path):
    """Also where diagnostics fail."""
    directory = stored_run(tmp_path / "run")
    program = f"import re\ndirectory = {os.fspath(directory)!r}\n{PLAIN}"
    words = [sys.executable, "-c", program]
    ended = subprocess.run(
        words, cwd=ROOT, env=environment(None), capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == str([0, 3, 3, 0])
    assert "No module named" not in ended.stderr
    drawn = {path.stem for path in (directory / "figures").iterdir()}
    assert {"chains", "order_parameter", "theory_against_draws"} <= drawn


# --- a wheel, installed

# What an archive of the sources is made from.
BUILT_FROM = (
    *("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE"),
    *("CHANGELOG.md", "CITATION.cff", "constraints.txt", "sampler", "theory", "runs"),
)
ARCHIVE = "from setuptools.build_meta import build_sdist; build_sdist({!r})"


class Installed:
    """The program of a fresh environment, used in an empty directory."""

    def __init__(self, home: Path, archive: Path, wheel: Path) -> None:
        self.archive, self.wheel = archive, wheel
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
    done([sys.executable, "-c", ARCHIVE.format(os.fspath(home))], source)
    shutil.rmtree(source)
    (archive,) = home.glob("*.tar.gz")
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    done([*build, "--no-index", "--wheel-dir", home, archive], home)
    (wheel,) = home.glob("*.whl")
    return Installed(home, archive, wheel)


@pytest.mark.slow
def test_the_installed_program_has_the_recipes_and_nothing_of_the_repository(program):
    """No scripts, tests or weights of studies; large files are the data of recipes alone."""
    found = program.python("import sampler, theory; print(sampler.__file__, theory.__file__)")
    assert found.returncode == 0, found.stderr
    for name in found.stdout.split():
        assert Path(name).is_relative_to(program.bin.parent), name
    gallery = Path(found.stdout.split()[0]).parent / "gallery"
    shipped = {path.name for kind in ("toml", "npz") for path in (ROOT / "runs").glob(f"*.{kind}")}
    assert {path.name for path in gallery.iterdir()} == {*shipped, "trained", "references"}
    references = program.python("import sampler; print(*sampler.references())")
    assert references.stdout.split() == sorted(
        path.stem for path in (ROOT / "runs" / "references").glob("*.json")
    )
    with tarfile.open(program.archive) as sources, zipfile.ZipFile(program.wheel) as built:
        members = [one for one in sources.getmembers() if one.isfile()]
        in_archive = {one.name.partition("/")[2]: one.size for one in members}
        in_wheel = {one.filename: one.file_size for one in built.infolist()}
    unneeded = ("tests/", "docs/", "runs/studies/")
    assert not [name for name in in_archive if name.startswith(unneeded)]
    tops = {name.partition("/")[0] for name in in_wheel if ".dist-info/" not in name}
    assert tops == {"sampler", "theory"}
    for sizes, where in ((in_archive, "runs"), (in_wheel, "sampler/gallery")):
        large = {name for name, size in sizes.items() if size > 100_000}
        data = ("markov_published.npz", "trained/A/model.npz", "references/sixty_four_paths.npz")
        assert large == {f"{where}/{name}" for name in data}


@pytest.mark.slow
def test_a_beginner_comes_to_a_report(program):
    """Not there, offered, written, checked, run, reported: as the messages say, word by word."""
    absent = program("run", "smoke.toml")
    assert absent.returncode == 2
    written = program(*re.search("`attention-posterior (.*?)`", absent.stderr)[1].split())
    following = re.search(r"next: attention-posterior (.*)", written.stdout)[1].split()
    ran = program(*following, "--out", "ran")
    assert ran.returncode in (0, 3), ran.stderr  # its draws are few
    page = program.desk / "ran" / "report.html"
    page.unlink()
    assert program("report", "ran").returncode == 0
    text = page.read_text(encoding="utf-8")
    assert "data:image/png" in text
    published = program("new", "markov_published", "--out", "mine.toml")
    assert published.returncode == 0, published.stderr
    data = "markov_published.npz"
    assert (program.desk / data).read_bytes() == (ROOT / "runs" / data).read_bytes()
    checked = program("check", "mine.toml")
    assert checked.returncode == 0, checked.stderr
    assert os.fspath(ROOT) not in text + checked.stdout
