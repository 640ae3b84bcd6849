"""Tables of a sweep: places in the grid, points that lack numbers, averages over seeds.

The numbers of points that have all of them are told in tests of the analysis.
"""

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.predictors import along_predictors
from sampler.analysis.sweep_dataset import along_grid, coordinate, gathered, swept_points
from sampler.analysis.sweep_results import SWEEP_FILE, SweepResults, setting_at
from sampler.jobs.sweep import write_sweep
from sampler.presentation.several_runs import points_table
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import point_directory
from sampler.storage.result_files import write_result
from tests import FIXTURES

RECIPE = """
name = "sweep"
[task]
kind = "markov_chain"
[network]
widths = 10
[sweep]
"""


def recipe_with(folder: Path, swept: str):
    (folder / "recipe.toml").write_text(RECIPE + swept)
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
