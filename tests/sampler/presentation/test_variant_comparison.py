"""The figure of attention variants: what is drawn is what the table says."""

from pathlib import Path

import numpy as np
import pytest

from sampler.analysis.sweeps import PointSummary, SweepResults, seed_averages
from sampler.presentation.figures.predictions import draw_accuracy_against_width
from sampler.presentation.figures.sweeps import draw_variant_comparison
from sampler.presentation.style import figure_style
from sampler.recipes.settings import FORM, short_label, variant_name
from tests.commands import write_sweep
from tests.held import held_sweep

COLUMNS = ("off_diagonal_share", "accuracy_theory", "accuracy_gp")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{kind = "softmax"}', "softmax"),
        ('{kind = "batch_normalised", beta = 1.0}', "batch normalised; beta 1.0"),
        (
            '[[{kind = "scaled_heads", scale = 1}, {kind = "scaled_heads", scale = 2}], '
            '[{kind = "scaled_heads", scale = 1}, {kind = "linear"}]]',
            "scaled heads and linear; scale 1, 2",
        ),
        ("10", None),
        ("not toml", None),
    ],
)
def test_a_variant_has_a_short_name(text, expected):
    assert variant_name(text) == expected


HEADS = [{"kind": "scaled_heads", "scale": 1, "beta": 1.0}, {"kind": "scaled_heads", "scale": 2}]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"network.widths": 10, "task.seed": 3}, "widths=10, seed=3"),
        ({"network.widths": (3, 4)}, "widths=[3, 4]"),
        ({"sampler.space": "weights"}, "space=weights"),
        ({"attention.form": {"kind": "softmax"}, "task.seed": 0}, "softmax, seed=0"),
        (
            {"attention.form": [HEADS, HEADS], "task.seed": 0},
            "scaled heads; scale 1, 2; beta 1.0, seed=0",
        ),
        (
            {"attention.form": [HEADS, [{"kind": "linear"}]], "task.seed": 12},
            "scaled heads and linear; scale 1…, seed=12",
        ),
    ],
)
def test_a_point_has_a_label_that_fits_an_axis(settings, expected):
    assert short_label(settings) == expected


FORMS = [{"kind": "softmax"}, {"kind": "linear"}]


def test_points_of_a_sweep_over_variants_have_their_labels(tmp_path):
    rows = [{"point": p, "directory": p, "width": 3, "accuracy_theory": 0.5} for p in "ab"]
    forms = [{"kind": "softmax", "mask": "causal"}, {"kind": "linear"}]
    write_sweep(tmp_path, rows, **{FORM: forms})
    with figure_style():
        figure = draw_accuracy_against_width(SweepResults(tmp_path))
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["softmax; mask causal", "linear"]


def swept(points):
    """A sweep in memory of settings with what was found there."""
    found = [
        PointSummary(str(place), Path(), settings, 3, True, columns, {})
        for place, (settings, columns) in enumerate(points)
    ]
    return held_sweep(seed_averages=seed_averages(found))


def test_every_variant_has_its_means_and_errors():
    points = [
        ({FORM: form, "task.seed": seed}, {n: base + k + seed for k, n in enumerate(COLUMNS)})
        for form, base in zip(FORMS, (0.1, 0.2), strict=True)
        for seed in (0.0, 0.2)
    ]
    with figure_style():
        figure = draw_variant_comparison(swept(points))
    alignment, share, accuracy = figure.axes
    assert [label.get_text() for label in alignment.get_yticklabels()] == ["softmax", "linear"]
    for ax, expected in ((alignment, [0.2, 0.3]), (share, [1.2, 1.3]), (accuracy, [2.2, 2.3])):
        np.testing.assert_allclose(ax.containers[0].lines[0].get_xdata(), expected, rtol=1e-12)
    (bars,) = alignment.containers[0].lines[2]
    half = np.ptp(np.array(bars.get_segments())[:, :, 0], axis=1) / 2
    np.testing.assert_allclose(half, [0.1, 0.1], rtol=1e-12)
    assert len(accuracy.containers) == 2  # without samples there is nothing to draw of them


@pytest.mark.parametrize(
    "settings",
    [
        [{FORM: FORMS[0]}],
        [{"network.widths": 10}, {"network.widths": 20}],
        [{FORM: FORMS[0], "network.widths": 10}, {FORM: 10}],
        [],
    ],
)
def test_other_sweeps_have_no_such_figure(settings):
    points = [(one | {"task.seed": 0}, dict.fromkeys(COLUMNS, 0.1)) for one in settings]
    assert draw_variant_comparison(swept(points)) is None
