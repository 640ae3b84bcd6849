"""Tables of a sweep: one row per point, means and errors over seeds, power laws."""

import csv
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sampler.analysis.estimates import Estimate
from sampler.analysis.finite_size import FiniteSize, SampledByWidth
from sampler.analysis.predictors import along_predictors
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_dataset import coordinate, gathered, swept_points
from sampler.analysis.sweep_results import SWEEP_FILE, SweepResults, seed_averages, setting_at
from sampler.errors import ExitCode
from sampler.jobs.sweep import write_sweep
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import point_directory
from sampler.storage.result_files import write_result
from tests import FIXTURES
from tests.commands import TINY, in_process
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


def theory(accuracy, limit, overlap=None, labelled=True, further=None):
    """A table of both orders (as far as it is given) and infinite width."""
    moments = {name: (("test_example",), np.ones(3))
               for name in ("predictor_mean", "predictor_variance")}  # fmt: skip
    overlap = np.eye(2) if overlap is None else overlap
    axes = ("path", "path_")
    leading = moments | {"accuracy": ((), accuracy), "order_parameter": (axes, overlap)}
    predictions = {"leading": leading, **(further or {})}
    table = along_predictors(predictions | {"infinite": moments | {"accuracy": ((), limit)}})
    table["participation_ratio"] = ((), 1.5)
    if labelled:
        table["accuracy_of_sub_network"] = (("sub_network",), [0.9, 0.95])
        table = table.assign_coords(sub_network=["good", "good + denoising"])
    return table.assign_coords(path=["good", "other"], path_=["good", "other"])


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
    write_result(point_directory(tmp_path, wide), "theory.nc", theory(np.nan, 0.83))
    sampled = {"accuracy": Estimate(0.97, 0.001, test_error=0.005)}
    predictions = {"leading": {"accuracy": 0.96}, "infinite": {"accuracy": 0.82}}
    write_comparison(point_directory(tmp_path, narrow), sampled, predictions)
    alone = {"predictor_mean": Estimate(np.ones(2), np.ones(2))}
    write_comparison(point_directory(tmp_path, wide), alone)
    store(tmp_path, recipe)
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
    assert first["accuracy_infinite: good + denoising"] == "0.95"
    assert (second["accuracy_leading"], second["accuracy_infinite"]) == ("", "0.83")
    assert (second["accuracy_sampled"], second["sampled_space"]) == ("", recipe.sampler.space)
    assert {
        value for key, value in third.items() if key not in ("point", "directory", "width")
    } == {""}


def to_next_order(accuracy=0.97, overlap=None):
    """The next order with numbers of its own."""
    overlap = np.eye(2) + 0.25 if overlap is None else overlap
    columns = {"accuracy": ((), accuracy), "log_evidence": ((), -5.0)}
    return {"next": columns | {"order_parameter": (("path", "path_"), overlap)}}


def test_the_next_order_has_its_columns_where_a_point_has_it(recipe, tmp_path):
    (narrow, _), (wide, _), _ = recipe.points()
    for label in (narrow, wide):
        point_directory(tmp_path, label).mkdir()
    write_result(point_directory(tmp_path, narrow), "theory.nc", theory(0.96, 0.82))
    store(tmp_path, recipe)
    assert not [name for name in rows_of(tmp_path)[0] if "next" in name]
    solved = theory(0.9, 0.8, further=to_next_order()).assign_attrs(next_order_status="large")
    write_result(point_directory(tmp_path, wide), "theory.nc", solved)
    sweep = store(tmp_path, recipe)
    expected = {
        "accuracy_next": "0.97", "log_evidence_next": "-5.0", "next_order_status": "large"
    }  # fmt: skip
    first, second, _ = rows_of(tmp_path)
    assert {name: second[name] for name in expected} == expected
    assert {first[name] for name in expected} == {""}
    received = sweep.dataset["order_parameter"].sel(predictor="next").values
    np.testing.assert_array_equal(received[1], np.eye(2) + 0.25)
    assert np.isnan(received[[0, 2]]).all()


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


def test_differences_are_those_of_the_points(recipe, tmp_path):
    label, _ = recipe.points()[1]
    shutil.copytree(FIXTURES / "finished", point_directory(tmp_path, label))
    sweep = store(tmp_path, recipe)
    comparison = RunResults(point_directory(tmp_path, label)).comparison
    for found in (sweep, SweepResults(tmp_path)):
        first, second, _ = found.points
        for quantity, one in comparison.differences("leading").items():
            # as text, where undefined numbers are equal
            assert repr(second.difference(quantity)) == repr(one)
        assert first.difference("order_parameter") is None
        assert (first.one_width, second.one_width) == (10, None)


def by_width(leading, sampled, beyond=None, trusted=None, expanded=None) -> FiniteSize:
    """U_1 of one path at several widths: width → number."""
    widths = np.array(list(sampled))

    def column(values):
        return np.array([values[w] for w in widths], dtype=float).reshape(-1, 1, 1)

    def flags(given):
        return np.array([(given or {}).get(w, True) for w in widths])

    samples = SampledByWidth(
        widths, column(sampled), np.full((len(widths), 1, 1), 1e-7),
        np.full(len(widths), 39.0), flags(trusted), flags(expanded),
    )  # fmt: skip
    predicted = {"leading": column(leading)} | ({"next": column(beyond)} if beyond else {})
    return FiniteSize(["path"], widths, predicted, {"order_parameters": samples})


WIDTHS = (10, 30, 100, 300, 1000)


def test_points_that_failed_have_no_part_in_a_power_law():
    """Their differences would bend the fit."""
    sampled = {w: 1.0 - (1.0 / w if w != 300 else 7.0) for w in WIDTHS}
    table = by_width(dict.fromkeys(WIDTHS, 1.0), sampled, trusted={300: False})
    (law,) = table.power_laws("leading")
    assert law.widths == (30, 100, 1000)
    assert law.slope == pytest.approx(-1.0, abs=1e-4)
    assert law.prefactor == pytest.approx(1.0, abs=1e-3)


def test_the_law_of_the_next_order_is_of_points_where_the_expansion_holds():
    leading = {w: 1.0 + 1.0 / w for w in WIDTHS}
    beyond = {w: 1.0 + (100.0 / w**2 if w != 300 else 7.0) for w in WIDTHS}
    table = by_width(leading, dict.fromkeys(WIDTHS, 1.0), beyond, expanded={300: False})
    (first,), (second,) = (table.power_laws(name) for name in ("leading", "next"))
    assert second.widths == (30, 100, 1000)
    assert second.slope == pytest.approx(-2.0, abs=1e-4)
    assert first.widths == (30, 100, 300, 1000)
    assert first.slope == pytest.approx(-1.0, abs=1e-4)


def test_u_1_by_width_follows_the_widths(tmp_path):
    """The next order is not known at the smallest width, and too large at the next one."""
    path, widths = tmp_path / "recipe.toml", (50, 10, 30)
    path.write_text(RECIPE.replace("[10, [20, 30, 40], 50]", str(list(widths))))
    recipe = load_recipe(path, ["sampler.space=order_parameters"])
    for label, point in recipe.points():
        directory, width = point_directory(tmp_path, label), point.network.widths
        directory.mkdir()
        beyond = {} if width == 10 else to_next_order(overlap=(1.0 + 1.0 / width**2) * np.eye(2))
        solved = theory(0.9, 0.8, (1.0 + 1.0 / width) * np.eye(2), further=beyond)
        status = "large" if width == 30 else "fine"
        solved = solved.assign_attrs(next_order_status=status)
        write_result(directory, "theory.nc", solved)
        sampled = Estimate(np.eye(2), np.full((2, 2), 1e-6 * width))
        write_comparison(directory, {"order_parameter": sampled})
    table = store(tmp_path, recipe).finite_size
    assert table.widths.tolist() == [10, 30, 50]
    assert list(table.paths) == ["good", "other"]
    (samples,) = table.sampled.values()
    np.testing.assert_allclose(samples.errors[:, 0, 0], [1e-5, 3e-5, 5e-5])
    gaps = {name: table.difference(name)[:, 0, 0] for name in ("leading", "next")}
    np.testing.assert_allclose(gaps["leading"], 1.0 / table.widths, rtol=1e-9)
    np.testing.assert_allclose(gaps["next"], [np.nan, 1 / 900, 1 / 2500], rtol=1e-9)
    assert samples.expanded.tolist() == [True, False, True]


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
