"""Tables of a sweep: one row per point, means and errors over seeds, power laws."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.difference import difference_of
from sampler.analysis.estimates import Estimate
from sampler.analysis.sweep_dataset import coordinate, gathered, order_parameters, swept_points
from sampler.analysis.sweeps import (
    COLUMNS,
    FINITE_SIZE_FILE,
    SWEEP_FILE,
    PointSummary,
    SweepResults,
    by_width,
    power_laws,
    seed_averages,
    setting_at,
)
from sampler.errors import ExitCode
from sampler.jobs.sweep import write_sweep
from sampler.recipes.recipe import load_recipe
from sampler.storage.results import to_json, write_result
from sampler.storage.run_directory import point_directory, read_json, write_json
from tests.commands import TINY, in_process, settings

RECIPE = """
name = "sweep"
[task]
kind = "markov_chain"
[network]
widths = 10
[sweep]
"network.widths" = [10, [20, 30, 40], 50]
"""


def theory(accuracy, gp, equal_diagonal, labelled=True):
    columns = {
        "accuracy_theory": accuracy,
        "accuracy_gp": gp,
        "accuracy_diagonal_only": accuracy - 0.1,
        "accuracy_equal_diagonal": equal_diagonal,
    }
    table = xr.Dataset({name: ((), value) for name, value in columns.items()})
    table["order_parameter"] = (("path", "path_"), np.eye(2))
    for name in ("predictor_mean", "predictor_variance"):
        table[name] = (("test_example",), np.ones(3))
    if labelled:
        table["accuracy_gp_subnetwork"] = (("subnetwork",), [0.9, 0.95])
        table = table.assign_coords(subnetwork=["good", "good + denoising"])
    return table


def write_comparison(directory, content):
    """Store a comparison that has these parts and a verdict."""
    verdict = {"tone": "neutral", "headline": "Nothing was compared.", "reasons": []}
    write_json(directory / "comparison.json", {"verdict": verdict} | content)


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
    write_result(point_directory(tmp_path, narrow), "theory.nc", theory(0.96, 0.82, np.nan))
    write_result(point_directory(tmp_path, wide), "theory.nc", theory(np.nan, 0.83, 0.5))
    sampled = {"value": 0.97, "mcse": 0.001, "binomial_error": 0.005}
    comparison = point_directory(tmp_path, narrow)
    write_comparison(comparison, {"accuracy": {"theory": 0.96, "gp": 0.82, "sampled": sampled}})
    store(tmp_path, recipe)
    first, second, third = rows_of(tmp_path)
    assert tuple(first)[: len(COLUMNS)] == COLUMNS
    assert [row["point"] for row in (first, second, third)] == [narrow, wide, untouched]
    assert [row["width"] for row in (first, second, third)] == ["10", "40", "50"]
    assert (tmp_path / first["directory"]) == point_directory(tmp_path, narrow)
    assert (first["accuracy_theory"], first["accuracy_gp"]) == ("0.96", "0.82")
    assert first["accuracy_equal_diagonal"] == ""
    assert first["accuracy_sampled"] == "0.97"
    assert first["accuracy_sampled_mcse"] == "0.001"
    assert first["accuracy_sampled_binomial"] == "0.005"
    assert first["sampled_space"] == recipe.sampler.space
    assert first["gp:good + denoising"] == "0.95"
    assert (second["accuracy_theory"], second["accuracy_gp"]) == ("", "0.83")
    assert second["accuracy_sampled"] == second["sampled_space"] == ""
    assert {
        value for key, value in third.items() if key not in ("point", "directory", "width")
    } == {""}


def with_next_order(table, status="fine"):
    """The same, to next order with numbers of their own."""
    for name, value in (("accuracy", 0.97), ("log_evidence", -5.0), ("validation_accuracy", 0.75)):
        table[f"{name}_next_order"] = ((), value)
    table["order_parameter_next_order"] = table["order_parameter"] + 0.25
    return table.assign_attrs(next_order_status=status)


def test_the_next_order_has_its_columns_where_a_point_has_it(recipe, tmp_path):
    (narrow, _), (wide, _), _ = recipe.points()
    for label in (narrow, wide):
        point_directory(tmp_path, label).mkdir()
    write_result(point_directory(tmp_path, narrow), "theory.nc", theory(0.96, 0.82, np.nan))
    store(tmp_path, recipe)
    assert not [name for name in rows_of(tmp_path)[0] if "next_order" in name]
    write_result(
        point_directory(tmp_path, wide),
        "theory.nc",
        with_next_order(theory(0.9, 0.8, 0.7), "large"),
    )
    store(tmp_path, recipe)
    expected = {
        "accuracy_next_order": "0.97",
        "log_evidence_next_order": "-5.0",
        "validation_accuracy_next_order": "0.75",
        "next_order_status": "large",
    }
    first, second, _ = rows_of(tmp_path)
    assert {name: second[name] for name in expected} == expected
    assert {first[name] for name in expected} == {""}
    points = swept_points(tmp_path, recipe)
    _, tables = order_parameters([point.run for point in points])
    received = tables["order_parameter_next_order"]
    np.testing.assert_array_equal(received[1], np.eye(2) + 0.25)
    assert np.isnan(received[[0, 2]]).all()
    _, tables = order_parameters([points[0].run])
    assert set(tables) == {f"order_parameter_{part}" for part in ("theory", "sampled", "mcse")}


def test_a_sampled_point_without_labels_has_no_accuracy(recipe, tmp_path):
    label, _ = recipe.points()[0]
    point_directory(tmp_path, label).mkdir()
    write_comparison(
        point_directory(tmp_path, label),
        {"accuracy": {"theory": None, "gp": None, "sampled": None}},
    )
    store(tmp_path, recipe)
    row = rows_of(tmp_path)[0]
    assert row["accuracy_sampled"] == ""
    assert row["sampled_space"] == recipe.sampler.space


def test_sampling_alone_has_no_comparison_with_a_theory(recipe, tmp_path):
    label, _ = recipe.points()[0]
    point_directory(tmp_path, label).mkdir()
    write_comparison(point_directory(tmp_path, label), {"diagnostics": {}})
    store(tmp_path, recipe)
    assert rows_of(tmp_path)[0]["accuracy_sampled"] == ""


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1, 2.5], [1, 2.5]),
        ([True, False], [True, False]),
        (["a", "b"], ["a", "b"]),
        ([10, [20, 30]], ["10", "[20, 30]"]),
        (["good", ["good", "other"], 3], ["good", '["good", "other"]', "3"]),
        ([{"kind": "linear"}, {"kind": "softmax"}], ['{kind = "linear"}', '{kind = "softmax"}']),
    ],
)
def test_the_values_of_a_swept_setting_are_read_as_they_were_given(values, labels, tmp_path):
    xr.Dataset(coords={"key": coordinate("key", values)}).to_netcdf(tmp_path / "a.nc")
    axis = xr.load_dataset(tmp_path / "a.nc")["key"]
    assert list(axis.values) == labels
    assert [setting_at(axis, place) for place in range(len(values))] == values


def test_differences_are_read_as_they_were_found(recipe, tmp_path):
    label, _ = recipe.points()[1]
    point_directory(tmp_path, label).mkdir()
    sampled = Estimate(np.full(3, 1.5), np.full(3, 0.01), None, 39)
    expected = {
        "order_parameter": difference_of("predictor_mean", np.arange(3.0), sampled),
        "accuracy": difference_of("accuracy", np.float64(1.0), sampled, unit="points"),
    }
    write_comparison(point_directory(tmp_path, label), {"differences": to_json(expected)})
    sweep = store(tmp_path, recipe)
    for found in (sweep, SweepResults(tmp_path)):
        first, second, _ = found.points
        assert second.differences == expected
        assert first.differences == {}
        assert (first.one_width, second.one_width) == (10, None)


def compared(rng) -> dict:
    """What a comparison has of U_1."""
    return {part: rng.uniform(1.0, 2.0, (2, 2)).tolist() for part in ("theory", "sampled", "mcse")}


def test_by_width_has_theory_less_sampled_in_the_order_of_the_widths(rng):
    found = {width: compared(rng) | {"trusted": width != 20} for width in (100, 5, 20)}
    received = by_width(found)
    assert received["widths"] == [5, 20, 100]
    assert received["trusted"] == [True, False, True]
    for place, width in enumerate(received["widths"]):
        one = {part: np.array(values) for part, values in found[width].items()}
        np.testing.assert_array_equal(received["order_parameter"][place], one["sampled"])
        np.testing.assert_array_equal(received["mcse"][place], one["mcse"])
        np.testing.assert_array_equal(received["difference"][place], one["theory"] - one["sampled"])
    assert np.all(received["difference"] != 0.0)


def test_points_that_failed_have_no_part_in_a_power_law():
    """Their differences would bend the fit."""
    widths, mcse = (10, 30, 100, 300, 1000), np.full((1, 1), 1e-6)
    found = {
        width: {
            "theory": np.full((1, 1), 1.0),
            "sampled": np.full((1, 1), 1.0 - (1.0 / width if width != 300 else 7.0)),
            "mcse": mcse,
            "trusted": width != 300,
        }
        for width in widths
    }
    (law,) = power_laws(by_width(found), ["path"])
    assert law["widths"] == (30, 100, 1000)
    assert law["slope"] == pytest.approx(-1.0, abs=1e-4)
    assert law["prefactor"] == pytest.approx(1.0, abs=1e-3)


def test_the_law_of_the_next_order_is_of_points_where_the_expansion_holds():
    widths = (10, 30, 100, 300, 1000)
    found = {
        width: {
            "theory": np.full((1, 1), 1.0 + 1.0 / width),
            "next_order": np.full((1, 1), 1.0 + (100.0 / width**2 if width != 300 else 7.0)),
            "sampled": np.ones((1, 1)),
            "mcse": np.full((1, 1), 1e-7),
            "trusted": True,
            "fine": width != 300,
        }
        for width in widths
    }
    exact = by_width(found)
    (leading,), (law,) = (power_laws(exact, ["path"], order) for order in ("", "_next_order"))
    assert law["widths"] == (30, 100, 1000)
    assert law["slope"] == pytest.approx(-2.0, abs=1e-4)
    assert leading["widths"] == (30, 100, 300, 1000)
    assert leading["slope"] == pytest.approx(-1.0, abs=1e-4)


def test_the_finite_size_table_has_both_orders(tmp_path):
    """The next order is not known at the smallest width, and too large at the next one."""
    path = tmp_path / "recipe.toml"
    widths = (10, 30, 40, 50, 60)
    path.write_text(RECIPE.replace("[10, [20, 30, 40], 50]", str(list(widths))))
    recipe = load_recipe(path, ["sampler.space=order_parameters"])
    for label, point in recipe.points():
        directory = point_directory(tmp_path, label)
        directory.mkdir()
        width = point.network.widths
        solved = theory(0.9, 0.8, np.nan)
        solved = solved.assign_coords(path=["good", "other"], path_=["good", "other"])
        compared = {
            "theory": np.eye(2).tolist(),
            "sampled": (np.eye(2) + 1.0 / width).tolist(),
            "mcse": np.full((2, 2), 1e-6).tolist(),
        }
        if width > 10:
            beyond = np.eye(2) + 1.0 / width - 1.0 / width**2
            compared["next_order"] = beyond.tolist()
            solved = with_next_order(solved, "large" if width == 30 else "fine")
            solved["order_parameter_next_order"] = (("path", "path_"), beyond)
        write_result(directory, "theory.nc", solved)
        diagnostics = {"verdict": "pass"}
        content = {"order_parameter": compared, "diagnostics": diagnostics}
        write_comparison(directory, content)
    store(tmp_path, recipe)
    content = read_json(tmp_path / FINITE_SIZE_FILE)
    beyond = content["theory"]["order_parameter_next_order"]
    assert beyond[0] == [[None, None]] * 2
    assert beyond[1:] == [(np.eye(2) + 1.0 / w - 1.0 / w**2).tolist() for w in widths[1:]]
    (sampled,) = content["sampled"].values()
    assert sampled["next_order_fine"] == [False, False, True, True, True]
    assert sampled["difference_next_order"][0] == [[None, None]] * 2
    received = np.array(sampled["difference_next_order"][1:], dtype=float)[:, 0, 0]
    np.testing.assert_allclose(received, [-1.0 / width**2 for width in widths[1:]], rtol=1e-9)
    law = content["power_laws_next_order"][0]
    assert law["widths"] == [40, 50, 60]
    assert law["slope"] == pytest.approx(-2.0, abs=1e-3)


def test_the_finite_size_table_follows_the_widths(tmp_path, rng):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.replace("[10, [20, 30, 40], 50]", "[50, 10]"))
    recipe = load_recipe(path)
    found = {}
    for label, point in recipe.points():
        directory = point_directory(tmp_path, label)
        directory.mkdir()
        solved = theory(0.9, 0.8, np.nan)
        width = point.network.widths
        solved["order_parameter"] = (("path", "path_"), width * np.eye(2))
        solved = solved.assign_coords(path=["good", "other"], path_=["good", "other"])
        write_result(directory, "theory.nc", solved)
        found[width] = compared(rng)
        write_comparison(directory, {"order_parameter": found[width]})
    store(tmp_path, recipe)
    content = read_json(tmp_path / FINITE_SIZE_FILE)
    assert content["paths"] == ["good", "other"]
    assert content["theory"]["widths"] == [10, 50]
    assert [one[0][0] for one in content["theory"]["order_parameter"]] == [10.0, 50.0]
    (table,) = content["sampled"].values()
    for place, width in enumerate((10, 50)):
        expected = width * np.eye(2) - np.array(found[width]["sampled"])
        np.testing.assert_array_equal(table["difference"][place], expected)


def test_rows_are_means_over_seeds_with_their_errors():
    points = [
        {"network.widths": width, "task.seed": seed, "sampler.seed": other}
        for width in (3, 4)
        for seed in (0, 1)
        for other in (0, 1)
    ]
    values = np.array([1.0, 2.0, 3.0, np.nan, 5.0, 5.0, 5.0, 5.0])
    columns = [{"accuracy": value, "accuracy_gp": math.nan} for value in values]
    rows = seed_averages(
        [
            PointSummary("", Path(), settings, None, True, of_point, {})
            for settings, of_point in zip(points, columns, strict=True)
        ]
    )
    assert list(rows["settings"]) == ["network.widths=3", "network.widths=4"]
    assert list(rows["points"]) == [4, 4]
    assert rows["accuracy"][0] == 2.0
    assert math.isclose(rows["accuracy_error"][0], 1 / math.sqrt(3))
    assert rows["accuracy_error"][1] == 0.0
    assert np.isnan(rows.loc[0, ["accuracy_gp", "accuracy_gp_error"]].astype(float)).all()


@pytest.mark.heavy
@pytest.mark.usefixtures("undrawn")
def test_a_sweep_over_seeds_and_forms_leaves_the_table(tmp_path):
    recipe = tmp_path / "tiny.toml"
    forms = '[{kind = "softmax"}, {kind = "scaled_heads", scale = 2, beta = 0.5}]'
    recipe.write_text(f'{TINY}[sweep]\n"attention.form" = {forms}\n"task.seed" = [0, 1]\n')
    out = tmp_path / "results"
    assert in_process("solve", recipe, "--out", out) == ExitCode.OK
    with (out / "seed_averages.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2
    for row in rows:
        assert row["settings"].startswith("attention.form={kind = ")
        assert row["points"] == "2"
        for name in ("participation_ratio", "off_diagonal_share"):
            assert 0.0 <= float(row[name]) <= 2.0
        assert float(row["head_distance_matrices"]) > 0.0
    without = tmp_path / "without"
    words = settings("task.seed=0")
    assert in_process("solve", recipe, "--out", without, *words) == ExitCode.OK
    assert not (without / "seed_averages.csv").exists()


def test_theories_of_the_users_own_stand_by_width():
    one = {"theory": [[1.5]], "sampled": [[1.25]], "mcse": [[0.01]], "trusted": True}
    found = by_width({10: one, 3: one | {"own: mine": [[2.0]]}})
    np.testing.assert_array_equal(found["own"]["mine"], [[[2.0]], [[np.nan]]])
    np.testing.assert_array_equal(found["difference"], [[[0.25]], [[0.25]]])
    assert np.isnan(found["difference_next_order"]).all()
