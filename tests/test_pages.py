"""Pages name what there is: keywords of public functions, modules and classes, scripts."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sampler
from tests import ROOT

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


def functions() -> dict[str, inspect.Signature]:
    """Public functions with keywords of their own."""
    public = {name: getattr(sampler, name) for name in sampler.__all__}
    return {name: inspect.signature(one) for name, one in public.items() if inspect.isfunction(one)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path):
    text = page.read_text(encoding="utf-8")
    for name, signature in functions().items():
        takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
        for inside in calls(text, name):
            given = set(re.findall(r"(?<![\w.=])(\w+)=(?!=)", inside))
            assert takes_any or given <= signature.parameters.keys(), (name, given)
    for module, names in IMPORT.findall(text):
        for name in re.findall(r"\w+", names):
            loaded = importlib.import_module(module)
            assert hasattr(loaded, name) or importlib.import_module(f"{module}.{name}")
    for line in text.split("\n\n"):
        for file in FILE.findall(line):
            assert (ROOT / file).exists() or FROZEN in line, file
