"""Tables of a sweep: one row per point, means and errors over seeds."""

import csv
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sampler.analysis.comparison import NUMBERS
from sampler.analysis.estimates import Estimate
from sampler.analysis.predictors import along_predictors
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_dataset import along_grid, coordinate, gathered, swept_points
from sampler.analysis.sweep_results import (
    SWEEP_FILE,
    SweepResults,
    seed_averages,
    setting_at,
)
from sampler.jobs.sweep import write_sweep
from sampler.presentation.several_runs import points_table
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import point_directory
from sampler.storage.result_files import write_result
from tests import FIXTURES
from tests.held import comparison_of

RECIPE = """
name = "sweep"
[task]
kind = "markov_chain"
[network]
widths = 10
[sweep]
"network.widths" = [10, [20, 30, 40], 50]
"""

SEEDS = """[sweep]
"network.widths" = [3, 4]
"task.seed" = [1, 2, 3]
"""


def theory(accuracy, limit, further=None):
    """A table of the leading order, of others as far as they are given, and of infinite width."""
    moments = {name: (("test_example",), np.ones(3))
               for name in ("predictor_mean", "predictor_variance")}  # fmt: skip
    leading = moments | {"accuracy": ((), accuracy), "order_parameter": (AXES, np.eye(2))}
    predictions = {"leading": leading, **(further or {})}
    table = along_predictors(predictions | {"infinite": moments | {"accuracy": ((), limit)}})
    table["participation_ratio"] = ((), 1.5)
    return table.assign_coords(path=["good", "other"], path_=["good", "other"])


AXES = ("path", "path_")
NEXT = {"log_evidence": ((), -5.0), "order_parameter": (AXES, np.eye(2) + 0.25)}


def write_comparison(directory, sampled, predictions=None):
    """Store a comparison of these samples and predictions."""
    comparison = comparison_of(sampled, predictions or {}, names=("good", "other"))
    write_result(directory, "comparison.nc", comparison.tree)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return load_recipe(path)


def store(directory, recipe) -> SweepResults:
    """Gather a sweep and write what it stores."""
    points = swept_points(directory, recipe)
    sweep = gathered(directory, recipe, points)
    write_sweep(sweep, recipe, points)
    return sweep


def rows_of(directory):
    with (directory / SWEEP_FILE).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_rows_follow_the_points_and_missing_numbers_are_empty(recipe, tmp_path):
    (narrow, _), (wide, _), (untouched, _) = recipe.points()
    for label in (narrow, wide):
        point_directory(tmp_path, label).mkdir()
    write_result(point_directory(tmp_path, narrow), "theory.nc", theory(0.96, 0.82))
    solved = theory(np.nan, 0.83, further={"next": NEXT}).assign_attrs(next_order_status="large")
    write_result(point_directory(tmp_path, wide), "theory.nc", solved)
    sampled = {"accuracy": Estimate(0.97, 0.001, test_error=0.005)}
    predictions = {"leading": {"accuracy": 0.96}, "infinite": {"accuracy": 0.82}}
    write_comparison(point_directory(tmp_path, narrow), sampled, predictions)
    alone = {"predictor_mean": Estimate(np.ones(2), np.ones(2))}
    write_comparison(point_directory(tmp_path, wide), alone)
    sweep = store(tmp_path, recipe)
    first, second, third = rows_of(tmp_path)
    assert tuple(first)[:3] == ("point", "directory", "width")
    assert [row["point"] for row in (first, second, third)] == [narrow, wide, untouched]
    assert [row["width"] for row in (first, second, third)] == ["10", "40", "50"]
    assert (tmp_path / first["directory"]) == point_directory(tmp_path, narrow)
    assert (first["accuracy_leading"], first["accuracy_infinite"]) == ("0.96", "0.82")
    assert first["accuracy_sampled"] == "0.97"
    assert first["accuracy_sampled_error"] == "0.001"
    assert first["accuracy_sampled_test_error"] == "0.005"
    assert first["sampled_space"] == recipe.sampler.space
    assert (second["accuracy_leading"], second["accuracy_infinite"]) == ("", "0.83")
    assert (second["accuracy_sampled"], second["sampled_space"]) == ("", recipe.sampler.space)
    known = ("point", "directory", "width")
    assert {value for key, value in third.items() if key not in known} == {""}
    # The next order has its columns where a point has it.
    for name, value in {"log_evidence_next": "-5.0", "next_order_status": "large"}.items():
        assert (first[name], second[name]) == ("", value)
    received = sweep.dataset["order_parameter"].sel(predictor="next").values
    np.testing.assert_array_equal(received[1], np.eye(2) + 0.25)
    assert np.isnan(received[[0, 2]]).all()
    assert [point.stored for point in SweepResults(tmp_path).points] == [True, True, False]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([True, False], [True, False]),
        (["good", ["good", "other"], 3], ["good", '["good", "other"]', "3"]),
        ([{"kind": "linear"}, {"kind": "softmax"}], ['{kind = "linear"}', '{kind = "softmax"}']),
    ],
)
def test_the_values_of_a_swept_setting_are_read_as_they_were_given(values, labels, tmp_path):
    xr.Dataset(coords={"key": coordinate("key", values)}).to_netcdf(tmp_path / "a.nc")
    axis = xr.load_dataset(tmp_path / "a.nc")["key"]
    assert list(axis.values) == labels
    assert [setting_at(axis, place) for place in range(len(values))] == values


@pytest.mark.parametrize(
    "values",
    [(True, False), ("z", "b", 3), (3, 1, 2), (1,), ([1, 2], [0]), (2.5, 1)],
    ids=str,
)
def test_points_stand_in_the_order_of_the_grid(values):
    """Whatever is swept; a point may lack variables, and labels of an axis."""
    places = [(a, b) for a in range(len(values)) for b in range(2)]
    tables = [
        xr.Dataset({"x": ("letter", [10.0 * a + b])}, {"letter": ["qw"[a % 2]]}) if b else
        xr.Dataset({"y": float(a)})
        for a, b in places
    ]  # fmt: skip
    found = along_grid({"a.key": values, "another.key": (7, 5)}, tables)
    assert found["x"].dims == ("a.key", "another.key", "letter")
    assert [setting_at(found["a.key"], at) for at in range(len(values))] == list(values)
    for a, b in places:
        here = found.isel({"a.key": a, "another.key": b})
        known = here["x"].dropna("letter")
        assert known.values.tolist() == ([10.0 * a + b] if b else [])
        assert known["letter"].values.tolist() == (["qw"[a % 2]] if b else [])
        assert np.isnan(here["y"]) if b else here["y"] == a


def test_a_cell_without_a_number_says_why(recipe, tmp_path):
    """Of four points two are compared, one is solved alone, and one was never run."""
    path = tmp_path / "four.toml"
    path.write_text(RECIPE.replace("[10, [20, 30, 40], 50]", "[10, 20, 30, 40]"))
    recipe = load_recipe(path)
    for place, (label, _) in enumerate(recipe.points()[:3]):
        directory = point_directory(tmp_path, label)
        if place < 2:
            shutil.copytree(FIXTURES / "finished", directory)
        else:
            directory.mkdir()
            write_result(directory, "theory.nc", theory(0.9, 0.8))
    table = points_table(store(tmp_path, recipe).points)
    columns = [column.header for column in table.columns]
    at = columns.index("U₁ relative error ± MCSE")
    assert at == 1
    assert [str(row[at]) for row in table.rows] == [
        "not trusted", "not trusted", "not sampled", "not run"
    ]  # fmt: skip


def test_differences_are_those_of_the_points(recipe, tmp_path):
    label, _ = recipe.points()[1]
    shutil.copytree(FIXTURES / "finished", point_directory(tmp_path, label))
    sweep = store(tmp_path, recipe)
    comparison = RunResults(point_directory(tmp_path, label)).comparison
    for found in (sweep, SweepResults(tmp_path)):
        first, second, _ = found.points
        for (quantity, who), row in comparison.table().iterrows():
            received = second.cells[quantity, who]
            for name in (*NUMBERS, "state", "unit"):
                np.testing.assert_array_equal(received[name], row[name])
        assert first.compared("order_parameter") is None
        assert second.compared("order_parameter") is not None
        assert (first.one_width, second.one_width) == (10, None)


def test_rows_are_means_over_seeds_with_their_errors():
    points = [
        {"network.widths": width, "task.seed": seed, "sampler.seed": other}
        for width in (3, 4)
        for seed in (0, 1)
        for other in (0, 1)
    ]
    values = np.array([1.0, 2.0, 3.0, np.nan, 5.0, 5.0, 5.0, 5.0])
    table = pd.DataFrame({"accuracy": values, "accuracy_gp": math.nan})
    rows = seed_averages(table, points)
    assert list(rows["settings"]) == ["network.widths=3", "network.widths=4"]
    assert list(rows["points"]) == [4, 4]
    assert rows["accuracy"][0] == 2.0
    assert math.isclose(rows["accuracy_error"][0], 1 / math.sqrt(3))
    assert rows["accuracy_error"][1] == 0.0
    assert np.isnan(rows.loc[0, ["accuracy_gp", "accuracy_gp_error"]].astype(float)).all()


def test_averages_count_the_points_without_a_saddle_point(tmp_path):
    """Widths in a row, seeds in another: a mean over the points that have the number."""
    path = tmp_path / "seeds.toml"
    path.write_text(RECIPE.partition("[sweep]")[0] + SEEDS)
    recipe, out = load_recipe(path), tmp_path / "results"
    found = {(3, 1): 0.9, (3, 2): math.nan, (3, 3): 0.7, (4, 1): 0.6, (4, 2): 0.5, (4, 3): 0.4}
    for (label, point), accuracy in zip(recipe.points(), found.values(), strict=True):
        assert (point.network.widths, point.task.seed) in found
        directory = point_directory(out, label)
        directory.mkdir(parents=True)
        table = theory(accuracy, 0.8).assign_attrs(converged=int(not math.isnan(accuracy)))
        write_result(directory, "theory.nc", table)
    sweep = gathered(out, recipe)
    assert list(sweep.table["saddle_point"] == "converged") == [True, False, *[True] * 4]
    rows = sweep.seed_averages
    assert list(rows["points"]) == [3, 3]
    assert list(rows["unsolved"]) == [1, 0]
    assert list(rows["failed"]) == [0, 0]
    assert list(rows["accuracy_leading"]) == pytest.approx([0.8, 0.5])
    assert list(rows["accuracy_infinite"]) == pytest.approx([0.8, 0.8])
