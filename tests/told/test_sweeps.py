"""Tables of a sweep and its selection are what the arrays of the points say by the definitions."""

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.results import RunResults
from sampler.analysis.sweep_dataset import gathered, swept_points
from sampler.analysis.sweep_results import SweepResults, sweep_trend, sweep_trust
from sampler.jobs.stages import compare_stage
from sampler.jobs.sweep import write_sweep
from sampler.presentation.report import write_report
from sampler.presentation.several_runs import points_table
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import point_directory
from tests.assertions import assert_equal_to_rounding
from tests.pages import Page
from tests.told import expected
from tests.told.run import VALIDATION, Told, made, write
from tests.told.shown import assert_shows, numbers_in, plain, rows_of

WIDTHS, TEMPERATURES = (10, 20, 40), (0.3, 0.6)
RECIPE = f"""
name = "told"
[task]
kind = "markov_chain"
examples_validation = {VALIDATION}
[network]
widths = 10
[sweep]
"network.widths" = {list(WIDTHS)}
"posterior.temperature" = {list(TEMPERATURES)}
"""
# Theories are closer the larger the width; some points are not as they should be.
GAPS = {10: 1.0, 20: 0.5, 40: 0.2}
SPECIAL = {
    (10, 0.6): {"sound": False},
    (20, 0.3): {"evidence_trusted": False},
    (20, 0.6): {"next_order": "large"},
}
FAILING, UNTRUSTED, LARGE, UNSAMPLED = (10, 0.6), (20, 0.3), (20, 0.6), (40, 0.6)
OF_THEORY = ("accuracy", "elpd", "log_evidence", "temperature")
CRITERIA = ("accuracy", "log_predictive_density")
ROUNDINGS = {"operations": 1e5, "condition": 100}


@dataclass(frozen=True)
class Point:
    """A point of the sweep: its place, its label, its arrays, and whether it was sampled."""

    at: tuple[int, float]
    label: str
    told: Told

    @property
    def is_sampled(self) -> bool:
        return self.at != UNSAMPLED


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[Path, list[Point], SweepResults]:
    """A sweep of which every file but the comparisons and its tables is written here."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    recipe, points = load_recipe(folder / "recipe.toml"), []
    places = [(width, temperature) for width in WIDTHS for temperature in TEMPERATURES]
    for seed, (at, (label, _)) in enumerate(zip(places, recipe.points(), strict=True)):
        arrays = {"gap": GAPS[at[0]], "width": at[0], "temperature": at[1]}
        told = made("repetitions", seed=seed, **arrays, **SPECIAL.get(at, {}))
        directory = write(told, point_directory(folder, label))
        if at == UNSAMPLED:
            (directory / "draws.nc").unlink()
        else:
            compare_stage(RunResults(directory))
        points.append(Point(at, label, told))
    swept = swept_points(folder, recipe)
    sweep = gathered(folder, recipe, swept)
    write_sweep(sweep, recipe, swept)
    return folder, points, sweep


@pytest.fixture(scope="module")
def table(stored) -> xr.Dataset:
    return xr.load_dataset(stored[0] / "sweep.nc", engine="h5netcdf")


def at_point(table: xr.Dataset, point: Point) -> xr.Dataset:
    keys = ("network.widths", "posterior.temperature")
    return table.sel(dict(zip(keys, point.at, strict=True)))


# --- the table


@pytest.fixture(scope="module")
def numbers(stored) -> dict[str, tuple[dict, dict]]:
    """Label of a point → what is predicted and sampled there; errors by few replicates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected, "REPLICATES", 100)
        return {
            point.label: (
                expected.predicted(point.told),
                expected.sampled(point.told) if point.is_sampled else {},
            )
            for point in stored[1]
        }


def test_every_number_of_every_point(stored, table, numbers):
    """What a comparison lacks, as all of it without draws, is what `theory.nc` has as numbers."""
    for point in stored[1]:
        predicted, sampled = numbers[point.label]
        here = at_point(table, point)
        for quantity in map(str, table["quantity"].values):
            known = {}
            if point.is_sampled or quantity in OF_THEORY or quantity.startswith("validation"):
                known = dict(predicted.get(quantity, {}))
            if quantity in sampled and not (quantity == "log_evidence" and point.at == UNTRUSTED):
                known["sampled"] = sampled[quantity]
            for who in map(str, table["predictor"].values):
                received = float(here["value"].sel(quantity=quantity, predictor=who))
                where = f"{quantity}, {who}, {point.label}"
                if who not in known:
                    assert np.isnan(received), where
                    continue
                value = known[who].value
                value = np.sqrt(np.nansum(np.square(value))) if np.ndim(value) else value
                scale = max(1.0, abs(value))
                assert_equal_to_rounding(received, value, scale=scale, what=where, **ROUNDINGS)


def test_errors_differences_and_states_are_those_of_the_points(stored, table):
    """Cell by cell as in the comparison of each, whose numbers have tests of their own."""
    names = ("error", "test_error", "difference", "difference_error", "low", "high", "below",
             "largest_mcse", "ahead", "ahead_error", "state")  # fmt: skip
    for point in stored[1]:
        here = at_point(table, point)
        if not point.is_sampled:
            assert not (here["state"] != "").any()
            assert all(here[name].isnull().all() for name in names[:-1])
            continue
        path = point_directory(stored[0], point.label) / "comparison.nc"
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            summary = tree["summary"].to_dataset().load()
        here = here.sel(quantity=summary["quantity"], predictor=summary["predictor"])
        if point.at == FAILING:
            assert here["ahead"].isnull().all(), "draws that fail are ahead of nothing"
            assert set(np.unique(here["state"].values.astype(str))) == {"", "not trusted"}
        if point.at == UNTRUSTED:
            evidence = {"quantity": "log_evidence", "predictor": "sampled"}
            for name in names[:-1]:
                assert here[name].sel(evidence).isnull(), name
                summary[name].loc[evidence] = np.nan
        for name in names:
            np.testing.assert_array_equal(here[name].values, summary[name].values, name)


def test_columns_of_every_point(stored, table):
    for point in stored[1]:
        here = at_point(table, point)
        verdict = {True: "pass", False: "fail"}[point.at != FAILING] if point.is_sampled else ""
        assert str(here["diagnostics"].values) == verdict
        assert str(here["point"].values) == point.label
        assert int(here["width"]) == point.at[0]
        assert str(here["next_order_status"].values) == ("large" if point.at == LARGE else "fine")
        overlap = point.told.predictions["leading"]["order_parameter"]
        assert str(here["sampled_space"].values) == "order_parameters" * point.is_sampled
        ratio = np.linalg.eigvalsh(overlap).sum() ** 2 / np.sum(np.linalg.eigvalsh(overlap) ** 2)
        assert float(here["participation_ratio"]) == pytest.approx(ratio, rel=1e-12)
        # U₁ of every predictor and of the samples.
        for who, of in point.told.predictions.items():
            exact = of.get("order_parameter", np.full_like(overlap, np.nan))
            np.testing.assert_array_equal(here["order_parameter"].sel(predictor=who), exact)
        sampled = here["order_parameter"].sel(predictor="sampled").values
        if not point.is_sampled:
            assert np.isnan([*sampled.ravel(), here["r_hat"], here["ess"]]).all()
            continue
        # The worst of all that was judged, of the bulk or of the tails.
        content = point_directory(stored[0], point.label) / "comparison.json"
        judged = json.loads(content.read_text())["diagnostics"]["quantities"].values()
        assert float(here["r_hat"]) == max(one["r_hat"] for one in judged)
        sizes = [one[f"ess_{part}"] for one in judged for part in ("bulk", "tail")]
        assert float(here["ess"]) == min(sizes)
        one = expected.mean_of(point.told.drawn["order_parameter"], point.told.weights)
        np.testing.assert_allclose(sampled, one.value, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(here["order_parameter_error"], one.error, rtol=1e-9)


def test_a_file_of_rows_has_the_same_numbers(stored, table):
    """`sweep.csv`: a column for each number by each predictor, with both errors of the samples."""
    with (stored[0] / "sweep.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["point"] for row in rows] == [point.label for point in stored[1]]
    endings = {"": "value", "_error": "error", "_test_error": "test_error"}
    single = [str(q) for q, show in zip(table["quantity"].values, table["show"].values, strict=True)
              if show == "number"]  # fmt: skip
    for row, point in zip(rows, stored[1], strict=True):
        here, told = at_point(table, point), set()
        for quantity in single:
            for who in map(str, table["predictor"].values):
                for ending, name in endings.items() if who == "sampled" else [("", "value")]:
                    value = float(here[name].sel(quantity=quantity, predictor=who))
                    text = row.get(f"{quantity}_{who}{ending}", "")
                    told.add(f"{quantity}_{who}{ending}")
                    assert text == ("" if np.isnan(value) else repr(value)), (quantity, who)
        assert row["diagnostics"] == str(here["diagnostics"].values)
        for name in set(row) - told:
            assert not name.endswith(("_sampled", "_leading", "_next", "_infinite")), name


def test_verdicts_count_points_that_pass(stored):
    """The difference falls with the width; a point that fails is told, and is no part of this."""
    sweep, labels = stored[2], {point.at: point.label for point in stored[1]}
    trust = sweep_trust(sweep.points)
    assert trust.tone == "bad"
    text = " ".join([trust.headline, *trust.reasons])
    assert [label for label in labels.values() if label in text] == [labels[FAILING]]
    assert "1 of 5" in trust.headline
    others = [point for point in sweep.points if point.label != labels[FAILING]]
    assert sweep_trust(others).tone == "good"
    # At one temperature each width stands once, and all samples are sound there.
    of_one = [p for p in sweep.points if p.settings["posterior.temperature"] == TEMPERATURES[0]]
    assert sweep_trend(of_one).tone == "good"
    # Where widths stand twice, the furthest from the theory and the nearest one are told.
    sound = [point for point in sweep.points if point.trusted]
    ends = sorted(sound, key=lambda point: point.number("order_parameter", name="below"))
    shown = [one for one in numbers_in(sweep_trend(sweep.points).short) if one.unit == "%"]
    for one, point in zip(shown, (ends[-1], ends[0]), strict=True):
        value, error = (
            point.number("order_parameter", name=name)
            for name in ("difference", "difference_error")
        )
        assert one.shows(value, [error], "%")


@pytest.mark.parametrize("tone", ["good", "caution", "neutral"])
def test_a_trend_is_told_as_it_is(stored, tone):
    """It falls where the 95 % interval at the largest width is below that at the smallest."""
    labels = {point.at: point.label for point in stored[1]}
    by_label = {point.label: point for point in stored[2].points}
    far, near = (by_label[labels[width, 0.3]] for width in (10, 40))
    low, high = (near.number("order_parameter", name=name) for name in ("low", "high"))
    assert 0.0 < low < high < far.number("order_parameter", name="low")
    points = {"good": (far, near), "caution": (near, far), "neutral": (far, far)}[tone]
    of_widths = [
        replace(point, columns={**point.columns, "width": width})
        for point, width in zip(points, (10, 40), strict=True)
    ]
    found = sweep_trend(of_widths)
    assert found.tone == tone
    # Both ends are told, the narrow one first.
    shown = [one for one in numbers_in(found.short) if one.unit == "%"]
    for one, point in zip(shown, points, strict=True):
        value, error = (
            point.number("order_parameter", name=name)
            for name in ("difference", "difference_error")
        )
        assert one.shows(value, [error], "%")


# --- the selection


@pytest.fixture(scope="module")
def chosen(stored) -> dict:
    return json.loads((stored[0] / "selection.json").read_text(encoding="utf-8"))


def by_example(point: Point, who: str) -> dict[str, np.ndarray]:
    """Score → that of every validation example."""
    of = point.told.predictions[who]
    mean, variance = of["_validation"]
    noise = variance + of["temperature"]
    return expected.scores_by_example(mean, noise, point.told.labels["validation"])


def test_each_width_has_the_temperature_with_the_best_accuracy(stored, chosen):
    """Of equal accuracies that with the best density; the other one is told with its error."""
    assert len(chosen) == len(WIDTHS)
    for width in WIDTHS:
        points = {point.at[1]: point for point in stored[1] if point.at[0] == width}
        scores = {at: by_example(point, "leading") for at, point in points.items()}
        first, second = sorted(
            scores, key=lambda at: [scores[at][name].mean() for name in CRITERIA], reverse=True
        )
        best = points[first]
        row = chosen[best.label]
        assert row["settings"] == {"network.widths": width}
        assert (row["temperature"], row["next_best"]) == (first, second)
        infinite = by_example(best, "infinite_tuned")
        tuned = float(best.told.predictions["infinite_tuned"]["temperature"])
        assert row["infinite_tuned_temperature"] == tuned
        for name in CRITERIA:
            here, other = scores[first][name], scores[second][name]
            told = {"": here, "ahead_": here - other, "infinite_tuned_": infinite[name]}
            for prefix, values in told.items():
                mean, error = values.mean(), expected.error_of_mean(values)
                assert row[f"{prefix}{name}"] == pytest.approx(mean, rel=1e-9, abs=1e-12)
                assert row[f"{prefix}{name}_error"] == pytest.approx(error, rel=1e-9)


# --- on the page and on the terminal


@pytest.fixture(scope="module")
def shown(stored) -> tuple[dict[str, list[str]], Page]:
    """Rows of the printed table, all of whose columns have room, and the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sampler.presentation.report.draw_figures", lambda *_, **__: [])
        page = Page(write_report(stored[0], results=stored[2])[-1].read_text(encoding="utf-8"))
    return rows_of(points_table(stored[2].points).text(width=400)), page


def test_the_table_of_points_has_the_stored_numbers(stored, table, shown):
    """Accuracies in per cent, how far theories are off, pulls, R-hat and effective draws."""
    rows, page = shown
    (on_page,) = (one for one in page.tables if one.caption == "Points")
    for point, cells, values in zip(stored[1], on_page.rows[1:], on_page.values[1:], strict=True):
        here = at_point(table, point)
        assert cells[0] == name_of(point)
        wanted = cells_of(point, here)
        for (value, errors, unit, below), cell, full in zip(
            wanted, cells[1:-2], values[1:-2], strict=True
        ):
            where = f"{point.label}: {cell}"
            if isinstance(below, str):
                assert cell == below, where
                continue
            if below:
                (one,) = numbers_in(cell)
                assert one.below, where
                assert one.shows(value, errors, unit), where
                continue
            if np.isfinite(value):
                assert float(full) == pytest.approx(value, rel=1e-12), where
            assert_shows(cell, value, errors, unit, where)
        # The same in the terminal, where what is unknown is a dash.
        for cell, printed in zip(cells[1:-2], rows[name_of(point)], strict=False):
            assert plain(cell) == plain(printed) or printed == "–", (cell, printed)


def name_of(point: Point) -> str:
    return f"widths={point.at[0]}, temperature={point.at[1]}"


def cells_of(point: Point, here: xr.Dataset) -> list[tuple[float, list[float], str, bool | str]]:
    """Value, errors, unit, and whether it is a bound, or what is said in the place of a number."""

    def number(quantity: str, who: str, name: str = "value") -> float:
        return float(here[name].sel(quantity=quantity, predictor=who))

    def difference(quantity: str, who: str = "leading") -> tuple:
        state = str(here["state"].sel(quantity=quantity, predictor=who).values)
        if state == "resolved":
            error = number(quantity, who, "difference_error")
            return number(quantity, who, "difference"), [error], "%", False
        if state in ("agrees", "differs"):
            return number(quantity, who, "below"), [], "%", True
        return np.nan, [], "", state or "not sampled"

    errors = [number("accuracy", "sampled", name) for name in ("error", "test_error")]
    predictors = ("leading", "sampled", "next", "infinite", "infinite_tuned")
    accuracies = [
        (
            number("accuracy", who),
            errors if who == "sampled" else [],
            "%",
            "not sampled" if who == "sampled" and not point.is_sampled else False,
        )
        for who in predictors
    ]
    # Of samples that fail nothing is said of differences.
    pull = number("order_parameter", "leading", "largest_mcse")
    pull = np.nan if point.at == FAILING else pull
    single = [float(here[name]) if name in here else np.nan for name in ("r_hat", "ess")]
    return [
        difference("order_parameter"),
        difference("order_parameter", "next"),
        *accuracies,
        difference("predictor_mean"),
        (pull, [], "", False),
        (single[0], [], "", False),
        (np.floor(single[1]), [], "", False),
    ]
