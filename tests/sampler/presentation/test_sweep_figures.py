"""Figures of sweeps: what is drawn is what the points have, of those that have it."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from scipy.stats import norm, t

from sampler.analysis.comparison import ABOUT, cell, summary_table
from sampler.analysis.difference import difference_of
from sampler.analysis.estimates import Estimate
from sampler.analysis.quantities import QUANTITIES
from sampler.analysis.selection import TEMPERATURE
from sampler.analysis.sweep_dataset import along_grid
from sampler.analysis.sweep_results import SweepResults
from sampler.presentation import style
from sampler.presentation.figures.accuracy import draw_accuracy_against_width
from sampler.presentation.figures.against_width import draw_finite_size
from sampler.presentation.figures.temperatures import draw_against_temperature
from tests.commands import write_sweep
from tests.held import held_sweep


def of_colour(ax, colour: str) -> list[np.ndarray]:
    """[point, (x, y)] of every line of this colour."""
    return [line.get_xydata() for line in ax.lines if to_hex(line.get_color()).upper() == colour]


def test_accuracy_against_width_draws_the_stored_values(tmp_path):
    rows = [{"point": p, "directory": p, "width": w} for p, w in (("a", 10), ("b", 100))]
    accuracies = {"leading": [0.5, 0.25], "next": [0.625, np.nan], "sampled": [0.75, np.nan]}
    errors = {"error": [0.125, np.nan], "test_error": [0.25, np.nan]}
    write_sweep(tmp_path, rows, {"accuracy": accuracies}, errors)
    (ax,) = draw_accuracy_against_width(SweepResults(tmp_path)).axes
    (leading,), (beyond,) = of_colour(ax, style.THEORY), of_colour(ax, style.NEXT_ORDER)
    np.testing.assert_array_equal(leading, [[10, 50.0], [100, 25.0]])
    np.testing.assert_array_equal(beyond[:, 1], [62.5, np.nan])
    (points,) = of_colour(ax, style.SAMPLED)
    np.testing.assert_array_equal(points, [[10, 75.0]])
    assert not of_colour(ax, style.GAUSSIAN_PROCESS), "what is undefined has no line"
    assert ax.get_xscale() == "log"
    thin, thick = (bars.get_segments()[0][:, 1] for bars in ax.collections)
    np.testing.assert_array_equal(thin, [50.0, 100.0])
    np.testing.assert_array_equal(thick, [62.5, 87.5])


ERROR, DEGREES = 1e-4, 39


def over_widths(widths, predicted, sampled=2.0, paths=1) -> SweepResults:
    """A sweep over widths in memory, all elements of whose U_1 are equal: predictor → by width."""
    values = {**predicted, "sampled": np.full(len(widths), sampled)}
    matrices = np.array([[np.full((paths, paths), one) for one in of] for of in values.values()])
    key, names = "network.widths", [f"path {n}" for n in range(paths)]
    degrees = np.full((len(values), 1, len(widths)), float(DEGREES))
    columns = {
        "order_parameter": (("predictor", key, "path", "path_"), matrices),
        "order_parameter_error": ((key, "path", "path_"), np.full_like(matrices[0], ERROR)),
        "degrees": (("predictor", "quantity", key), degrees),
        "width": ((key,), widths),
    }
    texts = {"point": "", "sampled_space": "order_parameters", "diagnostics": "pass"}
    columns |= {n: ((key,), np.full(len(widths), text, dtype=object)) for n, text in texts.items()}
    axes = {key: widths, "predictor": list(values), "path": names, "path_": names}
    dataset = xr.Dataset(columns, axes | {"quantity": ["order_parameter"]})
    return held_sweep(dataset=dataset)


def test_finite_size_shows_values_and_differences_of_both_orders():
    """Theory off by 1/N and next order by 1/N² from N = 30 on."""
    widths = np.array([10, 30, 100, 300])
    beyond = np.where(widths > 10, 2.0 + 1.0 / widths**2, np.nan)
    sweep = over_widths(widths, {"leading": 2.0 + 1.0 / widths, "next": beyond})
    above, below = draw_finite_size(sweep).axes
    (values,) = of_colour(above, style.NEXT_ORDER)
    np.testing.assert_array_equal(values, np.stack([widths, beyond], axis=1))
    resolved, hidden = of_colour(below, style.NEXT_ORDER)
    # The difference at 30 and at 100 is more than noise or not, of a single element of U_1.
    np.testing.assert_allclose(resolved, [[30.0, 1 / 900]])
    chance = 2.0 * norm.sf(3.0)
    assert 2.0 * t.sf(1 / 900 / ERROR, DEGREES) < chance < 2.0 * t.sf(1e-4 / ERROR, DEGREES)
    # What a difference of one number is below with 95 % confidence.
    np.testing.assert_allclose(hidden, [[w, bound(1 / w**2)] for w in (100.0, 300.0)])
    (leading,) = of_colour(below, style.THEORY)
    np.testing.assert_allclose(leading, np.stack([widths, 1.0 / widths], axis=1))


def bound(gap: float) -> float:
    estimate = Estimate(np.array([2.0]), np.array([ERROR]), None, DEGREES)
    return difference_of(np.array([2.0 + gap]), estimate, unit="1")["below"]


def test_an_element_of_several_is_told_from_noise_by_the_limit_of_all_at_once():
    """3.5 errors are more than noise of one number, not of ten."""
    gap, shown = 3.5 * ERROR, {}
    for paths in (1, 4):
        sweep = over_widths(np.array([30, 10]), {"leading": [2.0 + gap, 2.0]}, paths=paths)
        below = draw_finite_size(sweep).axes[1 if paths == 1 else 2]
        points = np.concatenate(of_colour(below, style.THEORY)).tolist()
        (shown[paths],) = [point for point in points if point[0] == 30.0]
    limits = {paths: t.isf(norm.sf(3.0) / (paths * (paths + 1) / 2), DEGREES) for paths in shown}
    assert limits[1] < 3.5 < limits[4]
    np.testing.assert_allclose(shown[1], [30.0, gap])
    np.testing.assert_allclose(shown[4], [30.0, bound(gap)])


def swept(scores, **further):
    """A sweep in memory: temperature → quantity → predictor → number, and another key."""
    tables = []
    for value, of in scores.items():
        cells = {
            name: (QUANTITIES[name], {who: cell(Estimate(one)) for who, one in by.items()})
            for name, by in of.items()
        }
        row = {"point": str(value), "directory": str(value), "width": 10, "one_width": True}
        row |= {"stored": True, "next_order_status": "fine"}
        table = summary_table(cells, ["leading", "next", "infinite"])
        tables.append(table.drop_vars(ABOUT).assign(row))
    about = {name: ("quantity", [""] * len(QUANTITIES)) for name in ("label", "unit", "show")}
    dataset = (
        along_grid({TEMPERATURE: tuple(scores)} | further, tables)
        .reindex(quantity=list(QUANTITIES))
        .assign(about)
    )
    return held_sweep(dataset=dataset)


def test_scores_against_the_temperature_have_the_best_of_each_marked():
    scores = {
        1.0: {
            "log_evidence": {"leading": -3.0, "infinite": -5.0},
            "validation_accuracy": {"leading": 0.9, "next": 0.91},
        },
        0.1: {
            "log_evidence": {"leading": -2.0, "infinite": -6.0},
            "validation_accuracy": {"leading": 0.8, "next": 0.81},
        },
    }
    evidence, accuracy = draw_against_temperature(swept(scores)).axes
    lines = {to_hex(one.lines[0].get_color()).upper(): one.lines[0] for one in evidence.containers}
    np.testing.assert_array_equal(lines[style.THEORY].get_xydata(), [[0.1, -2.0], [1.0, -3.0]])
    limit = lines[style.GAUSSIAN_PROCESS].get_xydata()
    np.testing.assert_array_equal(limit, [[0.1, -6.0], [1.0, -5.0]])
    (of_accuracy,) = of_colour(accuracy, style.THEORY)[:1]
    np.testing.assert_array_equal(of_accuracy[:, 1], [80.0, 90.0])
    # The next order has no evidence here, and an entry all the same.
    legend = {text.get_text() for text in evidence.figure.legends[0].get_texts()}
    assert legend == {style.LEADING, style.NEXT, "infinite width"}
    marks = [line for line in evidence.lines if line.get_marker() == "v"]
    best = {line.get_color(): line.get_xdata()[0] for line in marks}
    # Beside the temperature by less than a tenth of the axis.
    assert best[style.THEORY] == pytest.approx(0.1, rel=0.1)
    assert best[style.GAUSSIAN_PROCESS] == pytest.approx(1.0, rel=0.1)
