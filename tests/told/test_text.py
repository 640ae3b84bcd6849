"""Every number on the terminal and on the page is the stored one, with its errors and its unit."""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.quantities import QUANTITIES
from tests.commands import in_process
from tests.pages import Page
from tests.pages import Table as PageTable
from tests.told.differences import largest_by_chance
from tests.told.run import KINDS, SHAPES, Told, made, write
from tests.told.shown import SCALES, assert_shows, numbers_in, plain, read, rows_of

RECIPE = """
name = "told"
[task]
kind = "markov_chain"
[network]
widths = 10
[posterior]
temperature = 0.3
"""
WIDE = "300"  # characters: no column is left out
ORDERS = ("leading", "next")
# States of which a bound is told: no difference is seen, or one in single elements.
BOUNDS = ("agrees", "differs")


@dataclass(frozen=True)
class Run:
    """Arrays of a run, what is stored of it, and what is said of it."""

    told: Told
    directory: Path
    tree: xr.DataTree
    content: dict
    printed: str
    diagnosed: str
    page: Page

    @property
    def summary(self) -> xr.Dataset:
        return self.tree["summary"].to_dataset()

    @property
    def quantities(self) -> list[str]:
        return [str(name) for name in self.summary["quantity"].values]

    @property
    def predictors(self) -> list[str]:
        return [str(name) for name in self.summary["predictor"].values]

    def number(self, quantity: str, who: str, name: str = "value") -> float:
        return float(self.summary[name].sel(quantity=quantity, predictor=who))

    def about(self, quantity: str, name: str):
        return self.summary[name].sel(quantity=quantity).values.item()

    def state(self, quantity: str, who: str) -> str:
        return str(self.summary["state"].sel(quantity=quantity, predictor=who).values)


def printed(*arguments: object) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert in_process(*arguments) == 0, text.getvalue()
    return text.getvalue()


@pytest.fixture(scope="module")
def without_figures():
    """Pages without figures, and a terminal on which everything has room."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sampler.presentation.report.draw_figures", lambda *_, **__: [])
        patch.setenv("COLUMNS", WIDE)
        yield


@pytest.fixture(scope="module", params=KINDS)
def run(request, tmp_path_factory, without_figures) -> Run:
    special = {"next_order": "large", "temperature_sampled": True}
    told = made(request.param, **(special if request.param == "repetitions" else {}))
    directory = write(told, tmp_path_factory.mktemp(request.param), RECIPE)
    texts = printed("compare", directory), printed("diagnose", directory)
    printed("report", directory)
    with xr.open_datatree(directory / "comparison.nc", engine="h5netcdf") as tree:
        return Run(
            told,
            directory,
            tree.load(),
            json.loads((directory / "comparison.json").read_text(encoding="utf-8")),
            *texts,
            Page((directory / "report.html").read_text(encoding="utf-8")),
        )


# --- numbers by predictor


def unit_of(run: Run, quantity: str) -> str:
    return "%" if run.about(quantity, "share") else ""


def errors_of(run: Run, quantity: str, who: str) -> list[float]:
    """Errors that stand beside a number: of the samples both, where examples are finite."""
    if who != "sampled":
        return []
    errors = [run.number(quantity, who, name) for name in ("error", "test_error")]
    return errors if errors[1] > 0.0 else errors[:1]


def assert_numbers(run: Run, quantity: str, cells: list[str], where: str) -> None:
    for who, cell in zip(run.predictors, cells, strict=True):
        errors = errors_of(run, quantity, who)
        value, what = run.number(quantity, who), f"{where}: {quantity}, {who}"
        why = QUANTITIES[quantity].missing.get(who)
        if np.isnan(value) and why:
            assert plain(cell) == why, what
            continue
        assert_shows(cell, value, errors, unit_of(run, quantity), what)


def shown_as(run: Run, show: str) -> list[str]:
    """Quantities of a form, but for the temperature, which has a table of its own."""
    return [q for q in run.quantities if run.about(q, "show") == show and q != "temperature"]


def test_the_terminal_has_the_stored_numbers_by_predictor(run):
    rows = rows_of(run.printed.split("\n\n")[2])
    shown = [q for q in shown_as(run, "number") if run.about(q, "brief")]
    assert set(rows) - {"numbers"} >= {run.about(q, "label") for q in shown}
    for quantity in shown:
        assert_numbers(run, quantity, rows[run.about(quantity, "label")], "terminal")


def page_row(table: PageTable, name: str) -> tuple[list[str], list[str | None]]:
    """Cells and full values of the row whose name begins so, up to a comma or a bracket."""
    found = [
        at
        for at, row in enumerate(table.rows)
        if row[0] == name or row[0].startswith(f"{name}, by ")
    ]
    assert len(found) == 1, f"{name}: {len(found)} rows"
    return table.rows[found[0]][1:], table.values[found[0]][1:]


def test_the_page_has_the_stored_numbers_by_predictor(run):
    table = run.page.table("Accuracy, scores and evidence")
    for quantity in shown_as(run, "number"):
        cells, values = page_row(table, run.about(quantity, "label"))
        assert_numbers(run, quantity, cells, "page")
        for who, value in zip(run.predictors, values, strict=False):
            stored = run.number(quantity, who)
            assert value == (None if np.isnan(stored) else repr(stored)), (quantity, who)
    assert len(table.rows) == 1 + len(shown_as(run, "number"))


def test_scores_ahead_of_infinite_width_are_the_stored_ones(run):
    """With the error of the difference on the same examples, in the terminal and on the page."""
    others = ("infinite", "infinite_tuned")
    on_page = run.page.table("Ahead of infinite width")
    scores = [q for q in run.quantities if np.isfinite(run.number(q, "infinite", "ahead"))]
    assert {"accuracy", "log_predictive_density"} <= set(scores)
    in_terminal = rows_of(run.printed.split("\n\n")[3])
    assert len(on_page.rows) == 1 + len(scores)
    for quantity in scores:
        cells, values = page_row(on_page, run.about(quantity, "label"))
        for form in (cells, in_terminal[run.about(quantity, "label")]):
            for who, cell in zip(others, form, strict=True):
                value, error = (run.number(quantity, who, n) for n in ("ahead", "ahead_error"))
                # A difference of shares is one of points of a per cent.
                scale, unit = (100.0, "points") if run.about(quantity, "share") else (1.0, "")
                assert_shows(cell, scale * value, [scale * error], unit, quantity)
        for who, full in zip(others, values, strict=True):
            assert float(full) == run.number(quantity, who, "ahead")


def test_other_accuracies_are_those_of_the_theory(run):
    rows = run.page.table("Others").rows[1:]
    assert [
        read(row[1]).shows(value, (), "%")
        for row, value in zip(rows, (0.5, 0.875, 0.75), strict=True)
    ] == [True] * 3


def test_a_temperature_that_was_sampled_has_its_numbers(run):
    found = [table for table in run.page.tables if table.caption.startswith("Sampled with")]
    if "temperature" not in run.told.drawn:
        assert not found
        return
    (cells,) = (row[1:] for row in found[0].rows[1:])
    (name,) = (row[0] for row in found[0].rows[1:])
    errors = [run.number("temperature", "sampled", "error")]
    for shown in (cells, rows_of(run.printed.split("\n\n")[4])[name]):
        assert_shows(shown[0], run.told.temperature)
        assert_shows(shown[1], run.number("temperature", "sampled"), errors)
        assert_shows(shown[2], run.about("temperature", "spread"))


# --- differences as a whole


def said_of(run: Run, quantity: str, who: str) -> list[tuple[float, list[float], str]]:
    """Numbers of a statement, with errors and units: a size or a bound, and the largest pull."""
    state, unit = run.state(quantity, who), run.about(quantity, "unit")
    names = ("difference", "difference_error", "below", "largest_mcse", "compared", "degrees")
    numbers = {name: run.number(quantity, who, name) for name in names}
    if state == "resolved":
        return [(numbers["difference"], [numbers["difference_error"]], unit)]
    bound = [(numbers["below"], [], unit)] if state in BOUNDS else []
    return bound + [(numbers["largest_mcse"], [], "")] * (state == "differs")


def assert_statement(run: Run, quantity: str, who: str, cell: str) -> None:
    """A size with its error, a bound, or words alone where nothing may be said."""
    shown, stored = numbers_in(cell), said_of(run, quantity, who)
    assert len(shown) == len(stored), (quantity, who, cell)
    for one, numbers in zip(shown, stored, strict=True):
        assert one.shows(*numbers), (quantity, who, cell)
    assert bool(cell) == bool(run.state(quantity, who))
    if stored:
        assert shown[0].below == (run.state(quantity, who) in BOUNDS)


def test_differences_as_a_whole_are_the_stored_ones(run):
    """In the terminal those of both orders that are no single numbers, on the page all.

    There with intervals and largest pulls, and with what noise makes of these.
    """
    rows = rows_of(run.printed.split("\n\n")[1])
    table, told = run.page.table("Relative error"), 0
    theories = [
        who
        for who in run.predictors
        if who != "sampled" and any(run.state(q, who) for q in run.quantities)
    ]
    for quantity in run.quantities:
        if not any(run.state(quantity, who) for who in theories):
            continue
        cells, values = page_row(table, run.about(quantity, "label"))
        statements, intervals, pulls = (cells[2 * at : 2 * at + 2] for at in range(3))
        unit = run.about(quantity, "unit")
        by_noise = []
        for at, who in enumerate(theories):
            assert_statement(run, quantity, who, statements[at])
            if not run.state(quantity, who):
                assert not intervals[at]
                continue
            low, high = map(read, intervals[at].split(" to "))
            scale = SCALES[unit]  # the unit stands behind the upper end alone
            assert low.shows(scale * run.number(quantity, who, "low")), quantity
            assert high.shows(run.number(quantity, who, "high"), (), unit), quantity
            largest = run.number(quantity, who, "largest_mcse")
            assert_shows(pulls[at], largest, what=quantity)
            assert float(values[4 + at]) == largest
            numbers = (run.number(quantity, who, name) for name in ("compared", "degrees"))
            by_noise.append(largest_by_chance(*numbers))
        assert float(values[-1]) == pytest.approx(max(by_noise), rel=1e-9)
        assert_shows(cells[-1], float(values[-1]), what=quantity)
        if run.about(quantity, "brief") and run.about(quantity, "show") != "number":
            told += 1
            both = zip(ORDERS, rows[run.about(quantity, "label")], strict=True)
            for who, cell in both:
                assert_statement(run, quantity, who, cell)
    assert len(rows) == 1 + told


# --- element by element


def elements(run: Run, quantity: str, at: tuple[int, ...]) -> list[tuple[float, list[float], str]]:
    """An element by both orders and by the samples, and how far these are off, as stored.

    Numbers with errors and units; head scores are relative to the largest, as they are.
    """
    table = run.tree["elements"][quantity].to_dataset()
    sampled, error = (float(table[name].values[at]) for name in ("sampled", "error"))
    of = [table.sel(predictor=who) for who in ORDERS]
    predicted = [float(one["predicted"].values[at]) for one in of]
    differences = [(sampled - one, [error], "%") for one in predicted]
    if "relative" in table:
        names = ("relative", "relative_error")
        numbers = [[float(one[name].values[at]) for name in names] for one in of]
        differences = [(value, [error], "%") for value, error in numbers]
    return [*((one, [], "") for one in predicted), (sampled, [error], ""), *differences]


def places_of(run: Run) -> dict[str, dict[str, tuple[int, ...]]]:
    """Title of a table → its rows: the name of an element, and where it is."""
    paths = [str(name) for name in run.tree["elements/order_parameter"]["path"].values]
    pairs = [(i, j) for i in range(len(paths)) for j in range(i, len(paths))]
    names = {paths[i] if i == j else f"{paths[i]} × {paths[j]}": (i, j) for i, j in pairs}
    scores = run.tree["elements/head_score"]["sampled"].values
    heads = run.tree["elements/head_score"]["head_name"].values
    shown = [tuple(at) for at in np.argwhere(np.isfinite(scores)).tolist()]
    of_heads = {
        f"layer {layer + 1}, head {h} ({heads[layer, h]})": (layer, h) for layer, h in shown
    }
    return {"Order parameter": names, "Head scores": of_heads}


def test_elements_are_the_stored_ones(run):
    in_terminal = rows_of(run.printed.split("\n\n")[0])
    for (title, places), quantity in zip(
        places_of(run).items(), ("order_parameter", "head_score"), strict=True
    ):
        table = run.page.table(title)
        assert len(table.rows) == 1 + len(places)
        if title == "Head scores":
            sampled = [float(values[3]) for values in table.values[1:]]
            assert sampled == sorted(sampled, reverse=True)
        for name, at in places.items():
            stored = elements(run, quantity, at)
            cells, values = page_row(table, name)
            forms = [cells] if title == "Head scores" else [cells, in_terminal[name]]
            for one, full in zip(stored, values, strict=True):
                assert float(full) == one[0], (name, title)
            for form in forms:
                for cell, (value, errors, unit) in zip(form, stored, strict=True):
                    assert_shows(cell, value, errors, unit, name)


# --- sentences


def test_every_number_of_the_verdicts_is_a_stored_one(run):
    """Differences with their errors, bounds of 95 %, and what the next order says of itself.

    That of U₁ to leading order also times the width.
    """
    start = run.page.text.index("How to cite")
    text = run.page.text[start : run.page.text.index("Relative error of")]
    verdict = text.split("MCMC diagnostics passed")[0]
    stored = [
        numbers
        for quantity in run.quantities
        for who in ORDERS
        for numbers in said_of(run, quantity, who)
    ]
    shown = [one for one in numbers_in(verdict) if (one.value, one.unit) != ("95", "%")]
    said = [one for one in shown if one.unit]
    assert said
    for one in said:
        assert any(one.shows(*each) for each in stored), one
    # All are said, headline first.
    for value, errors, unit in stored:
        assert any(one.shows(value, errors, unit) for one in shown), (value, unit)
    value, errors, _ = said_of(run, "order_parameter", "leading")[0]
    width = run.told.width
    assert any(one.shows(width * value, [width * error for error in errors]) for one in shown)
    doubts = {0.4137, 0.25, 0.7259}
    without_units = {float(one.value) for one in shown if not one.unit}
    assert doubts & without_units == (doubts if run.told.kind == "repetitions" else set())
    headline = plain(run.content["headline"])
    assert headline in plain(verdict)
    assert headline in plain(run.printed)


def test_diagnostics_are_the_stored_ones(run):
    stored = run.content["diagnostics"]
    worst = stored["quantities"].values()
    chains, draws = SHAPES[run.told.kind]
    expected = [
        (chains, ""), (draws, ""),
        (max(one["r_hat"] for one in worst), ""), (stored["r_hat_limit"], ""),
        (int(min(one["ess_bulk"] for one in worst)), ""),
        (int(min(one["ess_tail"] for one in worst)), ""), (400, ""),
    ]  # fmt: skip
    if run.told.kind == "chains":
        expected += [
            (min(stored["bfmi"]), ""),
            (0.3, ""),
            (0, ""),
            (chains * draws, ""),
            (0.1 / 100, "%"),
        ]
    (line,) = (one for one in run.diagnosed.splitlines() if "R-hat" in one)
    start = run.page.text.index("How to cite")
    page = run.page.text[start:].split("MCMC diagnostics passed")[1].split("Relative")[0]
    for text in (line, page):
        shown = numbers_in(text)
        assert len(shown) == len(expected), text
        for one, (value, unit) in zip(shown, expected, strict=True):
            assert one.shows(value, (), unit), (one, value)
    table = run.page.table("Worst element")
    for row, values, one in zip(table.rows[1:], table.values[1:], worst, strict=True):
        exact = [one["r_hat"], int(one["ess_bulk"]), int(one["ess_tail"])]
        assert [float(value) for value in values[1:4]] == exact
        for cell, value in zip(row[1:4], exact, strict=True):
            assert_shows(cell, value)


def test_costs_and_sizes_of_files_are_those_there_are(run):
    table, cost = run.page.table("The sampler"), run.content["cost"]
    shown = {row[0]: cell for row in table.rows[1:] for cell in [row[1]]}
    values = {row[0]: full[1] for row, full in zip(table.rows[1:], table.values[1:], strict=True)}
    names = list(shown)
    chains, draws = SHAPES[run.told.kind]
    assert [float(shown[name]) for name in names[:2]] == [chains, draws]
    for name, (key, value) in zip(names[-len(cost) :], cost.items(), strict=True):
        assert float(values[name]) == value, key
        assert_shows(shown[name], value, what=key)
    (files,) = (one for one in run.page.tables if "draws.nc" in [row[0] for row in one.rows])
    for name, _, size in files.rows[1:]:
        assert_shows(size, (run.directory / name).stat().st_size, (), "MiB", name)
