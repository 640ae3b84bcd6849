"""The page of a run or a sweep: one file without scripts, whose sections are those it has."""

from pathlib import Path

import pytest
import xarray as xr

from sampler.storage.result_files import read_comparison, write_result
from tests.commands import in_process
from tests.pages import STORED, Page, page_of, stored_run

NAMES = ["<script>alert(1)</script>", 'good & "bad"']


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """The stored run, whose diagnostics fail, with names of paths that look like markup."""
    directory = stored_run(tmp_path_factory.mktemp("results") / "run")
    tree = read_comparison(directory)
    table = tree["elements/order_parameter"].to_dataset().assign_coords(path=NAMES, path_=NAMES)
    tree["elements/order_parameter"].dataset = table
    write_result(directory, "comparison.nc", tree)
    return directory


@pytest.fixture(scope="module")
def page(directory) -> Page:
    return page_of(directory)


def test_the_page_is_one_file_without_scripts(page, directory):
    assert not page.named("script")
    pictures = page.named("img")
    assert {entry["src"].partition(",")[0] for entry in pictures} == {"data:image/png;base64"}
    assert len(pictures) == len(list((directory / "figures").glob("*.png")))
    assert all(entry["href"].startswith("data:") for entry in page.named("link"))
    inside = {entry["href"][1:] for entry in page.named("a") if entry["href"].startswith("#")}
    assert inside <= {attributes.get("id") for _, attributes in page.elements}
    assert (directory / "recipe.toml").read_text() in page.text
    assert page.table("Order parameter U₁").row(NAMES[0])
    # For a screen reader.
    assert all(entry["alt"].strip() for entry in pictures)
    assert {entry["scope"] for entry in page.named("th")} == {"col", "row"}


def test_where_diagnostics_failed_nothing_is_said_of_errors_of_the_theory(page):
    assert "verdict bad" in [attributes.get("class") for _, attributes in page.elements]
    assert not any(table.caption.startswith("Relative error") for table in page.tables)


def test_the_lines_of_python_on_the_page_open_the_results(page, directory):
    lines = page.text[page.text.index("import sampler") :].partition("\n\n\n")[0]
    found: dict = {}
    exec(lines[: lines.index("#")], found)
    assert found["draws"].identical(xr.open_datatree(directory / "draws.nc", engine="h5netcdf"))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("file", ["theory.nc", "draws.nc", None])
def test_theory_or_draws_alone_have_the_sections_that_they_fill(file, tmp_path, capsys):
    directory = stored_run(tmp_path / "run", "recipe.toml", *([file] if file else []))
    if file is None:
        assert in_process("report", directory) == 2
        assert str(directory) in capsys.readouterr().err
        assert not (directory / "report.html").exists()
        return
    page = page_of(directory)
    figures = {entry["id"] for entry in page.named("figure")}
    sections = {entry["id"] for entry in page.named("section")}
    assert ("figure-order_parameter" in figures) == (file == "theory.nc")
    assert ("diagnostics" in sections) == (file == "draws.nc")


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_a_sweep_has_a_row_for_every_point(tmp_path):
    """Also for the one that has no results yet."""
    text = (STORED / "recipe.toml").read_text() + '[sweep]\n"network.widths" = [3, 30, 300]\n'
    (tmp_path / "recipe.toml").write_text(text)
    for width in (3, 30):
        stored_run(tmp_path / f"network.widths={width}")
    page = page_of(tmp_path)
    table = page.table("Points")
    assert len(table.rows) == 1 + 3
    assert not any(table.values[3])
    figures = {entry["id"] for entry in page.named("figure")}
    assert {"figure-accuracy_against_width", "figure-order_parameter_against_width"} <= figures
