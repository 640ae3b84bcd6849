"""Sweeps: points done once, failures that stop nothing and count nowhere, growth, arrays."""

import itertools
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock

from sampler.analysis.difference import NOT_TRUSTED
from sampler.errors import ExitCode
from sampler.jobs.sweep import severity
from sampler.runtime import DEVICES
from sampler.settings.recipe import load_recipe
from sampler.storage.result_files import read_draws
from sampler.storage.status import state_of
from tests.commands import TINY_SAMPLED, finish, made_once, settings, start, without_drawing
from tests.commands import in_process as command
from tests.pages import Page

pytestmark = pytest.mark.usefixtures("undrawn")

SEED = "sampler.seed"
GRID = ("network.widths=3,5", f"{SEED}=2,3")
FAILED = ExitCode.DIAGNOSTICS_FAILED
# Draws are too few, and their evidence by importance needs none of them.
RECIPE = f"""{TINY_SAMPLED.replace("draws = 6", "draws = 12")}
space = "order_parameters"
evidence = true
weight_draws = 0
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def swept(recipe, tmp_path_factory) -> Path:
    """The directory of a sweep over widths and seeds."""

    def make(folder: Path) -> int:
        with without_drawing():
            return command("sweep", recipe, "--out", folder / "sweep", "--over", *GRID)

    folder, code = made_once(tmp_path_factory, "sweep_of_four_points", make)
    assert code == FAILED
    return folder / "sweep"


def times_of(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.glob("*/*.nc")}


@pytest.mark.slow
def test_points_are_those_of_run_and_the_dataset_has_their_numbers(swept):
    stored = load_recipe(swept / "recipe.toml")
    assert stored.sweep == {"network.widths": (3, 5), SEED: (2, 3)}
    for label, point in stored.points():
        assert load_recipe(swept / label / "recipe.toml") == point
        assert (swept / label / "report.html").is_file()
        assert not (swept / label / "figures").exists()  # they are drawn when they are asked for
    assert (swept / "figures" / "order_parameter_against_width.png").is_file()
    with xr.open_dataset(swept / "sweep.nc") as dataset:
        for width, seed in itertools.product((3, 5), (2, 3)):
            point = dataset.sel({"network.widths": width, SEED: seed})
            assert point["directory"] == f"network.widths={width},{SEED}={seed}"
            sampled = point.sel(predictor="sampled")
            assert np.isfinite(sampled["value"].sel(quantity="accuracy"))
            with xr.open_dataset(swept / point["directory"].item() / "theory.nc") as theory:
                received = point["order_parameter"].sel(predictor="leading")
                expected = theory["order_parameter"].sel(predictor="leading")
                np.testing.assert_array_equal(received, expected)


@pytest.mark.slow
def test_finished_points_are_left_as_they_are_and_tables_come_back(swept):
    """From the stored recipe: the grid does not depend on the command line."""
    before, csv = times_of(swept), (swept / "sweep.csv").read_bytes()
    for name in ("sweep.csv", "sweep.nc"):
        (swept / name).unlink()
    assert command("sweep", swept / "recipe.toml", "--out", swept) == FAILED
    assert times_of(swept) == before
    assert (swept / "sweep.csv").read_bytes() == csv
    assert (swept / "sweep.nc").is_file()


@pytest.mark.slow
def test_one_point_alone_goes_on_where_it_stands(swept, tmp_path, capsys):
    copy = Path(shutil.copytree(swept, tmp_path / "copy"))
    lost = copy / f"network.widths=5,{SEED}=3"
    shutil.rmtree(lost)
    again = ("sweep", copy / "recipe.toml", "--out", copy, "--point")
    assert command(*again, 3) == FAILED
    with (
        xr.open_dataset(lost / "theory.nc") as received,
        xr.open_dataset(swept / lost.name / "theory.nc") as expected,
    ):
        xr.testing.assert_equal(received, expected)
    assert command(*again, 4) == ExitCode.BAD_INPUT
    assert "--point = " in capsys.readouterr().err


@pytest.mark.slow
def test_every_command_ends_with_the_exit_code_of_what_failed(swept, capsys):
    state = state_of(swept)
    assert state.exit_code == FAILED
    assert {point.exit_code for point in state.points.values()} == {FAILED}
    run = next(iter(state.points.values())).directory
    for words in (["resume", run], ["resume", swept], ["compare", run], ["diagnose", run]):
        assert command(*words) == FAILED
    capsys.readouterr()
    for words in (["status", run], ["status", swept], ["list", swept.parent]):
        assert command(*words) == ExitCode.OK
        printed = " ".join(capsys.readouterr().out.split())
        assert set(re.findall(r"exit code (\d+)", printed)) == {str(int(FAILED))}, words
    for where in (run, swept):
        page = Page((where / "report.html").read_text(encoding="utf-8"))
        classes = [of.get("class", "") for _, of in page.elements]
        assert "verdict bad" in classes
        assert "verdict good" not in classes
        assert str(int(FAILED)) in re.findall(r"exit code (\d+)", page.text)


@pytest.mark.slow
def test_an_evidence_beside_draws_that_fail_is_not_trusted(swept):
    for point in state_of(swept).points.values():
        attributes = read_draws(point.directory)["sample_stats"].attrs
        assert attributes["log_evidence_error"] > 0.0
        assert attributes["log_evidence_method"] == "importance"
        assert attributes["log_evidence_trusted"] == 1
    with xr.open_dataset(swept / "sweep.nc") as table:
        cell = {"quantity": "log_evidence", "predictor": "sampled"}
        assert set(table["state"].sel(cell).values.flat) == {NOT_TRUSTED}


@pytest.mark.slow
def test_a_sweep_grows_in_its_folder(recipe, tmp_path, monkeypatch):
    """With values before and behind those that are there; their points are left as they are."""
    monkeypatch.chdir(tmp_path)
    before: dict[Path, int] = {}
    for widths in ([3], [3, 4], [2, 3, 4]):
        assert command("solve", recipe, *settings(f"sweep.network.widths={widths}")) == ExitCode.OK
        (folder,) = (tmp_path / "runs" / "results").iterdir()
        made = times_of(folder)
        assert made.items() >= before.items()
        assert len(made) == len(widths)
        with xr.open_dataset(folder / "sweep.nc") as dataset:
            assert dataset["network.widths"].values.tolist() == widths
        before = made
    fewer = settings("sweep.network.widths=[2, 4]")
    assert command("solve", recipe, *fewer) == ExitCode.BAD_INPUT
    assert times_of(folder) == before


@pytest.mark.slow
def test_tasks_of_an_array_begin_at_once_in_a_new_directory(recipe, tmp_path):
    """As under PBS, or by xargs: the first makes the directory, and all come to their end.

    However long they wait for each other, as on a slow file system.
    """
    out = tmp_path / "out"
    words = ("sweep", recipe, "--out", out, "--no-figures", "--over", "network.widths=3,4")
    out.mkdir()
    with FileLock(out / "lock"):
        tasks = [start(*words, "--point", point) for point in range(2)]
        time.sleep(8.0)
    ended = [finish(task) for task in tasks]
    assert [code for code, _ in ended] == [FAILED] * 2, ended
    # On as many devices as a sweep in one process.
    manifests = [json.loads(path.read_text()) for path in out.glob("*/manifest.json")]
    assert [manifest["devices"] for manifest in manifests] == [DEVICES] * 2
    # What gathers finds all of them finished, and the directory its own.
    before = times_of(out)
    assert len(before) == 6
    assert command(*words) == FAILED
    assert times_of(out) == before
    assert (out / "sweep.csv").is_file()


@pytest.mark.slow
def test_a_point_that_fails_does_not_stop_the_others(recipe, tmp_path):
    blocked = tmp_path / "sweep" / "network.widths=4"
    blocked.mkdir(parents=True)
    (blocked / "thesis.tex").write_text("mine")
    swept = load_recipe(recipe, ["sweep.network.widths=[4, 5]"])
    (tmp_path / "sweep" / "recipe.toml").write_text(swept.to_toml())
    over = ("--over", "network.widths=4:6")
    assert command("sweep", recipe, "--out", tmp_path / "sweep", *over) == ExitCode.BAD_INPUT
    assert (blocked / "thesis.tex").read_text() == "mine"
    with xr.open_dataset(tmp_path / "sweep" / "sweep.nc") as dataset:
        accuracy = dataset["value"].sel(predictor="leading", quantity="accuracy")
        assert np.isnan(accuracy).values.tolist() == [True, False]


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED], ExitCode.DIAGNOSTICS_FAILED),
        ([ExitCode.INTERNAL_ERROR, ExitCode.REQUEUE], ExitCode.INTERNAL_ERROR),
        ([ExitCode.BAD_INPUT, ExitCode.NOT_CONVERGED], ExitCode.BAD_INPUT),
    ],
)
def test_what_did_not_run_is_worse_than_any_verdict(codes, worst):
    assert max(codes, key=severity) == worst
