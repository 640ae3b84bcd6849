"""The page of a run or a sweep: what it says is what is stored, and it stands on its own."""

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.difference import difference_of
from sampler.analysis.estimate import Estimate
from sampler.analysis.text import NO_BREAK
from sampler.errors import InputError
from sampler.presentation.report.write import write_report
from sampler.storage.results import to_json
from tests.commands import in_process as command
from tests.pages import STORED, Page, page_of, stored_run

VALUES = re.compile(r"[−\d.]+")


@pytest.fixture
def without_figures(monkeypatch):
    """Drawing them takes most of the time, and most tests look at none."""
    monkeypatch.setattr("sampler.presentation.report.write.draw_figures", lambda *_, **__: [])


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return stored_run(tmp_path_factory.mktemp("results") / "run")


@pytest.fixture(scope="module")
def page(directory) -> Page:
    return page_of(directory)


@pytest.fixture(scope="module")
def comparison(directory) -> dict:
    return json.loads((directory / "comparison.json").read_text())


def test_the_page_stands_on_its_own(page, directory):
    assert not page.named("script")
    pictures = page.named("img")
    assert {entry["src"].partition(",")[0] for entry in pictures} == {"data:image/png;base64"}
    assert all(entry["href"].startswith("data:") for entry in page.named("link"))
    assert "url(" not in (directory / "report.html").read_text().split("</style>")[0]
    assert (directory / "report.html").stat().st_size < 2e6


def test_every_picture_says_what_it_compares(page, directory):
    drawn = {path.stem for path in (directory / "figures").glob("*.png")}
    figures = {entry["id"].removeprefix("figure-") for entry in page.named("figure")}
    assert figures == drawn >= {"accuracy", "ess_evolution", "autocorrelation", "energy"}
    alternatives = [entry["alt"] for entry in page.named("img")]
    assert len(alternatives) == len(drawn)
    assert len(set(alternatives)) == len(drawn)
    assert min(map(len, alternatives)) > 40


def test_landmarks_and_headings_lead_through_the_page(page):
    assert page.named("html")[0]["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(page.named(landmark)) == 1, landmark
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    targets = {entry["href"][1:] for entry in page.named("a") if entry["href"].startswith("#")}
    assert targets <= set(identities)


def test_every_table_has_a_caption_and_every_heading_a_scope(page):
    assert page.tables
    assert all(table.caption for table in page.tables)
    assert {entry["scope"] for entry in page.named("th")} == {"row", "col"}
    for table in page.tables:
        assert len({len(row) for row in table.rows}) == 1, table.caption


def test_the_order_parameter_is_the_stored_one_to_the_digits_of_its_error(page, comparison):
    table = page.table("Order parameter U₁")
    stored = comparison["order_parameter"]
    paths = xr.load_dataset(STORED / "theory.nc", engine="h5netcdf")["path"].values
    pairs = [(i, j) for i in range(len(paths)) for j in range(i, len(paths))]
    assert len(table.rows) == 1 + len(pairs)
    for row, values, (i, j) in zip(table.rows[1:], table.values[1:], pairs, strict=True):
        expected = [stored[key][i][j] for key in ("theory", "sampled")]
        assert [float(value) for value in values[1:3]] == expected
        name = paths[i] if i == j else f"{paths[i]} × {paths[j]}"
        assert row[0] == name
        shown, error = VALUES.findall(row[2])
        # Two digits of the error, and the value to the same place: half a unit of it is lost.
        unit = 10.0 ** -len(error.partition(".")[2])
        assert abs(float(shown.replace("−", "-")) - stored["sampled"][i][j]) <= 0.5001 * unit
        assert abs(float(error) - stored["mcse"][i][j]) <= 0.5001 * unit
        assert len(error.replace(".", "").lstrip("0")) == 2


def test_accuracies_are_the_stored_ones(page, comparison):
    table = page.table("At a glance")
    named = {row[0]: values for row, values in zip(table.rows, table.values, strict=True)}
    accuracy = comparison["accuracy"]
    expected = {
        "leading order": accuracy["theory"],
        "infinite width": accuracy["gp"],
        "exact posterior": accuracy["sampled"]["value"],
    }
    received = {name: float(named[name][1]) for name in expected}
    assert received == expected


def test_diagnostics_are_the_stored_ones_and_their_failure_leads_the_page(page, comparison):
    table = page.table("Worst element of every quantity")
    quantities = comparison["diagnostics"]["quantities"]
    expected = [[q["r_hat"], int(q["ess_bulk"]), int(q["ess_tail"])] for q in quantities.values()]
    received = [[float(v[1]), int(v[3]), int(v[4])] for v in table.values[1:]]
    assert received == expected
    assert {row[5] for row in table.rows[1:]} == {"misses a limit"}
    assert "No conclusion about the theory" in page.text
    assert "The samples cannot be trusted" in page.text
    for reason in comparison["diagnostics"]["reasons"]:
        assert reason in page.text


def test_recipe_and_provenance_are_there(page, directory):
    assert (directory / "recipe.toml").read_text() in page.text
    manifest = json.loads((STORED / "manifest.json").read_text())
    versions = {row[0]: row[1] for row in page.table("Versions").rows[1:]}
    assert versions == {k: v or "not installed" for k, v in manifest["versions"].items()}
    assert manifest["recipe_hash"] in page.text


@pytest.mark.usefixtures("without_figures")
def test_names_of_paths_are_text_and_not_markup(tmp_path):
    directory = stored_run(tmp_path / "run")
    theory = xr.load_dataset(directory / "theory.nc", engine="h5netcdf")
    names = ["<script>alert(1)</script>", 'good & "bad"'][: theory.sizes["path"]]
    theory = theory.assign_coords(path=names, path_=names)
    theory.to_netcdf(directory / "theory.nc", engine="h5netcdf")
    (directory / "draws.nc").unlink()
    page = page_of(directory)
    assert not page.named("script")
    assert page.table("Order parameter U₁").row(names[0])


@pytest.mark.usefixtures("without_figures")
def test_theory_alone_claims_nothing_about_samples(tmp_path):
    page = page_of(stored_run(tmp_path / "run", "recipe.toml", "theory.nc"))
    assert "Theory only: nothing was sampled" in page.text
    assert "Diagnostics of the samples" not in page.text
    assert 'xarray.open_dataset("theory.nc")' in page.text


@pytest.mark.usefixtures("undrawn")
def test_samples_alone_claim_nothing_about_the_theory(tmp_path):
    page = page_of(stored_run(tmp_path / "run", "recipe.toml", "draws.nc"))
    assert "no theory in this directory" in page.text
    assert "not judged yet" in page.text
    figures = {entry["id"] for entry in page.named("figure")}
    assert "figure-autocorrelation" in figures
    assert "figure-order_parameter" not in figures


@pytest.mark.usefixtures("without_figures")
def test_an_unfinished_run_says_so(tmp_path):
    directory = stored_run(tmp_path / "run", "recipe.toml", "theory.nc")
    begun = {
        "schema_version": 5,
        "command": "run",
        "finished": {},
        "seconds": {"solve": 1.5},
    }
    (directory / "manifest.json").write_text(json.dumps(begun))
    assert f"Not finished: run interrupted; go on with: resume {directory}" in (
        page_of(directory).text
    )
    (directory / "manifest.json").write_text(json.dumps(begun | {"finished": {"run": 0}}))
    assert "Not finished" not in page_of(directory).text


@pytest.mark.parametrize("files", [(), ("recipe.toml",)], ids=["no directory", "no results"])
def test_nothing_to_tell_is_one_line(files, tmp_path, capsys):
    directory = tmp_path / "run"
    if files:
        stored_run(directory, *files)
    assert command("report", directory) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert str(directory) in message
    assert not (directory / "report.html").exists()


@pytest.mark.usefixtures("without_figures")
def test_quality_of_the_predictive_distribution_is_shown_where_it_is_stored(tmp_path):
    directory = stored_run(tmp_path / "run", "recipe.toml", "theory.nc", "comparison.json")
    comparison = json.loads((directory / "comparison.json").read_text())
    bins = {"low": 0.5, "high": 0.6, "count": 7, "mean_probability": 0.55, "fraction": 0.5}
    comparison["predictive_quality"] = {
        "theory": {
            "log_predictive_density": {"value": -0.71234, "error": 0.0321},
            "reliability": [bins | {"error": 0.19}],
        },
        "gp": {"expected_calibration_error": {"value": 0.0456, "error": 0.0123}},
        "sampled": {
            "log_predictive_density": {"value": -0.70001, "error": 0.0333, "mcse": 0.00123},
            "predictive": "mixture",
        },
    }
    (directory / "comparison.json").write_text(json.dumps(comparison))
    page = page_of(directory)
    table = page.table("Accuracy, scores and evidence")
    shown = dict(zip(table.rows[0], table.row("log predictive density"), strict=True))
    assert shown["leading order"] == "−0.7123"
    assert shown["exact posterior"] == "−0.7000 ± 0.0012"
    assert shown["test set error"] == "0.033"
    assert page.table("Reliability, leading order").rows[1] == [
        "0.50 to 0.60", "7", f"55.0{NO_BREAK}%", f"50 ± 19{NO_BREAK}%",
    ]  # fmt: skip


@pytest.fixture
def sweep(tmp_path) -> Path:
    """A sweep of three widths, the last of which has no results yet."""
    directory = tmp_path / "sweep"
    directory.mkdir()
    text = (STORED / "recipe.toml").read_text() + '[sweep]\n"network.widths" = [3, 30, 300]\n'
    (directory / "recipe.toml").write_text(text)
    for width, scale in ((3, 1.0), (30, 0.1)):
        point = stored_run(directory / f"network.widths={width}")
        comparison = json.loads((point / "comparison.json").read_text())
        comparison["diagnostics"] |= {"verdict": "pass", "reasons": []}
        for name in ("order_parameter", "predictor_mean"):
            table = comparison[name]
            theory = np.array(table["theory"])
            gap = scale * (np.array(table["sampled"]) - theory)
            mcse = 1e-3 * np.array(table["mcse"])
            comparison[name] = table | {"sampled": (theory + gap).tolist(), "mcse": mcse.tolist()}
        (point / "comparison.json").write_text(json.dumps(with_differences(comparison)))
    return directory


def with_differences(comparison: dict) -> dict:
    """The same with the differences of U_1 and of the predictor mean as a whole."""
    found = {}
    for name in ("order_parameter", "predictor_mean"):
        theory, *sampled = (
            np.array(comparison[name][key]) for key in ("theory", "sampled", "mcse")
        )
        found[name] = to_json(difference_of(name, theory, Estimate(*sampled, None, 39)))
    return comparison | {"differences": found}


@pytest.mark.heavy
def test_a_sweep_tells_the_trend_and_every_point(sweep):
    page = page_of(sweep)
    assert "differ less in U₁ the larger the width" in page.text
    assert "2 of 3 points have results" in page.text
    table = page.table("Points.")
    labels = [f"network.widths={width}" for width in (3, 30, 300)]
    assert [row[0] for row in table.rows[1:]] == labels
    for label, values in zip(labels[:2], table.values[1:], strict=False):
        entry = json.loads((sweep / label / "comparison.json").read_text())
        assert float(values[1]) == entry["accuracy"]["theory"]
        assert float(values[4]) == entry["differences"]["order_parameter"]["value"]
    assert table.row(labels[2])[-2:] == ["not sampled", "not begun"]
    assert {"figure-accuracy_against_width", "figure-order_parameter_against_width"} <= {
        entry["id"] for entry in page.named("figure")
    }
    assert len(page.named("img")) == len([entry for entry in page.named("img") if entry["alt"]])


@pytest.mark.heavy
def test_a_trend_that_the_samples_do_not_resolve_is_none(sweep):
    for file in sweep.glob("*/comparison.json"):
        comparison = json.loads(file.read_text())
        for name in ("order_parameter", "predictor_mean"):
            large = 1e3 * np.array(comparison[name]["mcse"])
            comparison[name]["mcse"] = large.tolist()
        file.write_text(json.dumps(with_differences(comparison)))
    assert (
        "The draws cannot tell whether theory and exact posterior differ less"
        in page_of(sweep).text
    )


@pytest.mark.heavy
def test_a_sweep_that_was_not_gathered_is_drawn_and_one_without_results_is_refused(sweep):
    page_of(sweep)
    assert (sweep / "figures" / "accuracy_against_width.png").is_file()
    for width in (3, 30):
        shutil.rmtree(sweep / f"network.widths={width}")
    with pytest.raises(InputError, match="no point of this sweep has results"):
        write_report(sweep)
