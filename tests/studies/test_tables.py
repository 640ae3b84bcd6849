"""Tables of pages are those that their studies make of the numbers that are kept."""

import importlib
import re

import pytest

from runs.studies.study import Study
from runs.studies.tables import NUMBER, PLACE, cell, markdown, pages, with_numbers, with_tables
from tests import ROOT

NAMES = sorted(
    path.parent.name
    for path in (ROOT / "runs" / "studies").glob("*/study.py")
    if "STUDY.run()" in path.read_text(encoding="utf-8")
)
NEED_TORCH = {"bring_your_own", "hand_written_heads", "which_heads"}


def study_of(name: str) -> Study:
    """A study by its name."""
    if name in NEED_TORCH:
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install -e '.[torch]'")
    return importlib.import_module(f"runs.studies.{name}.study").STUDY


@pytest.mark.parametrize("name", NAMES)
def test_pages_show_the_tables_of_the_numbers_that_are_kept(name):
    study = study_of(name)
    made = {table: markdown(lines) for table, lines in study.tables(study.kept()).items()}
    shown = [
        (table, text)
        for page in pages()
        for _, of, table, text in PLACE.findall(page.read_text(encoding="utf-8"))
        if of == name
    ]
    assert shown
    for table, received in shown:
        assert received == made[table], table
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert with_numbers(text, name, study.kept()) == text


def test_every_table_of_a_study_on_a_page_is_that_of_one_there_is():
    shown = {of for page in pages() for _, of, *_ in PLACE.findall(page.read_text("utf-8"))}
    assert shown == set(NAMES)


def test_a_table_takes_the_place_of_the_one_below_its_comment():
    page = "a\n\n<!-- one: x -->\n| old |\n|---|\n\nb\n<!-- two: x -->\n| kept |\n"
    received = with_tables(page, "one", {"x": [["N", "U₁"], ["1", "2"]]})
    expected = page.replace("| old |\n|---|\n", "| N | U₁ |\n|---|---|\n| 1 | 2 |\n")
    assert received == expected
    assert with_tables(received, "one", {"x": [["N", "U₁"], ["1", "2"]]}) == received


def test_every_number_on_a_page_is_that_of_a_study_there_is():
    found = [one for page in pages() for one in NUMBER.findall(page.read_text("utf-8"))]
    assert {of for _, of, *_ in found} <= set(NAMES)
    opened = sum(page.read_text("utf-8").count("<!-- -->") for page in pages())
    assert opened == len(found)


def test_a_number_stands_between_its_comments():
    kept = {"a": {"b, c": {"value": 0.5, "error": 0.02}, "d": 2.0}}
    page = "| <!-- one: a/b, c @1*100 -->?<!-- --> points | <!-- one: a/d -->?<!-- -->, \n"
    page += "<!-- two: a/d -->?<!-- --> at the end <!-- one: a/b, c -->?<!-- -->\n"
    received = with_numbers(page, "one", kept)
    assert received.count("?") == 1
    assert [one[5] for one in NUMBER.findall(received)] == ["50.0 ± 2.0", "2", "?", "0.50 ± 0.02"]
    with pytest.raises(KeyError, match="no number"):
        with_numbers(page, "one", {"a": {}})


@pytest.mark.parametrize(
    ("number", "digits", "expected"),
    [
        (None, 1, "—"),
        (-0.04, 1, "0.0"),
        (-1.25, 1, "−1.2"),
        ({"value": 1.0, "error": 0.018}, None, "1.000 ± 0.018"),
        ({"value": 1.0, "error": 0.2}, None, "1.0 ± 0.2"),
        ({"value": 0.5, "low": -0.1, "high": 0.7}, 2, "0.50 (−0.10 to 0.70)"),
    ],
)
def test_a_cell_has_the_digits_that_are_asked_for_or_known(number, digits, expected):
    assert cell(number, digits) == expected


def fields(content) -> object:
    """Names of what is kept, of numbers nothing."""
    if not isinstance(content, dict) or "value" in content:
        return None
    return {key: fields(value) for key, value in content.items()}


def same_fields(kept, made) -> list[str]:
    """Where kept numbers have other fields than a small run made, which has fewer points."""
    if not isinstance(made, dict):
        return [] if not isinstance(kept, dict) else ["a group in the place of a number"]
    if not isinstance(kept, dict):
        return ["a number in the place of a group"]
    wrong = [f"{key}: not kept" for key in made if key not in kept]
    for key, of in kept.items():
        if key in made:
            wrong += [f"{key}/{one}" for one in same_fields(of, made[key])]
        elif isinstance(of, dict):
            # Another point, which has the fields of one that was made.
            if not any(not same_fields(of, one) for one in made.values()):
                wrong.append(f"{key}: not made")
        elif not re.fullmatch(r"[\d.e-]+", key):
            wrong.append(f"{key}: not made")
    return wrong


def assert_fields_are_kept(name: str, made: dict) -> None:
    """Kept numbers have exactly the fields that the study writes."""
    kept = Study.kept(study_of(name))
    assert same_fields(fields(kept), fields(made)) == []
