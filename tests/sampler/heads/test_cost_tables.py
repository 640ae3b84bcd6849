"""Tables and figures of removed heads: what fits, what is shown, what is left out."""

import numpy as np
import pytest
import xarray as xr

from sampler.heads import cost_tables, figures
from sampler.presentation.style import figure_style

HEADS = tuple((layer, head) for layer in (5, 6) for head in (0, 3, 7, 11))


@pytest.fixture
def found() -> xr.Dataset:
    """What `prune` measures, of four heads in each of two layers, the numbers drawn."""
    random = np.random.default_rng(0)
    numbers = {}
    for key in cost_tables.COLUMNS:
        values = random.random(len(HEADS))
        numbers |= {key: ("head", values), f"{key}_error": ("head", 0.1 * values)}
    accuracy = ("order", "removed"), np.linspace(0.9, 0.7, 12).reshape(4, 3)
    for who in cost_tables.IN_ORDER:
        numbers |= {who: accuracy, f"{who}_error": (accuracy[0], np.full((4, 3), 0.01))}
    coordinates = {
        "layer": ("head", [layer for layer, _ in HEADS]),
        "number": ("head", [head for _, head in HEADS]),
        "order": ["head_score", "taylor", "random", "random"],
    }
    attributes = {
        "loss": "likelihood", "examples": 500, "examples_validation": 200, "ended": False,
        "whole_loss": 0.3, "whole_loss_error": 0.01, "widths": [20, 20], "temperature": 0.1,
    }  # fmt: skip
    return xr.Dataset(numbers, coordinates, attributes)


@pytest.mark.parametrize("width", [80, 120])
def test_the_cost_by_mean_and_taylor_importance_lead_at_any_width(found, width):
    lines = cost_tables.heads_table(found).text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    # Costliest first, by layer and head in the model.
    costs = found["mean_loss"].values
    order = [HEADS[at] for at in np.argsort(-costs)]
    named = [f"layer {layer}, head {head}" for layer, head in order]
    rows = [line[: line.index("  ")] for line in lines if line.startswith("layer")]
    assert rows == named


def test_at_random_is_the_mean_with_its_spread(found):
    table = cost_tables.orders_table(found)
    place = next(at for at, column in enumerate(table.columns) if "random" in column.header)
    drawn = found["accuracy_in_order"].values[2:]
    received = [row[place].value for row in table.rows]
    np.testing.assert_allclose(received, drawn.mean(axis=0))


@pytest.mark.slow
def test_figures_show_the_numbers_that_there_are(found):
    alone = found.drop_vars(["head_score", *cost_tables.IN_ORDER])
    del alone.attrs["widths"]
    with figure_style():
        assert figures.draw_head_scores(alone) is None
        assert figures.draw_orders(alone) is None
        image = figures.draw_map(alone).axes[0].images[0].get_array()
        assert len(figures.draw_orders(found).axes) == 2
        left, right = figures.draw_head_scores(found).axes
        bars = figures.draw_heads(alone.drop_vars("taylor")).axes[0].patches
    assert np.shape(image) == (2, 4)
    assert np.ma.filled(image, np.nan)[0, 1] == found["mean_loss"].values[1]
    order = np.argsort(found["head_score"].values)
    np.testing.assert_allclose([bar.get_width() for bar in left.patches],
                               found["head_score"].values[order])  # fmt: skip
    lost = right.lines[0].get_xdata()
    np.testing.assert_allclose(lost, 100 * found["zero_accuracy"].values[order])
    magnitudes = [bar.get_width() for bar in bars]
    np.testing.assert_allclose(magnitudes, np.sort(found["magnitude"].values))
