"""Sweeps: points done once, failures that stop nothing, growth, arrays of tasks, tables."""

import csv
import itertools
import json
import math
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock

from sampler.analysis.difference import NOT_TRUSTED
from sampler.analysis.predictors import along_predictors
from sampler.analysis.sweep_dataset import along_grid, coordinate, gathered, swept_points
from sampler.analysis.sweep_results import SWEEP_FILE, SweepResults, setting_at
from sampler.errors import ExitCode
from sampler.jobs.plan import make_plan
from sampler.jobs.sweep import failures_text, outcomes_of, severity, write_sweep
from sampler.jobs.workers import Assignment, PointOutcome
from sampler.presentation.several_runs import points_table
from sampler.runtime import DEVICES
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import point_directory
from sampler.storage.result_files import read_draws, write_result
from sampler.storage.status import state_of
from tests import FIXTURES
from tests.commands import TINY_SAMPLED, finish, made_once, start, without_drawing
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
    averaged = (swept / "seed_averages.csv").read_text().splitlines()
    assert len(averaged) == 1 + 2, "a row for each width"
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
    assert state_of(tmp_path / "sweep").exit_code is None, "it has not come to its end"
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


def test_ends_of_points_are_counted_with_the_time_that_is_left(
    recipe, tmp_path, monkeypatch, capsys
):
    """One of four was finished earlier; the others take ten, thirty and five seconds."""
    plan = make_plan("run", load_recipe(recipe, over=GRID), tmp_path / "out")
    clock, labels = SimpleNamespace(now=100.0), [point.label for point in plan.points]
    monkeypatch.setattr("sampler.jobs.sweep.time.monotonic", lambda: clock.now)
    finished = {labels[1]: FAILED}
    monkeypatch.setattr("sampler.jobs.sweep.finished_code", lambda one, _: finished.get(one.label))

    def engine(assignment):
        for number, seconds in zip(assignment.points, (10.0, 30.0, 5.0), strict=True):
            clock.now += seconds
            yield number, PointOutcome(ExitCode(0 if number else 1), "" if number else "lost")

    outcomes = dict(outcomes_of(plan, Assignment("run", (0, 1, 2, 3)), engine))
    assert outcomes.keys() == set(labels)
    first, *lines = capsys.readouterr().out.splitlines()
    assert re.findall(r"\d+", first) == ["4", "1"]
    expected = [("2/4", labels[0], "20"), ("3/4", labels[2], "20"), ("4/4", labels[3], None)]
    for line, (count, label, left) in zip(lines, expected, strict=True):
        assert line.startswith(f"{count} {label}: ")
        assert re.findall(r"(\d+) s left", line) == ([left] if left else [])
    first, *lines = failures_text(outcomes).splitlines()
    assert re.findall(r"\d+", first) == ["2", "4"]
    assert [line.split(": ")[0].strip() for line in lines] == [labels[1], labels[0]]
    assert lines[1].endswith("lost")


# --- tables; numbers of points that have all of them are told in tests of the analysis

GRID_RECIPE = """
name = "sweep"
[task]
kind = "markov_chain"
[network]
widths = 10
[sweep]
"""


def recipe_with(folder: Path, swept: str):
    (folder / "recipe.toml").write_text(GRID_RECIPE + swept)
    return load_recipe(folder / "recipe.toml")


def write_theory(directory: Path, accuracy: float) -> None:
    """The leading order, which may have found no saddle point, and infinite width."""
    moments = {name: (("test_example",), np.ones(3))
               for name in ("predictor_mean", "predictor_variance")}  # fmt: skip
    overlap = {"order_parameter": (("path", "path_"), np.eye(2))}
    leading = moments | overlap | {"accuracy": ((), accuracy)}
    table = along_predictors({"leading": leading, "infinite": moments | {"accuracy": ((), 0.8)}})
    table = table.assign_coords(path=["good", "other"], path_=["good", "other"])
    table["participation_ratio"] = ((), 1.5)
    directory.mkdir(parents=True)
    solved = table.assign_attrs(converged=int(not math.isnan(accuracy)))
    write_result(directory, "theory.nc", solved)


def test_points_that_lack_numbers_say_why(tmp_path):
    """One is compared, one is solved alone and without a saddle point, one was never run."""
    recipe = recipe_with(tmp_path, '"network.widths" = [10, [20, 30, 40], 50]')
    compared, solved, _ = (point_directory(tmp_path, label) for label, _ in recipe.points())
    shutil.copytree(FIXTURES / "finished", compared)
    write_theory(solved, math.nan)
    points = swept_points(tmp_path, recipe)
    write_sweep(gathered(tmp_path, recipe, points), recipe, points)
    sweep = SweepResults(tmp_path)
    with (tmp_path / SWEEP_FILE).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["point"] for row in rows] == [label for label, _ in recipe.points()]
    assert [tmp_path / row["directory"] for row in rows[:2]] == [compared, solved]
    assert [row["width"] for row in rows] == ["10", "40", "50"]
    assert (rows[1]["accuracy_leading"], rows[1]["accuracy_infinite"]) == ("", "0.8")
    known = ("point", "directory", "width")
    assert {value for key, value in rows[2].items() if key not in known} == {""}
    assert [point.stored for point in sweep.points] == [True, True, False]
    assert [point.one_width for point in sweep.points] == [10, None, 50]
    states = [str(row[1]) for row in points_table(sweep.points).rows]
    assert states == ["not trusted", "no theory", "not run"]


def test_rows_are_means_over_seeds_with_their_errors(tmp_path):
    """Of the points that have the number; those without a saddle point are counted."""
    recipe = recipe_with(tmp_path, '"network.widths" = [3, 4]\n"task.seed" = [1, 2, 3]')
    found = {(3, 1): 0.9, (3, 2): math.nan, (3, 3): 0.7, (4, 1): 0.6, (4, 2): 0.5, (4, 3): 0.4}
    for label, point in recipe.points():
        accuracy = found[point.network.widths, point.task.seed]
        write_theory(point_directory(tmp_path, label), accuracy)
    rows = gathered(tmp_path, recipe).seed_averages
    assert list(rows["settings"]) == ["network.widths=3", "network.widths=4"]
    assert [list(rows[name]) for name in ("points", "unsolved", "failed")] == [
        [3, 3],
        [1, 0],
        [0, 0],
    ]
    assert list(rows["accuracy_leading"]) == pytest.approx([0.8, 0.5])
    assert list(rows["accuracy_leading_error"]) == pytest.approx([0.1, 0.1 / math.sqrt(3)])
    assert list(rows["accuracy_infinite"]) == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        ["z", "b", 3],
        [3, 1, 2],
        ["good", ["good", "other"], 3],
        [{"kind": "linear"}, {"kind": "softmax"}],
    ],
    ids=str,
)
def test_points_stand_in_the_order_of_the_grid_with_their_values(values, tmp_path):
    """Whatever is swept; a point may lack variables, and labels of an axis."""
    places = [(a, b) for a in range(len(values)) for b in range(2)]
    tables = [
        xr.Dataset({"x": ("letter", [10.0 * a + b])}, {"letter": ["qw"[a % 2]]}) if b else
        xr.Dataset({"y": float(a)})
        for a, b in places
    ]  # fmt: skip
    found = along_grid({"a.key": values, "another.key": (7, 5)}, tables)
    assert found["x"].dims == ("a.key", "another.key", "letter")
    for a, b in places:
        here = found.isel({"a.key": a, "another.key": b})
        known = here["x"].dropna("letter")
        assert known.values.tolist() == ([10.0 * a + b] if b else [])
        assert known["letter"].values.tolist() == (["qw"[a % 2]] if b else [])
        assert np.isnan(here["y"]) if b else here["y"] == a
    # Values are read as they were given.
    xr.Dataset(coords={"a.key": coordinate("a.key", values)}).to_netcdf(tmp_path / "a.nc")
    axis = xr.load_dataset(tmp_path / "a.nc")["a.key"]
    assert [setting_at(axis, place) for place in range(len(values))] == values
