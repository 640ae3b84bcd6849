"""Data flow one way: `theory` imports nothing of `sampler`, nor what only the sampler needs."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {"sampler", "numpyro", "arviz", "arviz_base", "arviz_stats", "matplotlib", "dask"}


@pytest.mark.parametrize("path", sorted(ROOT.glob("theory/**/*.py")), ids=lambda path: path.name)
def test_theory_imports_nothing_of_the_sampler(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by the full name, so that this test sees it"
            imported.add(node.module.split(".")[0])
    assert not imported & FORBIDDEN


def test_the_theory_is_there():
    assert len(list(ROOT.glob("theory/*.py"))) > 5
