"""Figures of sweeps and of models: what is drawn is what is stored."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.stats import binom, norm, t

from sampler.analysis.difference import element_bound
from sampler.analysis.sweep_results import PointSummary, SweepResults
from sampler.presentation import style
from sampler.presentation.figures.accuracy import draw_accuracy_against_width, draw_band
from sampler.presentation.figures.against_width import draw_finite_size
from sampler.presentation.figures.order_parameter import (
    draw_order_parameter_against_width,
)
from sampler.presentation.figures.temperatures import draw_against_temperature
from sampler.presentation.several_runs import draw_models
from tests.commands import write_sweep
from tests.sampler.presentation.drawn import assert_bars, bars_of, of_colour, of_lines
from tests.told.held import held, held_sweep, theory_of

PAIRS = ("path", "path_")


def test_accuracy_against_width_draws_the_stored_values(tmp_path):
    rows = [{"point": p, "directory": p, "width": w} for p, w in (("a", 10), ("b", 100))]
    accuracies = {"leading": [0.5, 0.25], "next": [0.625, np.nan], "sampled": [0.75, np.nan]}
    errors = {"error": [0.125, np.nan], "test_error": [0.25, np.nan]}
    write_sweep(tmp_path, rows, {"accuracy": accuracies}, errors)
    (ax,) = draw_accuracy_against_width(SweepResults(tmp_path)).axes
    (leading,), (beyond,) = of_colour(ax, style.THEORY), of_colour(ax, style.NEXT_ORDER)
    np.testing.assert_array_equal(leading, [[10, 50.0], [100, 25.0]])
    np.testing.assert_array_equal(beyond[:, 1], [62.5, np.nan])
    np.testing.assert_array_equal(of_colour(ax, style.SAMPLED), [[[10, 75.0]]])
    assert not of_colour(ax, style.GAUSSIAN_PROCESS), "what is undefined has no line"
    thin, thick = (bars.get_segments()[0][:, 1] for bars in ax.collections)
    np.testing.assert_array_equal(thin, [50.0, 100.0])
    np.testing.assert_array_equal(thick, [62.5, 87.5])


def test_the_band_of_an_accuracy_is_its_binomial_deviation():
    """Where all test sets have one size."""
    shares, widths, tests = np.array([0.5, 0.1]), np.array([10.0, 100.0]), 40

    def drawn(*runs) -> Axes:
        ax, sweep = Figure().subplots(), held_sweep(runs=runs, numbers=lambda _: shares)
        assert draw_band(ax, widths, sweep) == bool(ax.collections)
        return ax

    run, other, unsolved = (
        held(theory=size and xr.Dataset(coords={"test_example": range(size)}))
        for size in (tests, tests + 1, None)
    )
    assert not drawn(run, other).collections
    ax = drawn(run, None, run, unsolved)
    outline = ax.collections[0].get_paths()[0].vertices
    for width, share in zip(widths, shares, strict=True):
        heights = outline[outline[:, 0] == width, 1]
        deviation = binom.std(tests, share) / tests
        expected = 100 * (share - deviation), 100 * (share + deviation)
        np.testing.assert_allclose([heights.min(), heights.max()], expected)


ERROR, DEGREES = 1e-4, 39


def over_widths(widths, predicted, paths=1) -> SweepResults:
    """A sweep over widths in memory, whose sampled U_1 is 2 in every element."""
    values = {**predicted, "sampled": np.full(len(widths), 2.0)}
    matrices = np.array(list(values.values()))[:, :, None, None] * np.ones((paths, paths))
    key, degrees = "network.widths", np.full((len(values), 1, len(widths)), float(DEGREES))
    columns = {
        "order_parameter": (("predictor", key, *PAIRS), matrices),
        "order_parameter_error": ((key, *PAIRS), np.full_like(matrices[0], ERROR)),
        "degrees": (("predictor", "quantity", key), degrees),
        "width": ((key,), widths),
    }
    texts = {"point": "", "sampled_space": "order_parameters", "diagnostics": "pass"}
    columns |= {n: ((key,), np.full(len(widths), text, dtype=object)) for n, text in texts.items()}
    names = [f"path {number}" for number in range(paths)]
    axes = {key: widths, "predictor": list(values), "path": names, "path_": names}
    return held_sweep(dataset=xr.Dataset(columns, axes | {"quantity": ["order_parameter"]}))


def test_finite_size_shows_values_and_differences_of_both_orders():
    """Theory off by 1/N and next order by 1/N² from N = 30 on; in noise the 95 % bound is drawn."""
    widths = np.array([10, 30, 100, 300])
    beyond = np.where(widths > 10, 2.0 + 1.0 / widths**2, np.nan)
    sweep = over_widths(widths, {"leading": 2.0 + 1.0 / widths, "next": beyond})
    above, below = draw_finite_size(sweep).axes
    np.testing.assert_array_equal(of_colour(above, style.NEXT_ORDER)[0][:, 1], beyond)
    resolved, hidden = of_colour(below, style.NEXT_ORDER)
    np.testing.assert_allclose(resolved, [[30.0, 1 / 900]])
    bounds = [[w, element_bound(1 / w**2, ERROR, DEGREES)] for w in (100.0, 300.0)]
    np.testing.assert_allclose(hidden, bounds)
    (leading,) = of_colour(below, style.THEORY)
    np.testing.assert_allclose(leading, np.stack([widths, 1.0 / widths], axis=1))


def test_a_difference_in_one_of_several_elements_has_the_limit_of_all():
    """Two paths have three elements: Bonferroni's limit of Student's t, as rare as three σ."""
    limit = t.isf(norm.sf(3.0) / 3, DEGREES) * ERROR
    off = np.array([1.01, 0.99]) * limit
    sweep = over_widths(np.array([10, 30]), {"leading": 2.0 + off}, paths=2)
    *_, first, second = draw_finite_size(sweep).axes
    for below in (first, second):
        resolved, hidden = of_colour(below, style.THEORY)
        np.testing.assert_allclose(resolved, [[10.0, off[0]]])
        np.testing.assert_allclose(hidden, [[30.0, element_bound(off[1], ERROR, DEGREES)]])


def test_scores_against_the_temperature_have_the_best_of_each_marked(tmp_path):
    temperatures = [0.1, 1.0]
    row = {"width": 10, "next_order_status": "fine"}
    rows = [{"point": str(one), "directory": str(one), **row} for one in temperatures]
    evidence = {"leading": [-2.0, -3.0], "next": [np.nan] * 2, "infinite": [-6.0, -5.0]}
    accuracy = {"leading": [0.8, 0.9], "next": [0.81, 0.91], "infinite": [np.nan] * 2}
    numbers = {"log_evidence": evidence, "validation_accuracy": accuracy}
    write_sweep(tmp_path, rows, numbers, **{"posterior.temperature": temperatures})
    first, second = draw_against_temperature(SweepResults(tmp_path)).axes
    lines = {to_hex(one.lines[0].get_color()).upper(): one.lines[0] for one in first.containers}
    for who, colour in (("leading", style.THEORY), ("infinite", style.GAUSSIAN_PROCESS)):
        expected = np.stack([temperatures, evidence[who]], axis=1)
        np.testing.assert_array_equal(lines[colour].get_xydata(), expected)
    np.testing.assert_array_equal(of_colour(second, style.THEORY)[0][:, 1], [80.0, 90.0])
    marks = [line for line in first.lines if line.get_marker() == "v"]
    best = {line.get_color(): line.get_xdata()[0] for line in marks}
    # Beside the temperature by less than a tenth of the axis.
    assert best[style.THEORY] == pytest.approx(0.1, rel=0.1)
    assert best[style.GAUSSIAN_PROCESS] == pytest.approx(1.0, rel=0.1)


def test_every_path_has_its_own_panel_with_values_and_errors_of_its_element(rng):
    """Of the theory and of one of the user's own, element by element.

    Samples that failed are crosses; those of another space have values, but no differences.
    """
    widths, paths, names = np.array([10, 30, 100, 300]), 3, ["leading", "mine"]
    sweep = over_widths(widths, dict.fromkeys(names, np.zeros(4)), paths)
    values, errors = rng.uniform(1.0, 2.0, (3, 4, 3, 3)), rng.uniform(1e-3, 2e-3, (4, 3, 3))
    values[:2] += 2.0  # all differences are far outside the noise
    table = sweep.dataset.copy(deep=True)
    table["order_parameter"].values[:], table["order_parameter_error"].values[:] = values, errors
    table["diagnostics"].values[1], table["sampled_space"].values[2] = "fail", "weights"
    by_title = draw_finite_size(held_sweep(dataset=table)).axes
    for path in range(paths):
        (place,) = (n for n, ax in enumerate(by_title) if ax.get_title() == f"path {path}")
        above, below = by_title[place], by_title[place + 2]
        *theories, sampled = values[:, :, path, path]
        error = errors[:, path, path]
        found = {tuple(bars_of(one)[0][:, 0].astype(int)): one for one in above.containers}
        assert set(found) == {(10, 300), (30,), (100,)}
        for shown, bars in found.items():
            at = np.searchsorted(widths, shown)
            assert_bars(bars, widths[at], sampled[at], error[at])
            assert (bars.lines[0].get_marker() == "x") == (shown == (30,))
        crosses, at = [line for line in below.lines if line.get_marker() == "x"], [0, 3]
        for name, theory, bars, failed in zip(
            names, theories, below.containers, crosses, strict=True
        ):
            (curve,) = of_colour(above, style.colour_of(name, names))
            np.testing.assert_array_equal(curve, np.stack([widths, theory], axis=1))
            gap = np.abs(theory - sampled)
            assert_bars(bars, widths[at], gap[at], error[at])
            np.testing.assert_allclose(failed.get_xydata(), [[30, gap[1]]])


def test_the_best_temperature_is_one_that_may_be_chosen(tmp_path):
    """Neither of samples that failed, nor of a next order that does not hold."""
    temperatures, passed = [0.1, 1.0, 10.0], ["pass", "fail", "pass"]
    rows = [
        {"point": f"{one}", "directory": f"{one}", "width": 10, "diagnostics": of}
        | {"next_order_status": status}
        for one, of, status in zip(temperatures, passed, ["fine", "large", "fine"], strict=True)
    ]
    accuracy = {
        "leading": [0.7, 0.9, 0.8], "next": [0.6, 0.9, 0.7], "sampled": [0.75, 0.875, 0.5],
        "infinite": [0.5, 0.25, 0.625],
    }  # fmt: skip
    errors = {"error": [0.125, 0.0625, 0.25]}
    numbers = {"validation_accuracy": accuracy}
    write_sweep(tmp_path, rows, numbers, errors, **{"posterior.temperature": temperatures})
    (ax,) = draw_against_temperature(SweepResults(tmp_path)).axes
    best = {"leading": 1.0, "next": 10.0, "sampled": 0.1, "infinite": 10.0}
    marks = {line.get_color(): line for line in ax.lines if line.get_marker() == "v"}
    for who, at in best.items():
        # Beside the temperature by less than a fifth of the distance to the next.
        assert marks[style.colour_of(who)].get_xdata()[0] == pytest.approx(at, rel=0.2), who
    (failed,) = (line for line in ax.lines if line.get_marker() == "x")
    np.testing.assert_allclose(failed.get_xydata(), [[1.0, 87.5]])
    (sampled,) = (
        one for one in ax.containers if to_hex(one.lines[0].get_color()).upper() == style.SAMPLED
    )
    marks, _, (segments,) = sampled.lines
    np.testing.assert_allclose(marks.get_ydata(), [75.0, np.nan, 50.0])
    ends = [one[:, 1] for one in segments.get_segments() if np.isfinite(one).all() and len(one)]
    np.testing.assert_allclose(ends, [[62.5, 87.5], [25.0, 75.0]])


def test_accuracies_of_every_space_have_their_errors_and_are_hollow_where_they_failed(tmp_path):
    """In the order of widths, whatever that of the rows."""
    points = [
        (100, "weights", "pass"), (10, "order_parameters", "pass"), (30, "order_parameters", "fail")
    ]  # fmt: skip
    names = "width", "sampled_space", "diagnostics"
    rows = [
        {"point": f"{of[0]}", "directory": f"{of[0]}", **dict(zip(names, of, strict=True))}
        for of in points
    ]
    accuracy = {
        "leading": [0.5, 0.25, 0.75], "sampled": [0.75, 0.375, 0.625],
        "infinite": [0.25, 0.25, 0.25], "infinite_tuned": [0.5, 0.5, 0.5],
    }  # fmt: skip
    errors = {"error": [0.03125, 0.0625, 0.015625], "test_error": [0.125, 0.25, 0.0625]}
    write_sweep(tmp_path, rows, {"accuracy": accuracy}, errors)
    (ax,) = draw_accuracy_against_width(SweepResults(tmp_path)).axes
    drawn = {tuple(line.get_xydata()[0]): line for line in of_lines(ax, style.SAMPLED)}
    assert set(drawn) == {(10, 37.5), (30, 62.5), (100, 75.0)}
    for (width, _), line in drawn.items():
        assert (to_hex(line.get_markerfacecolor()) == "#ffffff") == (width == 30)
    lines = [one for one in ax.collections if isinstance(one, LineCollection)]
    bars = sorted(tuple(np.ravel(ends)) for one in lines for ends in one.get_segments())
    expected = [
        (w, 100 * (value - error), w, 100 * (value + error))
        for (w, *_), value, *of in zip(points, accuracy["sampled"], *errors.values(), strict=True)
        for error in of
    ]
    np.testing.assert_allclose(bars, sorted(expected))
    levels = sorted(line.get_ydata()[0] for line in of_lines(ax, style.GAUSSIAN_PROCESS))
    assert levels == [25.0, 50.0]
    (leading,) = of_colour(ax, style.THEORY)
    np.testing.assert_array_equal(leading, [[10, 25.0], [30, 75.0], [100, 50.0]])


def test_of_many_points_every_second_has_its_name_below_it(tmp_path):
    """Where no widths were swept points stand side by side."""
    seeds, shares = 7 * np.arange(30), np.arange(30) / 64
    rows = [{"point": f"{one}", "directory": f"{one}", "width": 10} for one in seeds]
    numbers = {"accuracy": {"leading": list(shares)}}
    write_sweep(tmp_path, rows, numbers, **{"sampler.seed": [int(one) for one in seeds]})
    (ax,) = draw_accuracy_against_width(SweepResults(tmp_path)).axes
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    named = {place: int(text.get_text().split("=")[-1]) for place, text in ticks}
    assert named == {place: 7 * place for place in range(0, 30, 2)}
    (points,) = of_colour(ax, style.THEORY)
    np.testing.assert_allclose(points, np.stack([np.arange(30), 100 * shares], axis=1))


@pytest.mark.parametrize(
    ("given", "widened"),
    [
        ((40.0, 50.0), (35.0, 55.0)),
        ((10.0, 60.0), (10.0, 60.0)),
        ((95.0, 100.0), (80.5, 100.5)),
        ((0.0, 5.0), (-0.5, 19.5)),
    ],
)
def test_an_axis_of_accuracies_spans_twenty_points_within_all_of_them(given, widened):
    ax = Figure().subplots()
    ax.set_ylim(given)
    style.accuracy_axis(ax.yaxis)
    assert ax.get_ylim() == pytest.approx(widened)


def test_a_sweep_shows_order_parameters_at_its_smallest_width_and_at_two_more():
    """At the first that is solved, at 100 and at 1000, each on a colour scale of its own."""
    widths = np.array([10.0, 20.0, 100.0, 500.0, 1000.0])
    matrices = {w: np.diag([w, 2.0]) for w in widths}
    of_theory = [{"leading": {"order_parameter": (PAIRS, one)}} for one in matrices.values()]
    runs = [held(theory_of(one).assign_coords(path=["a", "b"])) for one in of_theory]
    rows = [PointSummary("", Path(), {}, {"width": width}, {}) for width in widths]
    sweep = held_sweep(runs=[None, *runs[1:]], rows=rows)
    figure = draw_order_parameter_against_width(sweep)
    images = [ax.images[0] for ax in figure.axes if ax.images and ax.get_title()]
    for image, width in zip(images, (20.0, 100.0, 1000.0), strict=True):
        np.testing.assert_array_equal(image.get_array(), matrices[width])
        assert image.get_clim() == (-width, width)
        assert image.axes.get_title().split()[-1] == f"{width:g}"


def test_models_are_drawn_below_the_best_by_how_far_they_are_behind():
    columns = {"elpd_diff": [0.0, 2.5, 4.0], "dse": [0.0, 0.5, 1.25]}
    (ax,) = draw_models(pd.DataFrame(columns, index=["best", "second", "third"])).axes
    points, ends = bars_of(ax.containers[0])
    np.testing.assert_allclose(points, [[0.0, 0], [-2.5, 1], [-4.0, 2]])
    np.testing.assert_allclose(ends[:, 0], [[0.0, 0.0], [-3.0, -2.0], [-5.25, -2.75]])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["best", "second", "third"]
    bottom, top = ax.get_ylim()
    assert top < 0.0 < 2.0 < bottom
