"""The page of a run or a sweep: one file without scripts, whose numbers are the stored ones."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import xarray as xr

from sampler.errors import InputError
from sampler.presentation.report import write_report
from sampler.storage.result_files import read_comparison, write_result
from tests.commands import in_process as command
from tests.pages import STORED, Page, page_of, stored_run
from tests.shown import numbers_in

VALUES = re.compile(r"[−\d.]+")


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


@pytest.fixture(scope="module")
def comparison(directory) -> dict:
    return json.loads((directory / "comparison.json").read_text())


@pytest.fixture(scope="module")
def elements(directory) -> xr.DataTree:
    return read_comparison(directory)["elements"]


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


def test_the_order_parameter_is_the_stored_one_to_the_digits_of_its_error(page, elements):
    table, stored = page.table("Order parameter U₁"), elements["order_parameter"]
    theory, sampled, mcse = (
        stored["predicted"].sel(predictor="leading").values,
        stored["sampled"].values,
        stored["error"].values,
    )
    pairs = [(i, j) for i in range(len(theory)) for j in range(i, len(theory))]
    for row, values, at in zip(table.rows[1:], table.values[1:], pairs, strict=True):
        assert [float(value) for value in values[1:3]] == [theory[at], sampled[at]]
        shown, error = VALUES.findall(row[2])
        # Two digits of the error, and the value to the same place: half a unit of it is lost.
        unit = 10.0 ** -len(error.partition(".")[2])
        assert abs(float(shown.replace("−", "-")) - sampled[at]) <= 0.5001 * unit
        assert abs(float(error) - mcse[at]) <= 0.5001 * unit


def test_the_mean_of_draws_is_the_number_on_the_page(page, directory):
    """From `draws.nc` by NumPy alone to the cell that shows it."""
    with xr.open_datatree(directory / "draws.nc", engine="h5netcdf") as tree:
        draws = tree["posterior"]["order_parameter"].values
    value = float(page.table("Order parameter U₁").values[1][2])
    assert value == pytest.approx(draws[:, :, 0, 0].mean(), rel=1e-12)


def test_a_page_whose_diagnostics_failed_says_nothing_of_errors_of_the_theory(page, comparison):
    assert comparison["diagnostics"]["verdict"] == "fail"
    assert not any(table.caption.startswith("Relative error") for table in page.tables)


def test_accuracies_and_diagnostics_are_the_stored_ones(page, comparison):
    table, accuracy = page.table("Accuracy, scores and evidence"), comparison["summary"]["accuracy"]
    row = table.values[table.rows.index(table.row("accuracy"))]
    received = sorted(float(value) for value in row[1:] if value)
    assert received == sorted(one["value"] for one in accuracy.values())
    quantities = comparison["diagnostics"]["quantities"].values()
    expected = [{q["r_hat"], int(q["ess_bulk"]), int(q["ess_tail"])} for q in quantities]
    table = page.table("Worst element of every quantity")
    assert [{float(v) for v in row if v is not None} for row in table.values[1:]] == expected
    told = {(one.value, one.unit) for one in numbers_in(page.text)}
    for reason in comparison["diagnostics"]["reasons"]:
        assert {(one.value, one.unit) for one in numbers_in(reason)} <= told


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


# --- in a browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.mark.slow
def test_a_browser_shows_the_mean_of_the_draws(directory):
    """From `draws.nc` by NumPy alone to the cell of the document that a browser has made."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)}")
    page = write_report(directory)[-1].resolve()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    shown = subprocess.run([browser, *options], capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    with xr.open_datatree(directory / "draws.nc", engine="h5netcdf") as tree:
        draws = tree["posterior"]["order_parameter"].values
    table = Page(shown.stdout).table("Order parameter U₁")
    assert float(table.values[1][2]) == pytest.approx(draws[:, :, 0, 0].mean(), rel=1e-12)
    shown_mean = float(VALUES.findall(table.rows[1][2])[0].replace("−", "-"))
    assert shown_mean == pytest.approx(draws[:, :, 0, 0].mean(), rel=0.05)


def test_a_screen_reader_has_texts_headers_and_headings_in_order(page):
    assert page.named("html") == [{"lang": "en"}]
    assert all(entry["alt"].strip() for entry in page.named("img"))
    assert {entry["scope"] for entry in page.named("th")} == {"col", "row"}
    assert all(table.caption for table in page.tables)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))


# --- sweeps


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


@pytest.mark.heavy
def test_the_page_of_a_sweep_has_the_numbers_of_every_point(sweep):
    page = page_of(sweep)
    table = page.table("Points")
    assert len(table.rows) == 1 + 3
    for width, values in zip((3, 30), table.values[1:], strict=False):
        path = sweep / f"network.widths={width}" / "comparison.json"
        entry = json.loads(path.read_text())
        received = {float(value) for value in values if value is not None}
        accuracy = entry["summary"]["accuracy"]
        assert {accuracy[who]["value"] for who in ("leading", "sampled")} <= received
    assert not any(table.values[3])
    figures = {entry["id"] for entry in page.named("figure")}
    assert {"figure-accuracy_against_width", "figure-order_parameter_against_width"} <= figures
    for width in (3, 30):
        shutil.rmtree(sweep / f"network.widths={width}")
    with pytest.raises(InputError):
        write_report(sweep)
