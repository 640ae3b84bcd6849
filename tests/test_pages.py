"""Pages name what there is: keywords of what is public, modules and classes, scripts.

Python that pages about how something is done show is executed.
"""

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import xarray

import sampler
from tests import FIXTURES, ROOT
from tests.problems import all_but

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("runs/**/*.md")),
]
IMPORT = re.compile(r"^from ((?:sampler|theory)[\w.]*) import \(?([\w, \n]+?)\)?$", re.MULTILINE)
# A file of the repository, but for those that are found at a commit.
FILE = re.compile(r"`((?:runs|sampler|theory|tests|docs)/[\w/.-]+\.(?:py|toml|md))`")
FROZEN = "at commit"


def calls(text: str, name: str) -> Iterator[str]:
    """What stands between the brackets of every call of a function, without inner brackets."""
    for match in re.finditer(rf"(?<![\w.])(?:sampler\.)?{name}\(", text):
        depth, inside = 1, []
        for letter in text[match.end() :]:
            depth += (letter in "([{") - (letter in ")]}")
            if depth == 0:
                break
            inside.append(letter if depth == 1 else " ")
        yield re.sub(r'"[^"]*"', "", "".join(inside))


def keywords() -> dict[str, set[str]]:
    """Those of public functions, and of classes by `sampler`, where they are all stated."""
    found = {}
    for name in {*sampler.__all__} - {"Arrays"}:
        one = getattr(sampler, name)
        if inspect.isfunction(one):
            found[name] = set(inspect.signature(one).parameters)
        elif not issubclass(one, Exception):
            found[f"sampler.{name}"] = set(inspect.signature(one).parameters)
    found["sample"] |= {*sampler.Sampler.model_fields}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path):
    text = page.read_text(encoding="utf-8")
    for name, known in keywords().items():
        for inside in calls(text, name):
            given = set(re.findall(r"(?<![\w.=])(\w+)=(?!=)", inside))
            assert given <= known, (name, given)
    for module, names in IMPORT.findall(text):
        for name in re.findall(r"\w+", names):
            loaded = importlib.import_module(module)
            assert hasattr(loaded, name) or importlib.import_module(f"{module}.{name}")
    for line in text.split("\n\n"):
        for file in FILE.findall(line):
            assert (ROOT / file).exists() or FROZEN in line, file


def test_functions_and_tests_of_the_equations_are_there():
    text = (ROOT / "docs" / "reference" / "equations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| `([\w.]+)` \| (`test.*`) \|$", text, re.MULTILINE)
    assert len(rows) > 30
    for function, tests in rows:
        module, *names = function.split(".")
        if module != "sampler":
            found = importlib.import_module(f"theory.{module}")
            for name in names:
                found = getattr(found, name)
        for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", tests):
            path = ROOT / file if "/" in file else ROOT / "tests" / "theory" / file
            assert f"def {name}(" in path.read_text(encoding="utf-8"), (file, name)


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        (r"\frac12\ln\nu", "<mfrac><mn>1</mn><mn>2</mn></mfrac><mi>ln</mi>"),
        (r"\ln p", '<mspace width="0.1667em"></mspace><mi>p</mi>'),
        (r"\tfrac1{12}\nabla", "<mn>1</mn><mn>12</mn></mfrac>"),
        (r"\tilde V_0", "<msub><mrow></mrow><mn>0</mn></msub>"),
        (r"\bar\jmath_{ab}", "<msub><mrow></mrow><mrow><mi>a</mi><mi>b</mi></mrow></msub>"),
    ],
)
def test_an_equation_is_shown_as_it_is_written(tex, expected):
    """Docutils reads the digits of a fraction as one number, and an index as below an accent."""
    pytest.importorskip("docutils", reason="the site is an extra: pip install -e '.[docs]'")
    path = ROOT / "docs" / "extensions" / "mathml.py"
    spec = importlib.util.spec_from_file_location("mathml", path)
    mathml = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mathml)
    shown = mathml.tex2mathml(mathml.unambiguous(tex))
    assert expected in re.sub(r"\s*\n\s*", "", shown)


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "reference" / "python.rst").read_text(encoding="utf-8")
    assert {*sampler.__all__} <= {*re.findall(r"\w+", text)}


def test_files_have_the_variables_that_the_page_lists():
    text = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    stored = xarray.load_dataset(FIXTURES / "finished" / "theory.nc", engine="h5netcdf")
    tree = xarray.load_datatree(FIXTURES / "finished" / "comparison.nc", engine="h5netcdf")
    for title, variables in (("Predictions", stored), ("Comparison", tree["summary"])):
        section = re.search(rf"^## {title}.*?^## ", text, re.DOTALL | re.MULTILINE)[0]
        rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        assert len(names) > 10
        # The stored recipe asks for no sub-networks.
        assert names - {"accuracy_of_sub_network"} <= {*variables.data_vars}


# Pages whose libraries every installation has, those that take minutes last.
EXECUTED = [
    "own_arrays", "reference_posteriors", "write_recipe", "outside_theory", "learned_attention",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", all_but(EXECUTED, EXECUTED[:3], pytest.mark.nightly))
def test_python_of_a_page_runs(page, without_annotation_checks):
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {})
