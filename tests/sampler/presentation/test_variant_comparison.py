"""The figure of attention variants: what is drawn is what the table says."""

import csv

import numpy as np
import pytest

from sampler.analysis.sweeps import SEED_AVERAGES_FILE as TABLE
from sampler.analysis.sweeps import SweepResults
from sampler.presentation.figures.accuracy import draw_accuracy_against_width
from sampler.presentation.figures.studies import (
    draw_variant_comparison,
    short_label,
    variant_name,
)
from sampler.presentation.style import figure_style
from sampler.recipes.recipe import load_recipe
from tests.commands import write_sweep

COLUMNS = ("path_alignment", "off_diagonal_share", "accuracy_theory", "accuracy_gp")


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


def test_points_of_a_sweep_over_variants_have_their_labels(tmp_path):
    """Taken from the recipe, whatever is written in the labels; without one, the labels."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'name = "a"\ntask = {kind = "markov_chain"}\nnetwork = {widths = 3}\n'
        '[sweep]\n"attention.form" = [{kind = "softmax", mask = "causal"}, {kind = "linear"}]\n'
    )
    points = [label for label, _ in load_recipe(recipe).points()]
    rows = [{"point": p, "directory": p, "width": 3, "accuracy_theory": 0.5} for p in points]
    write_sweep(tmp_path, rows)

    def labels() -> list[str]:
        with figure_style():
            figure = draw_accuracy_against_width(SweepResults(tmp_path))
        return [label.get_text() for label in figure.axes[0].get_xticklabels()]

    assert labels() == ["softmax; mask causal", "linear"]
    recipe.unlink()
    assert labels() == points


def write(directory, settings):
    with (directory / TABLE).open("w", encoding="utf-8", newline="") as stream:
        names = [*COLUMNS, *(f"{name}_error" for name in COLUMNS)]
        table = csv.DictWriter(stream, ["settings", "points", *names])
        table.writeheader()
        for place, text in enumerate(settings):
            numbers = {name: 0.1 * (place + 1) + 0.01 * n for n, name in enumerate(names)}
            table.writerow({"settings": text, "points": 3} | numbers)


def test_every_variant_has_its_means_and_errors(tmp_path):
    write(tmp_path, ['attention.form={kind = "softmax"}', 'attention.form={kind = "linear"}'])
    with figure_style():
        figure = draw_variant_comparison(SweepResults(tmp_path))
    alignment, share, accuracy = figure.axes
    assert [label.get_text() for label in alignment.get_yticklabels()] == ["softmax", "linear"]
    for ax, expected in ((alignment, [0.1, 0.2]), (share, [0.11, 0.21]), (accuracy, [0.12, 0.22])):
        np.testing.assert_allclose(ax.containers[0].lines[0].get_xdata(), expected, rtol=1e-12)
    (bars,) = alignment.containers[0].lines[2]
    half = np.ptp(np.array(bars.get_segments())[:, :, 0], axis=1) / 2
    np.testing.assert_allclose(half, [0.14, 0.24], rtol=1e-12)
    assert len(accuracy.containers) == 2  # without samples there is nothing to draw of them


@pytest.mark.parametrize(
    "settings",
    [
        ['attention.form={kind = "softmax"}'],
        ["network.widths=10", "network.widths=20"],
        ['attention.form={kind = "softmax"},network.widths=10', "attention.form=10"],
    ],
)
def test_other_sweeps_have_no_such_figure(tmp_path, settings):
    assert draw_variant_comparison(SweepResults(tmp_path)) is None
    write(tmp_path, settings)
    assert draw_variant_comparison(SweepResults(tmp_path)) is None
