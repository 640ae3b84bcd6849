"""Data flow one way: `theory` imports nothing of `sampler`, and no room one that comes after it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

FORBIDDEN = {"sampler", "numpyro", "arviz", "arviz_base", "arviz_stats", "matplotlib", "dask"}
# Modules and folders of `sampler`; a room imports only those before it. The exporter makes tasks of
# other people's transformers, so it comes after the tasks, wherever it is kept.
ORDER = (
    "errors", "registry", "numerics", "attention", "mcmc.algorithm", "recipes", "storage", "images",
    "network", "transformer", "tasks", "transformer.export", "token_network", "posterior",
    "problem", "mcmc", "analysis", "presentation", "jobs", "api", "command_line", "cli",
    "__main__",
)  # fmt: skip


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by the full name, so that this test sees it"
            yield node.module


@pytest.mark.parametrize("path", sorted(ROOT.glob("theory/**/*.py")), ids=lambda path: path.name)
def test_theory_imports_nothing_of_the_sampler(path):
    assert not {name.split(".")[0] for name in imported(path)} & FORBIDDEN


def test_the_theory_is_there():
    assert len(list(ROOT.glob("theory/*.py"))) > 5


def room(module: str) -> str:
    """The entry of ORDER that a module belongs to: the longest that its name begins with."""
    name = module.removeprefix("sampler.")
    found = [entry for entry in ORDER if name == entry or name.startswith(f"{entry}.")]
    assert found, f"{module} is in no room of ORDER"
    return max(found, key=len)


@pytest.mark.parametrize("name", ORDER)
def test_a_room_imports_only_rooms_before_it(name):
    wrong = []
    for path in sorted(ROOT.glob("sampler/**/*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        module = module.removesuffix(".__init__")
        if module == "sampler" or room(module) != name:
            continue
        for other in imported(path):
            if other.startswith("sampler.") and ORDER.index(room(other)) > ORDER.index(name):
                wrong.append(f"{module} imports {other}")
    assert not wrong, wrong


@pytest.mark.parametrize(
    "contents", sorted(ROOT.glob("sampler/**/__init__.py")), ids=lambda path: path.parent.name
)
def test_every_module_is_in_the_table_of_contents(contents):
    text = contents.read_text(encoding="utf-8")
    files = {path.stem for path in contents.parent.glob("*.py") if path.stem[0] != "_"}
    assert {name for name in files if not re.search(rf"\b{name}\b", text)} == set()


def test_parts_of_numpyro_are_imported_from_it():
    """ArviZ leaves an unloaded NumPyro behind: `import numpyro.x` then loads x twice, and fails."""
    for path in sorted(ROOT.glob("sampler/**/*.py")):
        assert not re.search(r"^ *import numpyro\.", path.read_text("utf-8"), re.MULTILINE), path


UNLOADED = """
import importlib.util, sys
spec = importlib.util.find_spec("numpyro")
unloaded = sys.modules["numpyro"] = importlib.util.module_from_spec(spec)
importlib.util.LazyLoader(spec.loader).exec_module(unloaded)
import sampler.posterior.spaces
import numpyro
numpyro.distributions.distribution.Unit, numpyro.infer.util.log_density
"""


def test_the_densities_are_made_beside_an_unloaded_numpyro():
    subprocess.run([sys.executable, "-c", UNLOADED], cwd=ROOT, check=True)
