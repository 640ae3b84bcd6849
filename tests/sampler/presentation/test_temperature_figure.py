"""Figures of sweeps over temperatures, and over widths too, from what they are drawn from."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sampler.analysis.sweeps import PointSummary, SweepResults
from sampler.presentation import style
from sampler.presentation.figures.sweeps import (
    TEMPERATURE,
    WIDTH,
    draw_temperature_choice,
)
from sampler.presentation.figures.temperatures import draw_against_temperature
from sampler.storage.run_directory import SCHEMA_VERSION
from tests.held import held_sweep


def choice(temperature, accuracy):
    return {"settings": {TEMPERATURE: temperature}, "test_accuracy": {"value": accuracy}}


@pytest.fixture
def directory(tmp_path):
    """Two widths, two temperatures; the samples at the second width failed their diagnostics."""
    groups = []
    for width, temperature in ((10, 0.1), (100, 1.0)):
        theory = choice(temperature, 0.7) | {"settings": {WIDTH: width, TEMPERATURE: temperature}}
        sampled = {"accuracy": choice(temperature, 0.6)} if width == 10 else {"accuracy": None}
        groups.append(
            {
                "settings": {WIDTH: width},
                "theory": {"accuracy": theory},
                "gp": {"accuracy": choice(1.0, 0.5)},
                "sampled": sampled,
            }
        )
    (tmp_path / "selection.json").write_text(json.dumps({"by_temperature": groups}))
    axes = (WIDTH, TEMPERATURE)
    sampled = np.array([[0.6, np.nan], [np.nan, 0.55]])
    columns = {
        "validation_accuracy_theory": (axes, np.array([[0.8, 0.7], [0.6, 0.65]])),
        "accuracy_sampled": (axes, sampled),
        "accuracy_sampled_mcse": (axes, sampled / 100),
        "accuracy_sampled_binomial": (axes, sampled / 50),
    }
    places = ("point", "directory", "width", "stored")
    columns |= {name: (axes, np.zeros((2, 2))) for name in places}
    coordinates = {WIDTH: [10, 100], TEMPERATURE: [0.1, 1.0], "quantity": []}
    grid = xr.Dataset(columns, coords=coordinates)
    grid = grid.assign_attrs(schema_version=SCHEMA_VERSION)
    grid.to_netcdf(tmp_path / "sweep.nc", engine="h5netcdf")
    return tmp_path


@dataclass(frozen=True)
class Solved:
    """A point that has a theory."""

    theory: xr.Dataset


@dataclass(frozen=True)
class SweepWithTheory(SweepResults):
    """A sweep whose points lie elsewhere."""

    solved = Solved(xr.Dataset({"accuracy_trained": 0.9}))


def test_samples_that_failed_are_shown_as_such(directory):
    figure = draw_temperature_choice(SweepWithTheory(directory))
    grid = figure.axes[1]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "exact posterior" in labels
    assert "exact posterior (diagnostics failed)" in labels
    assert "trained network" in labels
    np.testing.assert_array_equal(grid.images[0].get_array(), [[80.0, 60.0], [70.0, 65.0]])
    np.testing.assert_array_equal(grid.lines[0].get_xydata(), [[0, 0], [1, 1]])


def test_the_next_order_has_its_curve_and_its_choices(directory):
    path = directory / "selection.json"
    groups = json.loads(path.read_text())
    for group, temperature in zip(groups["by_temperature"], (1.0, 0.1), strict=True):
        group["next_order"] = {"accuracy": choice(temperature, 0.65)}
    before = draw_temperature_choice(SweepWithTheory(directory))
    path.write_text(json.dumps(groups))
    after = draw_temperature_choice(SweepWithTheory(directory))
    labels = [
        {line.get_label(): line for line in figure.axes[0].lines} for figure in (before, after)
    ]
    assert "next order" not in labels[0]
    assert len(before.axes[1].lines) == 1
    assert before.axes[1].get_title() == "leading order on the validation split (○ chosen)"
    np.testing.assert_array_equal(labels[1]["next order"].get_ydata(), [65.0, 65.0])
    leading, beyond = after.axes[1].lines
    np.testing.assert_array_equal(leading.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(beyond.get_xydata(), [[0, 1], [1, 0]])


def test_other_sweeps_have_no_such_figure(directory):
    (directory / "selection.json").write_text(json.dumps({"theory": {}}))
    assert draw_temperature_choice(SweepWithTheory(directory)) is None
    (directory / "selection.json").unlink()
    assert draw_temperature_choice(SweepWithTheory(directory)) is None


def swept(scores, **setting):
    """A sweep in memory: temperature → its columns."""
    points = [
        PointSummary(
            str(value), Path(), {TEMPERATURE: value} | setting, 10, True, columns, {}
        )
        for value, columns in scores.items()
    ]  # fmt: skip
    return held_sweep(points=points)


def test_scores_against_the_temperature_have_the_best_of_each_marked():
    scores = {
        1.0: {"log_evidence": -3.0, "log_evidence_gp": -5.0, "validation_accuracy_theory": 0.9},
        0.1: {"log_evidence": -2.0, "log_evidence_gp": -6.0, "validation_accuracy_theory": 0.8},
    }
    evidence, accuracy = draw_against_temperature(swept(scores)).axes
    found = {one.get_label(): one.lines[0].get_xydata() for one in evidence.containers}
    np.testing.assert_array_equal(found["leading order"], [[0.1, -2.0], [1.0, -3.0]])
    np.testing.assert_array_equal(found["infinite width"], [[0.1, -6.0], [1.0, -5.0]])
    np.testing.assert_array_equal(accuracy.containers[0].lines[0].get_ydata(), [80.0, 90.0])
    marks = [line for line in evidence.lines if line.get_marker() == "v"]
    best = {line.get_color(): line.get_xdata()[0] for line in marks}
    # Beside the temperature by less than a tenth of the axis.
    assert best[style.THEORY] == pytest.approx(0.1, rel=0.1)
    assert best[style.GAUSSIAN_PROCESS] == pytest.approx(1.0, rel=0.1)


def test_a_sweep_over_more_than_temperatures_has_no_scores_against_them():
    scores = {value: {"log_evidence": -value} for value in (0.1, 1.0)}
    assert draw_against_temperature(swept(scores, **{WIDTH: 10})) is None
    assert draw_against_temperature(swept({0.1: scores[0.1]})) is None
    assert draw_against_temperature(swept({0.1: {}, 1.0: {}})) is None
