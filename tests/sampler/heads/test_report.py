"""Tables and figures of removed heads: what fits, what overlaps, what is explained."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sampler.heads import figures, removal_tables
from sampler.heads.head_importance import PREDICTIONS, JudgedNumbers, Numbers, RankCorrelation
from sampler.heads.removal import Curve, RemovedHeads
from sampler.presentation.style import figure_style

HEADS = tuple((layer, head) for layer in (5, 6) for head in (0, 3, 7, 11))
RHO = RankCorrelation(0.83, (0.41, 0.95), (0.7, 0.9), len(HEADS))
MEASURES = ("mean_loss", "mean_accuracy", "zero_loss", "zero_accuracy")


def numbers(seed: int, scale: float = 1.0) -> Numbers:
    values = scale * np.random.default_rng(seed).random(len(HEADS))
    return Numbers(tuple(values), tuple(0.1 * values))


@pytest.fixture
def removed() -> RemovedHeads:
    predicted = {
        key: JudgedNumbers(*vars(numbers(seed)).values(), dict.fromkeys(MEASURES, RHO))
        for seed, key in enumerate(PREDICTIONS)
    }
    measured = {key: numbers(10 + seed, 0.1) for seed, key in enumerate(MEASURES)}
    accuracy = Numbers((0.9, 0.8, 0.7), (0.01, 0.01, 0.01))
    curve = Curve(HEADS[:2], {"model": accuracy, "zeroed": accuracy}, numbers(3))
    return RemovedHeads(
        HEADS, "likelihood", 500, 200, {"loss": (0.3, 0.01), "accuracy": (0.9, 0.01)}, measured,
        predicted, {"score": (curve,), "taylor": (curve,), "random": (curve, curve)}, (20, 20), 0.1,
    )  # fmt: skip


def test_at_eighty_columns_the_table_keeps_taylor_importance_and_accuracy(removed):
    lines = removal_tables.removal_table(removed).text(width=80)
    header = " ".join(lines.splitlines()[:5])
    for name in ("loss, mean", "acc., mean", "Taylor"):
        assert name in header
    assert max(map(len, lines.splitlines())) <= 80


def test_heads_are_called_by_their_numbers_in_the_model(removed):
    text = removal_tables.removal_table(removed).text(width=200)
    for layer, head in HEADS:
        assert f"layer {layer}, head {head}" in text


def test_a_correlation_of_some_heads_says_of_how_many(removed):
    assert removal_tables.correlation(RHO, len(HEADS)).startswith("0.83 [")
    part = replace(RHO, heads=6)
    assert "6 of 8 heads" in removal_tables.correlation(part, len(HEADS))
    few = replace(RHO, value=-0.5, interval_over_heads=(np.nan, np.nan), heads=6)
    assert removal_tables.correlation(few, len(HEADS)) == "−0.50, 6 of 8 heads"


def texts_of(figure):
    """Visible texts with their boxes in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    shown = [text for text in figure.findobj(match=lambda a: hasattr(a, "get_window_extent")
                                             and hasattr(a, "get_text"))
             if text.get_text().strip() and text.get_visible()]  # fmt: skip
    return [(text.get_text(), text.get_window_extent(renderer)) for text in shown]


@pytest.mark.heavy
def test_the_picture_of_costs_has_no_texts_that_overlap_and_explains_its_marks(removed):
    with figure_style():
        figure = figures.draw_costs(removed)
        boxes = texts_of(figure)
    titles = [one for one in boxes if "ρ" in one[0] or "Loss gained" in one[0]]
    assert len(titles) >= 5
    for (one, first), (other, second) in combinations(titles, 2):
        assert not first.overlaps(second), (one, other)
    shown = [text for text, _ in boxes]
    assert "layer 5" in shown
    assert "layer 6" in shown


def test_layers_with_the_same_mark_share_a_line_of_the_legend():
    marks = {layer: figures.MARKS[(layer - 1) % len(figures.MARKS)] for layer in range(1, 13)}
    _, labels = figures.legend_of_layers(marks)
    assert labels == [
        "layers 1, 6, 11", "layers 2, 7, 12", "layers 3, 8", "layers 4, 9", "layers 5, 10",
    ]  # fmt: skip


@pytest.mark.heavy
def test_figures_without_a_theory_or_orders_are_left_out(removed):
    alone = replace(
        removed,
        predicted={key: removed.predicted[key] for key in ("taylor", "magnitude")},
        curves={}, widths=None, temperature=None,
    )  # fmt: skip
    with figure_style():
        assert figures.draw_head_scores(alone) is None
        assert figures.draw_orders(alone) is None
        assert len(figures.draw_costs(alone).axes) == 2
        image = figures.draw_map(alone).axes[0].images[0].get_array()
        assert len(figures.draw_orders(removed).axes) == 2
    assert np.shape(image) == (2, 4)
    assert np.ma.filled(image, np.nan)[0, 1] == removed.measured["mean_loss"].values[1]
