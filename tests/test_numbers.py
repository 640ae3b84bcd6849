"""Numbers that the texts quote are those that recipes and scripts left in runs/numbers."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests import ROOT

specification = importlib.util.spec_from_file_location("renew", ROOT / "runs" / "renew.py")
renew = importlib.util.module_from_spec(specification)
specification.loader.exec_module(renew)

KEPT = sorted((ROOT / "runs" / "numbers").glob("*.json"))
TEXTS = renew.texts()
MARKED = [
    path for path in TEXTS if "<!--= " in path.read_text() or "<!--table " in path.read_text()
]
KINDS = re.compile(r"MCSE|binomial|of the fit|over .+")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MARKED, ids=name_of)
def test_every_marked_number_is_the_kept_one(path):
    text = path.read_text(encoding="utf-8")
    assert renew.renewed(text).splitlines() == text.splitlines(), "run: python runs/renew.py"


def test_texts_quote_results():
    assert MARKED


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_numbers_say_where_they_come_from(path):
    """From a recipe as it is now, or a script, with versions that the package allows."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    script = renew.CALLS.get(path.stem, path.stem).split()[0]
    if call := renew.call_of(script):
        assert call[-1] in kept["made_by"]
    elif "at commit" not in kept["made_by"]:  # a study whose code is kept in the history alone
        recipe = path.parents[1] / f"{script}.toml"
        assert kept["recipe_hash"] == renew.hash_of(recipe), "the recipe was changed since"
    assert path.stat().st_size < 100_000
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", kept["made"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    for package, installed in kept["versions"].items():
        assert installed in needed.get(package, SpecifierSet()), package


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_error_says_of_what_kind_it_is(path):
    def look(content):
        if isinstance(content, dict):
            if "error" in content and "value" in content:
                assert KINDS.fullmatch(content["kind"]), content
            for value in content.values():
                look(value)
        elif isinstance(content, list):
            for value in content:
                look(value)

    look(json.loads(path.read_text(encoding="utf-8"))["numbers"])


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A results file and a text that quotes it."""
    numbers = {
        "10": {"accuracy": {"theory": 0.9694, "sampled": one(0.9703, 0.0004)}, "U": [[3.262]]},
        "1000": {"accuracy": {"theory": 0.885, "sampled": one(0.8849, 0.0002)}},
        "law": {"slope": one(-1.0234, 0.0812), "difference": 1.332e-15},
        "cosine, at 0.02": {"BN + SH": one(0.4713, 0.0212), "minus softmax": one(-0.2788, 0.0184)},
    }
    monkeypatch.setattr(renew, "KEPT", tmp_path)
    renew.record(tmp_path, "study", numbers, made_by="a test")
    return tmp_path / "study.json", TEXT


def one(value: float, error: float) -> dict:
    return {"value": value, "error": error, "kind": "MCSE"}


TEXT = """
Gains 8.4<!--= study[10].accuracy.theory*100 - study[1000].accuracy.theory*100 --> points, falls as
N^(−1.02 ± 0.08<!--= study.law.slope -->), off by 1.3·10⁻¹⁵<!--= study.law.difference -->.

<!--table | study[{0}].accuracy.theory | study[{0}].accuracy.sampled -->
| N | theory | exact |
|---|---|---|
| 10 | 0.969 | 0.9703 ± 0.0004 |
| 10³ | 0.885 | (0.8849 ± 0.0002) |

<!--table | study[{h}].accuracy.{0} | study[{h}].accuracy.{0} -->
| | 10 | 1,000 |
|---|---|---|
| theory | 0.97 | 0.89 |

<!--table | | study[{0}, {1}][{h}]; study[{0}, {1}].minus softmax -->
| measure | when | BN + SH |
|---|---|---|
| cosine | at 0.02 | 0.47 ± 0.02 (−0.279 ± 0.018) of 4 |
"""


def test_a_text_that_quotes_the_kept_numbers_stays(kept):
    assert renew.renewed(TEXT) == TEXT


@pytest.mark.parametrize("digit", [at for at, c in enumerate(TEXT) if c in "0123456789"])
def test_any_other_digit_in_a_quoted_number_is_seen(kept, digit):
    """Those of keys, of heads and first cells, and the ten of a power quote nothing."""
    changed = f"{TEXT[:digit]}{(int(TEXT[digit]) + 1) % 10}{TEXT[digit + 1 :]}"
    quoted = re.sub(r"<!--.*?-->", lambda at: " " * len(at[0]), TEXT)
    quoted = re.sub(
        r"(?m)^\| \| 10 .*|^\| [^|]*|at 0\.02|of 4|·10", lambda at: " " * len(at[0]), quoted
    )
    if quoted[digit] != " ":
        assert renew.renewed(changed) == TEXT


def test_another_digit_in_the_file_is_seen(kept):
    path, text = kept
    before = path.read_text()
    for old, new in (("0.9694", "0.9684"), ("0.0812", "0.0712"), ("0.8849", "0.8859")):
        path.write_text(before.replace(old, new))
        assert renew.renewed(text) != text
    path.write_text(before)
    assert renew.renewed(text) == text


def test_an_error_that_is_not_known_is_refused(kept):
    with pytest.raises(SystemExit, match="has no error"):
        renew.renewed("0.969 ± 0.001<!--= study[10].accuracy.theory -->")
