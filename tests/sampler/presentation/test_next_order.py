"""The theory to next order, in figures and on pages: where it is known, and only there."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex

from sampler.analysis.difference import difference_of
from sampler.analysis.estimate import Estimate
from sampler.analysis.predictive_quality import PredictiveQuality, quality
from sampler.analysis.results import open_run
from sampler.analysis.sweep_dataset import stored_sweep
from sampler.analysis.sweeps import SweepResults, sweep_trend
from sampler.presentation import style
from sampler.presentation.figures.order_parameter import (
    draw_order_parameter,
    draw_order_parameter_against_width,
)
from sampler.presentation.figures.predictions import (
    draw_accuracy,
    draw_accuracy_against_width,
    draw_predictor,
    draw_reliability,
)
from sampler.presentation.figures.sweeps import draw_finite_size
from sampler.presentation.tables import selection_table
from sampler.storage.results import to_json
from tests.commands import write_sweep
from tests.held import held, held_sweep
from tests.pages import page_of, stored_run

EXPLANATION = "next order moves U_1 by 0.03 of its size (limit 0.25)"
FACTOR = {"order_parameter": 1.25, "predictor_mean": 1.5, "predictor_variance": 0.5}


def with_next_order(directory: Path) -> Path:
    """A copy of the stored run whose next order is a known multiple of the leading one."""
    stored_run(directory)
    theory = xr.load_dataset(directory / "theory.nc", engine="h5netcdf")
    for name, factor in (FACTOR | {"head_score": 1.0}).items():
        theory[f"{name}_next_order"] = factor * theory[name]
    theory["accuracy_next_order"] = 0.875
    theory.attrs |= {"next_order_status": "fine", "next_order_explanation": EXPLANATION}
    theory.to_netcdf(directory / "theory.nc", engine="h5netcdf")
    comparison = json.loads((directory / "comparison.json").read_text())
    for name, factor in FACTOR.items():
        table = comparison[name]
        table["next_order"] = (factor * np.array(table["theory"])).tolist()
    comparison["log_evidence"] = {
        "theory": -10.5,
        "next_order": -10.25,
        "gp": -12.0,
        "sampled": {"value": -10.2, "mcse": 0.01, "method": "importance", "trusted": True},
    }
    (directory / "comparison.json").write_text(json.dumps(comparison))
    return directory


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Path:
    return with_next_order(tmp_path_factory.mktemp("results") / "run")


@pytest.fixture(scope="module")
def unknown(tmp_path_factory) -> Path:
    return stored_run(tmp_path_factory.mktemp("results") / "run")


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr("sampler.presentation.report.write.draw_figures", lambda *_, **__: [])


def texts(figure) -> str:
    """Everything that is written in a figure."""
    legends = [one for ax in figure.axes if (one := ax.get_legend()) is not None]
    found = [text.get_text() for one in legends + figure.legends for text in one.get_texts()]
    for ax in figure.axes:
        found += [ax.get_title(loc) for loc in ("left", "center", "right")]
        found += [label.get_text() for label in ax.get_yticklabels()]
    return "\n".join(found)


def points(ax, colour: str) -> list[np.ndarray]:
    """[point, (x, y)] of every line of this colour."""
    return [line.get_xydata() for line in ax.lines if to_hex(line.get_color()).upper() == colour]


# --- figures of a run


def test_accuracy_has_its_row_after_the_leading_order(known, unknown):
    (ax,) = draw_accuracy(open_run(known)).axes
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == [style.LEADING, style.NEXT]
    (drawn,) = points(ax, style.NEXT_ORDER)
    np.testing.assert_array_equal(drawn, [[87.5, 1.0]])
    assert style.NEXT not in texts(draw_accuracy(open_run(unknown)))


def test_order_parameter_shows_both_orders_and_both_differences(known, unknown):
    run = open_run(known)
    compared = run.compared("order_parameter")
    figure = draw_order_parameter(run)
    shown = {ax.get_title(): ax.images[0].get_array() for ax in figure.axes if ax.get_title()}
    exact = run.sampled_label.replace(" (", "\n(")
    beyond = 1.25 * compared.theory
    np.testing.assert_array_equal(shown[style.NEXT], beyond)
    values, differences = {exact}, set()
    for name, theory in ((style.LEADING, compared.theory), (style.NEXT, beyond)):
        expected = (compared.sampled.value - theory) / compared.sampled.mcse
        gap = f"(exact − {name})\nin MCSE"
        np.testing.assert_allclose(shown[gap], expected, rtol=1e-12)
        values.add(name)
        differences.add(gap)
    assert set(shown) == values | differences
    for group in (values, differences):
        scales = {ax.images[0].get_clim() for ax in figure.axes if ax.get_title() in group}
        assert len(scales) == 1
    assert "next order" not in texts(draw_order_parameter(open_run(unknown)))


def test_order_parameter_of_theory_alone_shows_both_orders():
    names = ("order_parameter", "order_parameter_next_order")
    orders = {
        name: (("path", "path_"), (1.0 + place) * np.eye(2)) for place, name in enumerate(names)
    }
    figure = draw_order_parameter(held(xr.Dataset(orders, {"path": ["a", "b"]})))
    images = [ax.images[0].get_array() for ax in figure.axes if ax.get_title()]
    assert [image[0, 0] for image in images] == [1.0, 2.0]


def test_predictor_shows_the_samples_against_both_orders(known, unknown):
    run = open_run(known)
    figure = draw_predictor(run)
    for ax, name in zip(figure.axes, ("predictor_mean", "predictor_variance"), strict=True):
        compared = run.compared(name)
        expected = np.stack([FACTOR[name] * compared.theory, compared.sampled.value], axis=1)
        (drawn,) = points(ax, style.NEXT_ORDER)
        np.testing.assert_array_equal(drawn, expected)
        low, high = ax.get_xlim()
        assert low < drawn.min() <= drawn.max() < high
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["equal", style.LEADING, style.NEXT]
    assert "next order" not in texts(draw_predictor(open_run(unknown)))


def test_reliability_has_a_panel_for_it(rng):
    labels = np.where(rng.random((200, 1)) < 0.5, 1.0, -1.0)
    found = quality(np.log(rng.random((200, 1, 2))), labels)
    both = PredictiveQuality(found, None, found, found)
    figure = draw_reliability(held(predictive_quality=both))
    titles = [ax.get_title().split("\n")[0] for ax in figure.axes]
    assert [title for title in titles if title] == [style.LEADING, style.NEXT, style.EXACT]
    leading = held(predictive_quality=replace(both, next_order=None))
    assert "next order" not in texts(draw_reliability(leading))


# --- figures of a sweep


@pytest.mark.parametrize(("number", "expected"), [(0.75, [75.0, np.nan]), (None, None)])
def test_accuracy_against_width_has_its_own_line(tmp_path, number, expected):
    first = {"point": "a", "directory": "a", "width": 10, "accuracy_theory": 0.5}
    second = {"point": "b", "directory": "b", "width": 100, "accuracy_theory": 0.25}
    write_sweep(tmp_path, [first | {"accuracy_next_order": number}, second])
    figure = draw_accuracy_against_width(SweepResults(tmp_path))
    drawn = points(figure.axes[0], style.NEXT_ORDER)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    if expected is None:
        assert drawn == []
        assert labels == [style.LEADING]
    else:
        np.testing.assert_array_equal(drawn[0][:, 1], expected)
        assert labels == [style.LEADING, style.NEXT]


def test_order_parameters_of_a_sweep_have_a_row_for_it(known, unknown, tmp_path):
    for directory, rows in ((known, 3), (unknown, 2)):
        write_sweep(tmp_path, [{"point": "a", "directory": str(directory), "width": 10}])
        figure = draw_order_parameter_against_width(SweepResults(tmp_path))
        assert len([ax for ax in figure.axes if ax.get_title()]) == rows
        assert ("next order\n$N$ = 10" in texts(figure)) == (rows == 3)


def finite_size(next_order: bool) -> dict:
    """The content of `finite_size.json` of one path, theory off by 1/N and next order by 1/N²."""
    widths = np.array([10.0, 30.0, 100.0, 300.0])

    def column(values):
        return np.reshape(values, (-1, 1, 1)).tolist()

    sampled = {
        "widths": widths.tolist(),
        "trusted": [True] * 4,
        "order_parameter": column(np.full(4, 2.0)),
        "mcse": column(np.full(4, 1e-4)),
        "difference": column(1 / widths),
    }
    theory = {"widths": widths.tolist(), "order_parameter": column(2.0 + 1 / widths)}
    law = {"path": "good", "slope_error": 0.01, "prefactor": 1.0, "widths": [30, 100, 300]}
    table = {
        "paths": ["good"], "theory": theory, "sampled": {"order_parameters": sampled},
        "power_laws": [law | {"slope": -1.0}],
    }  # fmt: skip
    if next_order:
        beyond = (1 / widths**2).tolist()
        theory["order_parameter_next_order"] = column([None, *(2.0 + np.array(beyond[1:]))])
        sampled["difference_next_order"] = column([None, *beyond[1:]])
        table["power_laws_next_order"] = [law | {"slope": -2.0}]
    return table


def test_finite_size_shows_values_differences_and_law_of_both_orders():
    above, below = draw_finite_size(held_sweep(finite_size=finite_size(next_order=True))).axes
    (values,) = points(above, style.NEXT_ORDER)
    np.testing.assert_allclose(values[1:, 1], 2.0 + 1 / values[1:, 0] ** 2)
    assert np.isnan(values[0, 1])
    resolved, hidden, _, law = points(below, style.NEXT_ORDER)
    # The difference at 30 and at 100 is resolved or not by 3 MCSE of 1e-4.
    np.testing.assert_allclose(resolved, [[30.0, 1 / 900]])
    np.testing.assert_allclose(hidden, [[100.0, 1e-4 + 3e-4], [300.0, 1 / 9e4 + 3e-4]])
    np.testing.assert_allclose(law[:, 1], law[:, 0] ** -2.0)
    assert below.get_title("left") == "slope −1.00 ± 0.01, $N$ = 30 to 300\n "
    assert below.get_title("center") == "slope −2.00 ± 0.01, $N$ = 30 to 300"


@pytest.mark.parametrize("nulls", [False, True])
def test_finite_size_is_as_before_where_no_point_has_it(nulls):
    table = finite_size(next_order=nulls)
    if nulls:
        del table["power_laws_next_order"]
        table["theory"]["order_parameter_next_order"] = [[[None]]] * 4
        table["sampled"]["order_parameters"]["difference_next_order"] = [[[None]]] * 4
    figure = draw_finite_size(held_sweep(finite_size=table))
    assert "next order" not in texts(figure)
    assert [points(ax, style.NEXT_ORDER) for ax in figure.axes] == [[], []]
    assert figure.axes[1].get_title("left") == "slope −1.00 ± 0.01, $N$ = 30 to 300"


# --- pages


@pytest.mark.usefixtures("without_figures")
def test_the_page_of_a_run_has_both_orders_side_by_side(known, unknown):
    page = page_of(known)
    table = page.table("Order parameter U₁")
    assert table.rows[0][:4] == ["paths", "leading order", "next order", "exact posterior"]
    for values in table.values[1:]:
        assert float(values[2]) == pytest.approx(1.25 * float(values[1]))
    accuracy = page.table("At a glance")
    assert [row[0] for row in accuracy.rows[1:3]] == ["leading order", "next order"]
    assert float(accuracy.values[2][1]) == 0.875
    numbers = page.table("Accuracy, scores and evidence")
    assert numbers.row("log evidence, by importance")[1:4] == [
        "−10.50",
        "−10.25",
        "−10.200 ± 0.010",
    ]
    assert f"; {EXPLANATION}." in page.text
    assert "next order" not in page_of(unknown).text


@pytest.mark.heavy
@pytest.mark.usefixtures("without_figures")
def test_the_page_of_a_sweep_has_both_orders(tmp_path):
    directory = tmp_path / "sweep"
    directory.mkdir()
    text = (stored_run(tmp_path / "one") / "recipe.toml").read_text()
    (directory / "recipe.toml").write_text(text + '[sweep]\n"network.widths" = [3, 30]\n')
    for width in (3, 30):
        point = with_next_order(directory / f"network.widths={width}")
        comparison = json.loads((point / "comparison.json").read_text())
        comparison["diagnostics"] |= {"verdict": "pass", "reasons": []}
        table = comparison["order_parameter"]
        mcse = 1e-3 * np.array(table["mcse"])
        sampled = Estimate(np.array(table["sampled"]), mcse, None, 39)
        comparison["differences"] = {
            f"order_parameter{order}": to_json(
                difference_of("order_parameter", np.array(table[key]), sampled)
            )
            for order, key in (("", "theory"), ("_next_order", "next_order"))
        }
        (point / "comparison.json").write_text(json.dumps(comparison))
    page = page_of(directory)
    table = page.table("Points")
    place = {name: at for at, name in enumerate(table.rows[0])}
    entry = json.loads((directory / "network.widths=3" / "comparison.json").read_text())
    values = table.values[1]
    assert float(values[place["next order"]]) == 0.875
    for name, key in (("U₁ off by", ""), ("U₁ off by, next order", "_next_order")):
        expected = entry["differences"][f"order_parameter{key}"]["value"]
        assert float(values[place[name]]) == expected
    law = {"path": "good", "slope": -2.0, "slope_error": 0.1}
    points = stored_sweep(directory).points
    reasons = " ".join(sweep_trend(points, {"power_laws_next_order": [law]}).reasons)
    assert "difference of U₁ to next order, from N = 30 on: good −2.00 ± 0.10." in reasons


def choice(temperature, second=None):
    runner_up = {"settings": {"posterior.temperature": second}, "within_errors": True}
    return {
        "settings": {"posterior.temperature": temperature, "network.widths": 10},
        "runner_up": second and runner_up,
    }


def test_the_choices_of_a_sweep_stand_side_by_side():
    chosen = {
        "theory": {"accuracy": choice(0.1)},
        "next_order": {"accuracy": choice(1.0, 0.1)},
        "log_evidence": {"next_order": {"log_evidence": choice(10.0)}, "gp": {}},
    }
    table = selection_table({"by_temperature": [chosen | {"settings": {"network.widths": 10}}]})
    assert {column.header: cells for column, cells in table.shown} == {
        "chosen by": ["widths=10: accuracy", "widths=10: log evidence of the training labels"],
        "leading order": ["temperature=0.1", ""],
        "next order": ["temperature=1.0 (temperature=0.1)", "temperature=10.0"],
    }
    assert not selection_table(None)
    assert not selection_table({"theory": {"accuracy": None}, "log_evidence": {}})
