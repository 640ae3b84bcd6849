"""Data flow one way: `theory` imports nothing of `sampler`, and no room one that comes after it."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from tests import ROOT

FORBIDDEN = {"sampler", "numpyro", "arviz", "arviz_base", "arviz_stats", "matplotlib", "dask"}
# Folders and files of `sampler`; each imports only from those before it.
ORDER = (
    "errors", "registry", "runtime", "streams", "compiled", "stored_programs",
    "attention", "network",
    "token_network", "posterior", "mcmc", "settings", "storage", "transformer", "data",
    "training", "torch_models", "token_problem", "problem", "teacher",
    "analysis", "presentation", "heads", "jobs", "api", "command_line", "cli", "__main__",
)  # fmt: skip


PATHS = [*ROOT.glob("theory/**/*.py"), *ROOT.glob("sampler/**/*.py")]
NAMES = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PATHS}
# Every module of the product and its file.
MODULES = {name.removesuffix(".__init__"): path for path, name in NAMES.items()}


# A recipe offers what is computed with it: methods that import what does when they are called.
FORWARD = {("sampler.settings.recipe", "sampler.api.posterior")}
# Of these the imports for who reads source text are no imports.
PACKAGES = {"sampler", "theory"}


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by the full name, so that this test sees it"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in inner)


def test_names_of_files_and_classes_are_one_thing_each():
    files, classes = defaultdict(set), defaultdict(set)
    for path in PATHS:
        files[path.stem].add(path)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(path)
    del files["__init__"]
    for places in (files, classes):
        assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_theory_imports_nothing_of_the_sampler():
    for path in ROOT.glob("theory/**/*.py"):
        assert not {name.split(".")[0] for name in imported(path)} & FORBIDDEN, path


def place(module: str) -> int:
    """The place in ORDER that a module of `sampler` has."""
    return ORDER.index(module.split(".")[1])


def test_a_room_imports_only_rooms_before_it():
    wrong = [
        f"{module} imports {other}"
        for module, path in MODULES.items()
        if module.startswith("sampler.")
        for other in imported(path)
        if other.startswith("sampler.") and place(other) > place(module)
        if (module, other) not in FORWARD
    ]
    assert not wrong, wrong


def test_no_modules_import_each_other():
    """Not in a circle of any length, imports inside functions and for type checkers included."""
    graph = {
        name: {other for other in imported(path) if other in MODULES and other != name}
        for name, path in MODULES.items()
        if name not in PACKAGES
    }
    for module, other in FORWARD:
        graph[module].remove(other)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


# Imported where an extra, or a notebook, has them.
ON_REQUEST = {"torch", "distributed", "IPython"}


def distributions(requirements: Iterable[str]) -> set[str]:
    """Names of packages as indices write them, without those of extras."""
    plain = (line for line in requirements if "extra ==" not in line)
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in plain}


def test_every_library_that_is_imported_is_a_dependency_or_comes_with_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = distributions(project["dependencies"])
    brought = {name for each in declared for name in distributions(requires(each) or ())}
    known = packages_distributions()
    used = {name.partition(".")[0] for path in PATHS for name in imported(path)}
    used -= {*sys.stdlib_module_names, "sampler", "theory", *ON_REQUEST}
    assert {"jax", "xarray"} < used
    undeclared = [name for name in used if not distributions(known[name]) & (declared | brought)]
    assert not undeclared


ALWAYS_LATE = {"jax", "xarray", "pandas", "scipy", "arviz_base", "matplotlib", "sklearn", "numpyro"}
MODELS = {"numpy", "pydantic", "jaxtyping"}
COMMANDS = [
    ("--help", ALWAYS_LATE | MODELS | {"importlib.metadata"}),
    ("status tests/fixtures/finished", ALWAYS_LATE | MODELS | {"h5py"}),
    ("check runs/quickstart.toml --set task.examples_test=10", ALWAYS_LATE),
]


@pytest.mark.parametrize(("words", "late"), COMMANDS)
def test_commands_that_say_something_start_without_what_computes(words, late):
    program = "import sys; from sampler.cli import main; code = main(sys.argv[1:]); "
    program += "print(*sys.modules, sep='\\n', file=sys.stderr); sys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-c", program, *words.split()],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not late & set(done.stderr.split())
