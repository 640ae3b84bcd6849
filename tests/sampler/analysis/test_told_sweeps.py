"""Tables of a sweep and its selection are what the arrays of the points say by the definitions."""

import csv
import json
import re
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
from tests import told_expected as expected
from tests.assertions import assert_equal_to_rounding
from tests.pages import Page
from tests.shown import assert_shows, numbers_in, plain, rows_of
from tests.told import VALIDATION, Told, made, write

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
CRITERIA = ("log_predictive_density", "accuracy")
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
        ratio = np.linalg.eigvalsh(overlap).sum() ** 2 / np.sum(np.linalg.eigvalsh(overlap) ** 2)
        assert float(here["participation_ratio"]) == pytest.approx(ratio, rel=1e-12)
        assert here["accuracy_of_sub_network"].values.tolist() == [0.5, 0.875]
        # U₁ of every predictor and of the samples.
        for who, of in point.told.predictions.items():
            exact = of.get("order_parameter", np.full_like(overlap, np.nan))
            np.testing.assert_array_equal(here["order_parameter"].sel(predictor=who), exact)
        sampled = here["order_parameter"].sel(predictor="sampled").values
        if not point.is_sampled:
            assert np.isnan(sampled).all()
            continue
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
        assert float(row["accuracy_infinite: good + uniform"]) == 0.875
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
    assert sweep_trend(of_one, None).tone == "good"


@pytest.mark.parametrize("tone", ["good", "caution", "neutral"])
def test_a_trend_is_told_as_it_is(stored, tone):
    """It falls where the 95 % interval at the largest width is below that at the smallest."""
    labels = {point.at: point.label for point in stored[1]}
    by_label = {point.label: point for point in stored[2].points}
    far, near = (by_label[labels[width, 0.3]] for width in (10, 40))
    low, high = (near.number("order_parameter", name=name) for name in ("low", "high"))
    assert 0.0 < low < high < far.number("order_parameter", name="low")
    points = {
        "good": (replace(far, one_width=10), replace(near, one_width=40)),
        "caution": (replace(far, one_width=40), replace(near, one_width=10)),
        "neutral": (replace(far, one_width=10), replace(far, one_width=40)),
    }[tone]
    assert sweep_trend(points, None).tone == tone


# --- the selection

# Where an evidence is not to be chosen by.
LEFT_OUT = {"sampled": (FAILING, UNTRUSTED, UNSAMPLED), "next": (LARGE,)}
PREDICTORS = ("leading", "next", "infinite", "infinite_tuned", "sampled")


@pytest.fixture(scope="module")
def chosen(stored) -> dict:
    return json.loads((stored[0] / "selection.json").read_text(encoding="utf-8"))


def candidates(points: list[Point], who: str, by_evidence: bool = False) -> list[Point]:
    """Points that may be chosen: sound samples, a next order that holds, tuned once a width."""
    if who == "sampled":
        left_out = {FAILING, UNSAMPLED} | ({UNTRUSTED} if by_evidence else set())
    else:
        left_out = {LARGE} if who == "next" else set()
    if who == "infinite_tuned":
        points = [p for p in points if p.at[1] == TEMPERATURES[0]]
    return [point for point in points if point.at not in left_out]


def by_example(point: Point, who: str) -> dict[str, np.ndarray]:
    """Score → that of every validation example."""
    if who == "sampled":
        return expected.validation_by_example(point.told)
    of = point.told.predictions[who]
    mean, variance = of["_validation"]
    noise = variance + of["temperature"]
    return expected.scores_by_example(mean, noise, point.told.labels["validation"])


def settings_of(point: Point, who: str) -> dict:
    temperature = point.at[1]
    if who == "infinite_tuned":
        temperature = float(point.told.predictions[who]["temperature"])
    return {"network.widths": point.at[0], "posterior.temperature": temperature}


@pytest.mark.parametrize("width", [None, *WIDTHS])
@pytest.mark.parametrize("who", PREDICTORS)
def test_the_point_with_the_best_score_is_chosen(stored, chosen, numbers, who, width):
    """Among all points, and at each width among its temperatures."""
    points = [point for point in stored[1] if width in (None, point.at[0])]
    found = chosen
    if width is not None:
        (found,) = (
            group
            for group in chosen["by_temperature"]
            if group["settings"] == {"network.widths": width}
        )
    found, among = found[who], candidates(points, who)
    every = points if who != "infinite_tuned" else among
    assert found["candidates"] == len(among)
    assert set(found["left_out"]) == {p.label for p in every} - {p.label for p in among}
    scores = {point.label: by_example(point, who) for point in among}
    for criterion in CRITERIA:
        if not among:
            assert found[criterion] is None
            continue
        best, *others = sorted(
            among,
            key=lambda point: [
                scores[point.label][name].mean() for name in (criterion, CRITERIA[0])
            ],
            reverse=True,
        )
        choice, values = found[criterion], scores[best.label][criterion]
        assert (choice["point"], choice["settings"]) == (best.label, settings_of(best, who))
        assert choice["value"] == pytest.approx(values.mean(), rel=1e-9)
        error = expected.error_of_mean(values)
        assert choice["validation_error"] == pytest.approx(error, rel=1e-9)
        mcse = mcse_of(best, who, criterion, numbers)
        assert_error(choice.get("mcse", 0.0), *mcse)
        predicted, sampled = numbers[best.label]
        test = sampled["accuracy"] if who == "sampled" else predicted["accuracy"][who]
        assert choice["test_accuracy"]["value"] == pytest.approx(test.value)
        if who == "sampled":
            assert choice["test_accuracy"]["test_error"] == pytest.approx(test.test_error)
        if not others:
            assert choice["runner_up"] is None
            continue
        second, runner_up = others[0], choice["runner_up"]
        assert (runner_up["point"], runner_up["settings"]) == (
            second.label,
            settings_of(second, who),
        )
        other = scores[second.label][criterion]
        difference = values.mean() - other.mean()
        assert runner_up["value"] == pytest.approx(other.mean(), rel=1e-9)
        assert runner_up["difference"] == pytest.approx(difference, rel=1e-6, abs=1e-12)
        # Example by example, which both points have in common.
        of_split = expected.error_of_mean(values - other)
        errors = [mcse, mcse_of(second, who, criterion, numbers)]
        error = np.sqrt(of_split**2 + sum(one**2 for one, _ in errors))
        received = runner_up["error_of_difference"]
        assert_error(received, error, max(slack for _, slack in errors))
        assert runner_up["within_errors"] == (not runner_up["difference"] > received)


def mcse_of(point: Point, who: str, criterion: str, numbers) -> tuple[float, float]:
    """The Monte Carlo error of a score, and by how much bootstraps may differ."""
    if who != "sampled":
        return 0.0, 0.0
    one = numbers[point.label][1][f"validation_{criterion}"]
    return float(one.error), one.slack


def assert_error(received: float, error: float, slack: float) -> None:
    assert abs(received - error) <= slack * error + 1e-9 * (1.0 + error)


@pytest.mark.parametrize("who", PREDICTORS)
def test_the_point_with_the_largest_evidence_is_chosen(stored, chosen, who):
    found, among = chosen["log_evidence"][who], candidates(stored[1], who, by_evidence=True)
    assert found["candidates"] == len(among)
    left_out = {point.label for point in stored[1] if point.at in LEFT_OUT.get(who, ())}
    assert left_out <= set(found["left_out"])

    def evidence(point: Point) -> tuple[float, float]:
        if who == "sampled":
            return point.told.evidence[:2]
        return float(point.told.predictions[who]["log_evidence"]), 0.0

    best, second, *_ = sorted(among, key=lambda point: -evidence(point)[0])
    choice = found["log_evidence"]
    assert (choice["point"], choice["settings"]) == (best.label, settings_of(best, who))
    (value, error), (other, other_error) = map(evidence, (best, second))
    assert choice["value"] == pytest.approx(value, rel=1e-12)
    assert choice.get("mcse", 0.0) == pytest.approx(error, rel=1e-12)
    runner_up = choice["runner_up"]
    assert runner_up["point"] == second.label
    assert runner_up["difference"] == pytest.approx(value - other, rel=1e-9)
    assert runner_up["error_of_difference"] == pytest.approx(np.hypot(error, other_error))
    assert runner_up["within_errors"] == (value - other <= np.hypot(error, other_error))


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
        assert cells[0] == point.label
        wanted = cells_of(point, here)
        for (value, errors, unit, below), cell, full in zip(
            wanted, cells[1:-2], values[1:-2], strict=True
        ):
            where = f"{point.label}: {cell}"
            if below:
                (one,) = numbers_in(cell)
                assert one.below, where
                assert one.shows(value, errors, unit), where
                continue
            if np.isfinite(value):
                assert float(full) == pytest.approx(value, rel=1e-12), where
            assert_shows(cell, value, errors, unit, where)
        # The same in the terminal, where what is unknown is a dash.
        for cell, printed in zip(cells[1:-2], rows[point.label], strict=False):
            assert plain(cell) == plain(printed) or printed == "–", (cell, printed)


def cells_of(point: Point, here: xr.Dataset) -> list[tuple[float, list[float], str, bool]]:
    """Value, errors, unit, and whether it is a bound, of all cells of a point that are numbers."""

    def number(quantity: str, who: str, name: str = "value") -> float:
        return float(here[name].sel(quantity=quantity, predictor=who))

    def difference(quantity: str, who: str = "leading") -> tuple[float, list[float], str, bool]:
        state = str(here["state"].sel(quantity=quantity, predictor=who).values)
        if state == "resolved":
            error = number(quantity, who, "difference_error")
            return number(quantity, who, "difference"), [error], "%", False
        if state in ("agrees", "differs"):
            return number(quantity, who, "below"), [], "%", True
        return np.nan, [], "", False

    errors = [number("accuracy", "sampled", name) for name in ("error", "test_error")]
    predictors = ("leading", "next", "sampled", "infinite", "infinite_tuned")
    accuracies = [
        (number("accuracy", who), errors if who == "sampled" else [], "%", False)
        for who in predictors
    ]
    # Of samples that fail nothing is said of differences.
    pull = number("order_parameter", "leading", "largest_mcse")
    pull = np.nan if point.at == FAILING else pull
    single = [float(here[name]) if name in here else np.nan for name in ("r_hat", "ess")]
    return [
        *accuracies,
        difference("order_parameter"),
        difference("order_parameter", "next"),
        difference("predictor_mean"),
        (pull, [], "", False),
        (single[0], [], "", False),
        (np.floor(single[1]), [], "", False),
    ]


def test_points_chosen_are_the_stored_ones(chosen, shown):
    """At each width the temperatures by each criterion, in brackets one that is as good."""
    (found,) = (one for one in shown[1].tables if one.caption.startswith("Points chosen"))
    order = ("leading", "next", "sampled", "infinite", "infinite_tuned")
    rows = iter(found.rows[1:])
    for group in chosen["by_temperature"]:
        for criterion in (*CRITERIA, "log_evidence"):
            of = group["log_evidence"] if criterion == "log_evidence" else group
            choices = [(of.get(who) or {}).get(criterion) for who in order]
            if not any(choices):
                continue
            row = next(rows)
            assert f"widths={group['settings']['network.widths']}" in row[0]
            for choice, cell in zip(choices, row[1:], strict=True):
                close = choice and choice["runner_up"] and choice["runner_up"]["within_errors"]
                told = [choice, *([choice["runner_up"]] if close else [])] if choice else []
                wanted = [one["settings"]["posterior.temperature"] for one in told]
                assert [float(one) for one in re.findall(r"=([\d.]+)", cell)] == pytest.approx(
                    wanted
                )
    assert not list(rows)
