"""Sweeps: the grid of the command line, points done once, failures that stop nothing, tables."""

import itertools
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock

from sampler.errors import ExitCode
from sampler.jobs.sweep import severity
from sampler.runtime import DEVICES
from sampler.settings.recipe import load_recipe
from sampler.settings.toml import parse_over
from tests.commands import TINY_SAMPLED, finish, made_once, settings, start, without_drawing
from tests.commands import in_process as command

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]

SEED = "sampler.seed"
GRID = ("network.widths=3,5", f"{SEED}=2,3")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(f'{TINY_SAMPLED}space = "order_parameters"\n')
    return path


@pytest.fixture(scope="module")
def swept(recipe, tmp_path_factory):
    """A sweep over widths and seeds."""

    def make(folder: Path) -> int:
        with without_drawing():
            return command("sweep", recipe, "--out", folder / "sweep", "--over", *GRID)

    folder, code = made_once(tmp_path_factory, "sweep_of_four_points", make)
    return code, folder / "sweep"


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("network.widths=10,[20, 30, 40]", [10, [20, 30, 40]]),
        ("sampler.seed=7,0:6:2", [7, 0, 2, 4]),
        ("posterior.temperature=1e-2, 0.1", [0.01, 0.1]),
        ("sampler.space=weights,order_parameters", ["weights", "order_parameters"]),
        ('attention.heads=[["good"],["uniform"]],[["random"]]',
         [[["good"], ["uniform"]], [["random"]]]),
        ('task.path="a,b.npz",\'c"[.npz\'', ["a,b.npz", 'c"[.npz']),
    ],
)  # fmt: skip
def test_values_of_a_grid(over, expected):
    assert parse_over(over) == (over.partition("=")[0], expected)


def test_points_are_where_run_puts_them(swept):
    code, directory = swept
    assert code == ExitCode.DIAGNOSTICS_FAILED
    stored = load_recipe(directory / "recipe.toml")
    assert stored.sweep == {"network.widths": (3, 5), SEED: (2, 3)}
    for label, point in stored.points():
        assert load_recipe(directory / label / "recipe.toml") == point
        # Figures are drawn when they are asked for.
        names = {path.name for path in (directory / label).iterdir()}
        assert {"theory.nc", "draws.nc", "report.html"} <= names
        assert "figures" not in names
    assert (directory / "sweep.csv").is_file()
    assert (directory / "figures" / "order_parameter_against_width.png").is_file()


def test_dataset_has_a_dimension_per_key(swept):
    _, directory = swept
    with xr.open_dataset(directory / "sweep.nc") as dataset:
        assert dataset["order_parameter"].dims == (
            "network.widths", SEED, "predictor", "path", "path_"
        )  # fmt: skip
        assert dataset["network.widths"].values.tolist() == [3, 5]
        assert dataset[SEED].values.tolist() == [2, 3]
        assert dataset["width"].sel({"network.widths": 5}).values.tolist() == [5, 5]
        for width, seed in itertools.product((3, 5), (2, 3)):
            point = dataset.sel({"network.widths": width, SEED: seed})
            assert point["directory"] == f"network.widths={width},{SEED}={seed}"
            with xr.open_dataset(directory / point["directory"].item() / "theory.nc") as theory:
                for name in ("leading", "infinite"):
                    value = point["value"].sel(quantity="accuracy", predictor=name)
                    assert value == theory["accuracy"].sel(predictor=name)
                np.testing.assert_array_equal(
                    point["order_parameter"].sel(predictor="leading"),
                    theory["order_parameter"].sel(predictor="leading"),
                )
            sampled = point.sel(predictor="sampled")
            of_accuracy = sampled["value"].sel(quantity="accuracy")
            for values in (sampled["order_parameter"], point["order_parameter_error"], of_accuracy):
                assert np.isfinite(values).all()


def test_finished_points_are_left_as_they_are(swept):
    code, directory = swept
    tables = [directory / "sweep.csv", directory / "sweep.nc"]
    before = {path: path.stat().st_mtime_ns for path in directory.glob("*/*.nc")}
    csv = tables[0].read_bytes()
    for path in tables:
        path.unlink()
    # from the stored recipe: the grid does not depend on the command line
    assert command("sweep", directory / "recipe.toml", "--out", directory) == code
    assert {path: path.stat().st_mtime_ns for path in directory.glob("*/*.nc")} == before
    assert tables[0].read_bytes() == csv
    assert tables[1].is_file()


def test_one_point_alone_goes_on_where_it_stands(swept, tmp_path, capsys):
    _, directory = swept
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    lost = copy / f"network.widths=5,{SEED}=3"
    shutil.rmtree(lost)
    again = ("sweep", copy / "recipe.toml", "--out", copy, "--point")
    assert command(*again, 3) == ExitCode.DIAGNOSTICS_FAILED
    with (
        xr.open_dataset(lost / "theory.nc") as received,
        xr.open_dataset(directory / lost.name / "theory.nc") as expected,
    ):
        xr.testing.assert_equal(received, expected)
    assert command(*again, 1) == ExitCode.DIAGNOSTICS_FAILED
    assert command(*again, 4) == ExitCode.BAD_INPUT
    assert "--point = " in capsys.readouterr().err


def test_a_sweep_grows_in_its_folder(recipe, tmp_path, monkeypatch):
    """With values before and behind those that are there; their points are left as they are."""
    monkeypatch.chdir(tmp_path)
    before: dict[Path, int] = {}
    for widths in ([3], [3, 4], [2, 3, 4]):
        grid = settings(f"sweep.network.widths={widths}", "theory.starts=1")
        assert command("solve", recipe, *grid) == ExitCode.OK
        (folder,) = (tmp_path / "runs" / "results").iterdir()
        made = {path: path.stat().st_mtime_ns for path in folder.glob("*/theory.nc")}
        assert made.items() >= before.items()
        assert len(made) == len(widths)
        with xr.open_dataset(folder / "sweep.nc") as dataset:
            assert dataset["network.widths"].values.tolist() == widths
        before = made
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "lock"}
    fewer = settings("sweep.network.widths=[2, 4]", "theory.starts=1")
    assert command("solve", recipe, *fewer) == ExitCode.BAD_INPUT
    assert files == {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.slow
def test_tasks_of_an_array_begin_at_once_in_a_new_directory(recipe, tmp_path):
    """As under PBS, or by xargs: the first makes the directory, and all come to their end.

    However long they wait for each other, as on a slow file system.
    """
    grid = ("--over", "network.widths=3,4", *settings("theory.starts=1"))
    words = ("sweep", recipe, "--out", tmp_path / "out", "--no-figures", *grid)
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / "lock"):
        tasks = [start(*words, "--point", point) for point in range(2)]
        time.sleep(8.0)
    ended = [finish(task) for task in tasks]
    assert [code for code, _ in ended] == [ExitCode.DIAGNOSTICS_FAILED] * 2, ended
    # On as many devices as a sweep in one process, also where the environment names the platform.
    manifests = [
        json.loads(path.read_text()) for path in (tmp_path / "out").glob("*/manifest.json")
    ]
    assert [manifest["devices"] for manifest in manifests] == [DEVICES] * 2
    # What gathers finds all of them finished, and the directory its own.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/*.nc")}
    assert len(before) == 6
    assert command(*words) == ExitCode.DIAGNOSTICS_FAILED
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (tmp_path / "out" / "sweep.csv").is_file()


def test_a_point_that_fails_does_not_stop_the_others(recipe, tmp_path):
    directory = tmp_path / "sweep"
    blocked = directory / "network.widths=4"
    blocked.mkdir(parents=True)
    (blocked / "thesis.tex").write_text("mine")
    (directory / "recipe.toml").write_text(
        load_recipe(recipe, ["sweep.network.widths=[4, 5, 6]"]).to_toml()
    )
    arguments = ("sweep", recipe, "--out", directory, "--over", "network.widths=4:7")
    assert command(*arguments) == ExitCode.BAD_INPUT
    assert (blocked / "thesis.tex").read_text() == "mine"
    with xr.open_dataset(directory / "sweep.nc") as dataset:
        leading = dataset.sel(predictor="leading")
        accuracy = leading["value"].sel(quantity="accuracy")
        assert np.isnan(accuracy).values.tolist() == [True, False, False]
        solved = np.isfinite(leading["order_parameter"]).all(("path", "path_"))
        assert solved.values.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED], ExitCode.DIAGNOSTICS_FAILED),
        ([ExitCode.INTERNAL_ERROR, ExitCode.REQUEUE], ExitCode.INTERNAL_ERROR),
        ([ExitCode.BAD_INPUT, ExitCode.NOT_CONVERGED], ExitCode.BAD_INPUT),
    ],
)
def test_worst_exit_code(codes, worst):
    assert max(codes, key=severity) == worst
