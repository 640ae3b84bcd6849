"""The page of a run or a sweep: one file without scripts, whose numbers are the stored ones."""

import itertools
import json
import re
from pathlib import Path

import pytest
import xarray as xr

from sampler.storage.result_files import read_comparison, write_result
from tests.commands import in_process as command
from tests.pages import STORED, Page, page_of, stored_run


@pytest.fixture
def without_figures(monkeypatch):
    """Drawing them takes most of the time, and most tests look at none."""
    monkeypatch.setattr("sampler.presentation.report.draw_figures", lambda *_, **__: [])


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return stored_run(tmp_path_factory.mktemp("results") / "run")


@pytest.fixture(scope="module")
def page(directory) -> Page:
    return page_of(directory)


def test_the_page_is_one_file_without_scripts(page, directory):
    assert not page.named("script")
    pictures = page.named("img")
    assert {entry["src"].partition(",")[0] for entry in pictures} == {"data:image/png;base64"}
    assert len(pictures) == len(list((directory / "figures").glob("*.png")))
    assert all(entry["href"].startswith("data:") for entry in page.named("link"))
    identities = {attributes.get("id") for _, attributes in page.elements}
    inside = {entry["href"][1:] for entry in page.named("a") if entry["href"].startswith("#")}
    assert inside <= identities
    assert (directory / "recipe.toml").read_text() in page.text


def test_a_page_whose_diagnostics_failed_says_nothing_of_errors_of_the_theory(page, directory):
    comparison = json.loads((directory / "comparison.json").read_text())
    assert comparison["diagnostics"]["verdict"] == "fail"
    assert not any(table.caption.startswith("Relative error") for table in page.tables)


def test_the_lines_of_python_on_the_page_open_the_results(page, directory, capsys):
    lines = page.text[page.text.index("import sampler") :].partition("\n\n\n")[0]
    code = lines[: lines.index("#")]
    found: dict = {}
    exec(code, found)
    assert str(directory) in capsys.readouterr().out
    assert found["draws"].identical(xr.open_datatree(directory / "draws.nc", engine="h5netcdf"))


@pytest.mark.usefixtures("without_figures")
def test_names_of_paths_are_text_and_not_markup(tmp_path):
    directory = stored_run(tmp_path / "run", "recipe.toml", "theory.nc", "comparison.nc")
    names = ["<script>alert(1)</script>", 'good & "bad"']
    tree = read_comparison(directory)
    table = tree["elements/order_parameter"].to_dataset().assign_coords(path=names, path_=names)
    tree["elements/order_parameter"].dataset = table
    write_result(directory, "comparison.nc", tree)
    page = page_of(directory)
    assert not page.named("script")
    assert page.table("Order parameter U₁").row(names[0])


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("file", ["theory.nc", "draws.nc"])
def test_theory_or_draws_alone_have_the_sections_that_they_fill(tmp_path, file):
    page = page_of(stored_run(tmp_path / "run", "recipe.toml", file))
    figures = {entry["id"] for entry in page.named("figure")}
    sections = {entry["id"] for entry in page.named("section")}
    assert ("figure-order_parameter" in figures) == (file == "theory.nc")
    assert ("diagnostics" in sections) == (file == "draws.nc")


@pytest.mark.parametrize("files", [(), ("recipe.toml",)], ids=["no directory", "no results"])
def test_without_results_there_is_no_page(files, tmp_path, capsys):
    directory = tmp_path / "run"
    if files:
        stored_run(directory, *files)
    assert command("report", directory) == 2
    assert str(directory) in capsys.readouterr().err
    assert not (directory / "report.html").exists()


def test_a_screen_reader_has_texts_headers_and_headings_in_order(page):
    assert page.named("html") == [{"lang": "en"}]
    assert all(entry["alt"].strip() for entry in page.named("img"))
    assert {entry["scope"] for entry in page.named("th")} == {"col", "row"}
    assert all(table.caption for table in page.tables)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))


@pytest.fixture
def sweep(tmp_path) -> Path:
    """A sweep of three widths, the last of which has no results yet."""
    directory = tmp_path / "sweep"
    directory.mkdir()
    text = (STORED / "recipe.toml").read_text() + '[sweep]\n"network.widths" = [3, 30, 300]\n'
    (directory / "recipe.toml").write_text(text)
    for width in (3, 30):
        stored_run(directory / f"network.widths={width}")
    return directory


@pytest.mark.slow
def test_the_page_of_a_sweep_has_a_row_for_every_point(sweep):
    page = page_of(sweep)
    table = page.table("Points")
    assert len(table.rows) == 1 + 3
    assert not any(table.values[3])
    figures = {entry["id"] for entry in page.named("figure")}
    assert {"figure-accuracy_against_width", "figure-order_parameter_against_width"} <= figures
